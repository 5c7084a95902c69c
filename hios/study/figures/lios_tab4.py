"""LIOS, table IV: the networks."""

from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.reference_networks import inception_v3, nasnet_large, squeezenet
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "lios_tab4"


def rows(data: FigureData) -> Rows:
    """A row for every network."""
    return [
        {"network": graph.name, "operators": len(graph.operators), "edges": len(graph.edges)}
        for graph in (squeezenet(), inception_v3(), nasnet_large())
    ]


def compare(rows: Rows) -> list[Comparison]:
    """Operators and edges."""
    return [
        Comparison(entry, {row["network"]: float(row[name]) for row in rows}) for name, entry in published(_ID).items()
    ]


register(
    Figure(
        id=_ID,
        title="Networks of the benchmark",
        varies="network; operators and edges",
        seconds=2,
        rows=rows,
        compare=compare,
    )
)
