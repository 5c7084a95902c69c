"""TOP, figure 22: convergence of MADDPG."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="top_fig22",
        title="Convergence of MADDPG",
        varies="steps of training; reward",
        needs=("cuda",),
        missing="the paper's curve is of 8000 steps of 10 s on a GPU",
    )
)
