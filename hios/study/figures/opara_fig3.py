"""Opara, figure 3: operators of different kinds beside each other."""

from hios.charts import marks
from hios.study import network_runs as runs
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, reason, register

_SLOWER = "slower %"


def rows(data: FigureData) -> Rows:
    """A row for every pair of kinds: how much slower the first is while the second runs beside it."""
    return [
        {
            "network": f"{pair.image_size} px",
            "timed": pair.kinds[0],
            "pair": f"{pair.kinds[0]} beside {pair.kinds[1]}",
            "platform": file.platform.name,
            "mark": marks.MEASURED.name,
            "alone ms": pair.alone_ms,
            "beside ms": pair.beside_ms,
            _SLOWER: 100 * (pair.beside_ms / pair.alone_ms - 1),
        }
        for file in data.convolutions
        for pair in file.pairs
    ]


def finding(rows: Rows) -> str:
    """By how much each kind is slowed down."""
    texts = [f"{row['pair']} {row[_SLOWER]:+.1f} %" for row in rows]
    return f"Change of the time on a core while the other core works: {', '.join(texts)}."


register(
    Figure(
        id="opara_fig3",
        title="Convolution beside ReLU, and ReLU beside ReLU",
        varies="pair of operators; how much slower the first is with the second beside it",
        needs=("2 devices",),
        sessions=("convolutions",),
        rows=rows,
        finding=finding,
        chart=runs.bar_chart("pair", _SLOWER, "slower than alone, %"),
        reason=reason("Here each runs on its own core: they share caches and memory, not the units of one GPU."),
    )
)
