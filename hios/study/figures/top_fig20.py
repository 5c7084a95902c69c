"""TOP, figure 20: stages of combined blocks on several GPUs."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="top_fig20",
        title="Stages of combined blocks on several GPUs",
        varies="device; number of stages, and of groups in each",
        needs=("several machines",),
        missing="it compares stages found on four GPUs",
    )
)
