"""IOS, table 3: schedules of other batch sizes and other GPUs."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="ios_tab3",
        title="Schedules specialised for batch sizes and for devices",
        varies=("batch size or GPU that a schedule is made for and that it runs with; latency of Inception-v3"),
        needs=("cpu",),
        missing=(
            "hios has no session of batch sizes yet, since a schedule is refused on a graph of other "
            "shapes than its own"
        ),
    )
)
