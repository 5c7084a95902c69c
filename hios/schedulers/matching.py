"""Maximum matchings and minimum vertex covers of bipartite graphs.

Own code because scheduling commands must start at once: importing networkx takes 0.15 s, half of their limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def maximum_matching(adjacency: Sequence[Sequence[int]], right: int, start: Sequence[int] = ()) -> list[int]:
    """The right vertex that every left vertex is matched to, or -1. O(|E| sqrt(|V|)).

    Hopcroft and Karp, SIAM J. Comput. 2(4), 1973.

    Args:
        adjacency: the right vertices that each left vertex may be matched to; earlier ones are tried first.
        right: number of right vertices.
        start: a matching to enlarge, in the form of the result; its vertices stay matched, perhaps to others.
    """
    matched = list(start) or [-1] * len(adjacency)
    owner = [-1] * right
    for left, partner in enumerate(matched):
        if partner >= 0:
            owner[partner] = left
    while layers := _layers(adjacency, matched, owner):
        untried = [iter(neighbors) for neighbors in adjacency]
        for left in range(len(adjacency)):
            if matched[left] < 0:
                _augment(left, untried, layers, matched, owner)
    return matched


def minimum_vertex_cover(adjacency: Sequence[Sequence[int]], matched: Sequence[int]) -> tuple[set[int], set[int]]:
    """Left and right vertices that touch every edge, as many as a maximum matching has edges (König 1931).

    Args:
        adjacency: the right neighbors of each left vertex.
        matched: a maximum matching, as ``maximum_matching`` gives it.
    """
    owner = {right: left for left, right in enumerate(matched) if right >= 0}
    trail = [left for left, right in enumerate(matched) if right < 0]
    lefts, rights = set(trail), set()  # what alternating paths from the free left vertices reach
    while trail:
        for right in adjacency[trail.pop()]:
            if right not in rights:
                rights.add(right)
                lefts.add(owner[right])
                trail.append(owner[right])
    return set(range(len(adjacency))) - lefts, rights


def _layers(adjacency: Sequence[Sequence[int]], matched: Sequence[int], owner: Sequence[int]) -> dict[int, int]:
    """Left vertices on shortest alternating paths to a free right vertex, with their distance; empty without one."""
    frontier = [left for left, partner in enumerate(matched) if partner < 0]
    layers = dict.fromkeys(frontier, 0)
    while frontier:
        reached = False
        beyond = []
        for left in frontier:
            for right in adjacency[left]:
                if owner[right] < 0:
                    reached = True
                elif owner[right] not in layers:
                    layers[owner[right]] = layers[left] + 1
                    beyond.append(owner[right])
        if reached:
            for left in beyond:  # paths over them would be longer
                del layers[left]
            return layers
        frontier = beyond
    return {}


def _augment(
    start: int, untried: Sequence[Iterator[int]], layers: dict[int, int], matched: list[int], owner: list[int]
) -> None:
    """Flip an augmenting path from ``start`` through the layers, if there is one left."""
    lefts, rights = [start], [-1]  # the path, and how each of its left vertices was reached; recursion gets too deep
    while lefts:
        right = next(untried[lefts[-1]], -1)
        if right < 0:
            lefts.pop()
            rights.pop()
        elif owner[right] < 0:
            for left, partner in zip(lefts, [*rights[1:], right], strict=True):
                matched[left], owner[partner] = partner, left
            return
        elif layers.get(owner[right]) == layers[lefts[-1]] + 1:
            lefts.append(owner[right])
            rights.append(right)
