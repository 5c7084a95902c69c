"""TOP, figure 26: throughput and utilisation over the batch size."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="top_fig26",
        title="Throughput and utilisation over the batch size",
        varies="batch size; throughput and utilisation",
        needs=("cuda",),
        missing="costs of every batch size have to be measured on a GPU",
    )
)
