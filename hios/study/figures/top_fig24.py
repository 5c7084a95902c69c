"""TOP, figure 24: copies of one model."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="top_fig24",
        title="Copies of one model",
        varies="number of copies; throughput",
        missing="it is printed by a benchmark, predicted; the paper states no number",
        command="python benchmarks/top_combined_sizes.py",
    )
)
