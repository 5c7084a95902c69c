"""IOS, figure 9: pruning of the search."""

from hios.schedulers.ios import search_space
from hios.study.figure_data import FigureData
from hios.study.reference_networks import inception_v3, nasnet_large
from hios.study.registry import Figure, Rows, reason, register

_PRUNING = [(r, s) for r in (1, 2, 3) for s in (3, 8)]


def rows(data: FigureData) -> Rows:
    """A row for every network, r and s: the transitions that the search goes through, which are exact."""
    return [
        {"network": graph.name, "r": r, "s": s, "transitions": search_space(graph, r=r, s=s).transitions}
        for graph in (inception_v3(), nasnet_large())
        for r, s in _PRUNING
    ]


register(
    Figure(
        id="ios_fig9",
        title="Trade-off between latency and cost of the search",
        varies="r 1 to 3 and s 3 and 8; transitions of the search (the paper: latency and seconds of search)",
        seconds=20,
        rows=rows,
        reason=reason(
            "What the search costs is counted in transitions, which no machine changes; latencies are not measured."
        ),
    )
)
