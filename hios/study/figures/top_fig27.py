"""TOP, figure 27: throughput of the systems over the batch size."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="top_fig27",
        title="Throughput of the systems over the batch size",
        varies="batch size and system; throughput",
        needs=("cuda",),
        missing="costs of every batch size have to be measured on a GPU",
    )
)
