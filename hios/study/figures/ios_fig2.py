"""IOS, figure 2: three schedules of a sample network."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="ios_fig2",
        title="Sequential, greedy and IOS schedule of a sample network",
        varies="schedule; latency, operations and utilisation of every stage",
        needs=("cuda",),
        missing="utilisation is that of a GPU, and hios has no sample network of the figure",
    )
)
