"""IOS, figure 10: schedules of Inception-v3's last block for batch 1 and 32."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="ios_fig10",
        title="Schedules of the last block of Inception-v3, optimised for batch 1 and 32",
        varies="batch size; stages, and latency of each schedule in its own batch",
        needs=("cpu",),
        missing=(
            "hios has no session of batch sizes yet, since a schedule is refused on a graph of other "
            "shapes than its own"
        ),
    )
)
