"""IOS, figure 11: throughput over batch sizes."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="ios_fig11",
        title="Throughput of Inception-v3 for different batch sizes",
        varies="batch 1 to 128; throughput of the sequential schedule, frameworks and IOS",
        needs=("cpu",),
        missing="hios has no session of batch sizes yet",
    )
)
