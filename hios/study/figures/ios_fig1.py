"""IOS, figure 1: convolutions become smaller."""

import statistics

from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, reason, register

_MEGA = 1e6


def rows(data: FigureData) -> Rows:
    """A row for every network: its convolutions, and how many operations each has on average."""
    return [
        {"network": label, "convolutions": len(flops), "MFLOP a convolution": statistics.mean(flops) / _MEGA}
        for label, network in data.networks.items()
        if (flops := [op.flops for op in network.graph.operators if op.flops and "conv" in op.type])
    ]


def finding(rows: Rows) -> str:
    """Operations of a convolution, by network."""
    texts = [f"{row['MFLOP a convolution']:.0f} MFLOP in {row['network']}" for row in rows]
    return f"Average operations per convolution: {', '.join(texts)}."


register(
    Figure(
        id="ios_fig1",
        title="Operations per convolution",
        varies="network; operations of a convolution on average (the paper: year; peak performance too)",
        sessions=("networks",),
        rows=rows,
        finding=finding,
        reason=reason("The networks are those of the configuration, without VGG."),
    )
)
