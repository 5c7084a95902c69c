"""TOP, figure 23: several models on the same input."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="top_fig23",
        title="Several models on the same input",
        varies="system; throughput of synchronous tasks",
        needs=("cuda",),
        missing="it needs tasks that all models take, which scenarios do not have",
    )
)
