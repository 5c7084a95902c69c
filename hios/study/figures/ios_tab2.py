"""IOS, table 2: the networks."""

from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.reference_networks import inception_v3, nasnet_large, squeezenet
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "ios_tab2"


def rows(data: FigureData) -> Rows:
    """A row for every network."""
    return [
        {"network": graph.name, "blocks": len(graph.blocks), "operators": len(graph.operators)}
        for graph in (inception_v3(), nasnet_large(), squeezenet())
    ]


def compare(rows: Rows) -> list[Comparison]:
    """Operators and blocks."""
    return [
        Comparison(entry, {row["network"]: float(row[name]) for row in rows}) for name, entry in published(_ID).items()
    ]


def why(rows: Rows) -> str:
    """Why blocks are counted otherwise."""
    counts = ", ".join(f"{row['blocks']} of {row['network']}" for row in rows)
    return f"hios makes a block of every layer that stands alone, so it counts {counts}; operators are the same."


register(
    Figure(
        id=_ID,
        title="Networks of the benchmark",
        varies="network; blocks and operators",
        seconds=2,
        rows=rows,
        compare=compare,
        reason=why,
    )
)
