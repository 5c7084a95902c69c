"""Opara, figure 2: the order of launches."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="opara_fig2",
        title="Effect of the order in which operators are launched",
        varies="order of launches and batch size; latency of GoogLeNet",
        needs=("cuda",),
        missing=("the order of launches has no effect on cores, which run what they are given one after the other"),
        command="hios execute ... --platform cuda, with opara and a schedule of another launch order",
    )
)
