"""IOS, figure 14: figure 6 on another GPU."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="ios_fig14",
        title="Schedules on an RTX 2080 Ti",
        varies="network; throughput of every schedule, normalised to the best",
        needs=("several machines",),
        missing=("figures of several machines at once are not drawn yet; ios_fig6 is that of this machine"),
        command="snakemake --cores all ios_fig6",
    )
)
