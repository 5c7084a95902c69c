"""TOP, figure 13: time and latency of stages by GPG and by dynamic programming."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="top_fig13",
        title="Time and latency of stages by GPG and by dynamic programming",
        varies="number of sub-blocks; scheduling time and latency of a combined block",
        missing="it is printed by a benchmark that trains GPG first",
        command="python benchmarks/top_figure_13.py",
    )
)
