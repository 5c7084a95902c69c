"""Opara, figure 3: operators of different kinds beside each other."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="opara_fig3",
        title="Convolution beside ReLU, and ReLU beside ReLU",
        varies="pair of operators; latency of both at once",
        needs=("cpu",),
        missing="hios has no session of convolutions alone yet",
    )
)
