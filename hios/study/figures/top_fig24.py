"""TOP, figure 24: copies of one model."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="top_fig24",
        title="Copies of one model",
        varies="number of copies; throughput",
        needs=("cuda",),
        missing="the paper states no number, and copies on a GPU overlap in ways that costs.json does not know",
    )
)
