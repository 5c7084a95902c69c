"""The topological order of a directed graph, with a preference among the nodes that could come next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush


def topological_order(successors: Sequence[Iterable[int]], preference: Iterable[int] | None = None) -> list[int]:
    """Nodes of a directed graph, each after all its predecessors (Kahn's algorithm with a heap).

    Args:
        successors: for every node, the nodes that come after it; parallel edges are allowed.
        preference: every node once; of the nodes that could come next, the first in it does. None: by number.

    Returns:
        All nodes in order; without the nodes on cycles, and those after them, where the graph has cycles.
    """
    nodes = list(range(len(successors)) if preference is None else preference)
    rank = [0] * len(nodes)
    for place, node in enumerate(nodes):
        rank[node] = place
    missing = [0] * len(nodes)  # predecessors that are not in the order yet
    for following in successors:
        for node in following:
            missing[node] += 1
    ready = [place for place, node in enumerate(nodes) if missing[node] == 0]
    order = []
    while ready:
        node = nodes[heappop(ready)]
        order.append(node)
        for successor in successors[node]:
            missing[successor] -= 1
            if missing[successor] == 0:
                heappush(ready, rank[successor])
    return order
