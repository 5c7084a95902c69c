"""TOP, figure 18: throughput over the size of combined blocks."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="top_fig18",
        title="Throughput over the size of combined blocks",
        varies="largest number of sub-blocks H; throughput",
        missing="it is printed by a benchmark, predicted: neighboring blocks are combined, not learned",
        command="python benchmarks/top_combined_sizes.py",
    )
)
