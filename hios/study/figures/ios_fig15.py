"""IOS, figure 15: figure 7 on another GPU."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="ios_fig15",
        title="Frameworks on an RTX 2080 Ti",
        varies="network; throughput of every framework, normalised to the best",
        needs=("several machines",),
        missing=("figures of several machines at once are not drawn yet; ios_fig7 is that of this machine"),
        command="snakemake --cores all ios_fig7",
    )
)
