"""IOS, table 1: the search space of the largest block."""

import math

from hios.graph import Graph
from hios.schedulers.ios import search_space
from hios.schedulers.matching import maximum_matching
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.reference_networks import inception_v3, nasnet_large, squeezenet
from hios.study.registry import Figure, Rows, reason, register
from hios.study.verdicts import Comparison

_ID = "ios_tab1"


def rows(data: FigureData) -> Rows:
    """A row for every network: the block with the most transitions, without pruning."""
    return [_row(graph) for graph in (inception_v3(), nasnet_large(), squeezenet())]


def _row(graph: Graph) -> dict[str, object]:
    spaces = [search_space(graph, block) for block in range(len(graph.blocks))]
    largest = max(range(len(spaces)), key=lambda block: spaces[block].transitions)
    operators, wide = len(graph.blocks[largest]), width(graph, graph.blocks[largest])
    return {
        "network": graph.name,
        "operators": operators,
        "width": wide,
        "bound": _binomial(operators / wide + 2) ** wide,
        "transitions": spaces[largest].transitions,
        "schedules": float(spaces[largest].schedules),
    }


def _binomial(number: float) -> float:
    """Number over two; the paper's formula takes fractions too."""
    return number * (number - 1) / 2


def width(graph: Graph, block: tuple[str, ...]) -> int:
    """The most operators of a block that can run beside each other, by Dilworth's theorem."""
    place = {operator: number for number, operator in enumerate(block)}
    below: list[set[int]] = [set() for _ in block]
    inside = {
        (place[edge.source], place[edge.target])
        for edge in graph.edges
        if edge.source in place and edge.target in place
    }
    in_order = [place[name] for number in graph.order if (name := graph.operators[number].id) in place]
    for source in reversed(in_order):
        for target in {other for one, other in inside if one == source}:
            below[source] |= below[target] | {target}
    matched = maximum_matching([sorted(row) for row in below], len(block))
    return len(block) - sum(partner >= 0 for partner in matched)


def compare(rows: Rows) -> list[Comparison]:
    """Every column of the table, of the networks that are here."""
    return [
        Comparison(entry, {row["network"]: float(row[name]) for row in rows if math.isfinite(float(row[name]))})
        for name, entry in published(_ID).items()
    ]


register(
    Figure(
        id=_ID,
        title="Search space of the largest block",
        varies="network; operators, width, bound, transitions and schedules of the block with the most transitions",
        seconds=5,
        rows=rows,
        compare=compare,
        reason=reason(
            "RandWire's row needs generated graphs that are not part of hios; a test checks it where they exist."
        ),
    )
)
