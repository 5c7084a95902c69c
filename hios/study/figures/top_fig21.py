"""TOP, figure 21: convergence of GPG."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="top_fig21",
        title="Convergence of GPG",
        varies="steps of training; latency",
        needs=("cuda",),
        missing="the paper's curve is of 6000 steps that measure stages on a GPU",
        command="hios train",
    )
)
