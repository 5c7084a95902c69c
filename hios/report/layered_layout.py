"""Layered drawing of a directed acyclic graph: columns, order within columns, heights (Sugiyama, Tagawa, Toda, 1981).

Small and our own because no library fits. ELK (elkjs) and Graphviz were tried on Inception-v3 and NASNet: both draw
the blocks in one band, four to eight times as wide as a page, because they do not wrap graphs whose blocks are frames;
both draw a line for every edge, where one for every value is enough. ELK would also add 1.6 MB of JavaScript to every
page, and Graphviz is a program to be installed. igraph is under the GPL, and grandalf has not been maintained for
years.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

_ROUNDS = 24
#: Vertices times rounds of ordering, at most: a large block is ordered in fewer rounds, to stay within seconds.
_EFFORT = 60_000
_STRAIGHTENING_ROUNDS = 12


def assign_columns(order: Iterable[int], predecessors: Mapping[int, Iterable[int]], limit: int) -> dict[int, int]:
    """The first column for every vertex that is right of its predecessors and has room.

    Args:
        order: the vertices in topological order.
        predecessors: by vertex; those not in ``order`` do not count.
        limit: vertices a column, at most.

    Returns:
        Columns from 0 by vertex. Without the limit it is the longest path to the vertex.
    """
    column: dict[int, int] = {}
    filled: Counter[int] = Counter()
    following: dict[int, int] = {}  # of a full column, one to look at next
    for vertex in order:
        place = max((column[source] + 1 for source in predecessors[vertex] if source in column), default=0)
        passed = []
        while filled[place] >= limit:
            passed.append(place)
            place = following.get(place, place + 1)
        following.update(dict.fromkeys(passed, place))
        column[vertex] = place
        filled[place] += 1
    return column


def order_columns(columns: Sequence[Sequence[int]], links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The vertices of every column from top to bottom, so that few links cross (barycenter heuristic).

    Args:
        columns: vertices by column; their order is the first that is tried.
        links: pairs of vertices of neighboring columns, the left one first.
    """
    left, right = _neighbors(links)
    best = current = [list(column) for column in columns]
    fewest = _crossings(best, right)
    rounds = min(_ROUNDS, max(2, _EFFORT // (sum(map(len, columns)) or 1)))
    for turn in range(rounds):
        if fewest == 0:
            break
        current = [list(column) for column in current]
        forward = turn % 2 == 0
        side = left if forward else right
        steps = range(1, len(current)) if forward else range(len(current) - 2, -1, -1)
        for step in steps:
            fixed = current[step - 1 if forward else step + 1]
            current[step] = _by_barycenter(current[step], {v: place for place, v in enumerate(fixed)}, side)
        crossings = _crossings(current, right)
        if crossings < fewest:
            best, fewest = current, crossings
    return best


def place_vertically(
    columns: Sequence[Sequence[int]],
    links: Sequence[tuple[int, int]],
    separation: Mapping[tuple[int, int], float],
    weights: Mapping[int, float],
) -> dict[int, float]:
    """Centers of the vertices, downwards from about 0, so that links are short and straight.

    Args:
        columns: vertices of every column from top to bottom.
        links: pairs of vertices of neighboring columns.
        separation: smallest distance of the centers of two vertices that stand one above the other.
        weights: how much each vertex insists on being level with its neighbors.
    """
    left, right = _neighbors(links)
    offsets: dict[int, float] = {}
    for column in columns:
        offset = 0.0
        for place, vertex in enumerate(column):
            offset += separation[column[place - 1], vertex] if place else 0.0
            offsets[vertex] = offset
    center = {v: offsets[v] - offsets[column[-1]] / 2 for column in columns for v in column}
    for turn in range(_STRAIGHTENING_ROUNDS):
        forward = turn % 2 == 0
        for column in columns if forward else reversed(columns):
            wanted = []
            for vertex in column:
                near = left.get(vertex, []) if forward else right.get(vertex, [])
                near = near or right.get(vertex, []) + left.get(vertex, [])
                level = sum(center[other] for other in near) / len(near) if near else center[vertex]
                wanted.append(level - offsets[vertex])
            for vertex, shift in zip(column, _rising(wanted, [weights[v] for v in column]), strict=True):
                center[vertex] = offsets[vertex] + shift
    return center


def _neighbors(links: Sequence[tuple[int, int]]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    left: dict[int, list[int]] = {}
    right: dict[int, list[int]] = {}
    for source, target in links:
        left.setdefault(target, []).append(source)
        right.setdefault(source, []).append(target)
    return left, right


def _by_barycenter(column: Sequence[int], place: Mapping[int, int], side: Mapping[int, list[int]]) -> list[int]:
    """A column sorted by the mean place of its neighbors; a vertex without one stays after its upper neighbor."""
    keys: list[tuple[float, int]] = []
    mean = -1.0
    for number, vertex in enumerate(column):
        if near := side.get(vertex):
            mean = sum(place[other] for other in near) / len(near)
        keys.append((mean, number))
    return [column[number] for _, number in sorted(keys)]


def _crossings(columns: Sequence[Sequence[int]], right: Mapping[int, list[int]]) -> int:
    """Pairs of links that cross."""
    total = 0
    for column, following in pairwise(columns):
        place = {vertex: number for number, vertex in enumerate(following)}
        seen: list[int] = []
        for vertex in column:
            ends = sorted(place[target] for target in right.get(vertex, ()))
            total += sum(len(seen) - bisect_left(seen, end + 1) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _rising(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The rising sequence nearest to what is wanted, by weighted squares (pool adjacent violators)."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for value, weight in zip(wanted, weights, strict=True):
        mean, total, members = value, weight, 1
        while pools and pools[-1][0] > mean:
            before, its, count = pools.pop()
            mean = (mean * total + before * its) / (total + its)
            total, members = total + its, members + count
        pools.append((mean, total, members))
    return [mean for mean, _, members in pools for _ in range(members)]
