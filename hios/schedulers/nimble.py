"""Nimble: streams that give up no parallelism, with the fewest synchronizations.

Matchings and vertex covers of bipartite graphs are our own code, as scheduling commands must start fast: importing
networkx takes 0.15 s, half of their limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hios.core.problem import Problem, members, reachable
from hios.core.schedule import Solution, StreamPlan
from hios.schedulers.registry import register


def maximum_matching(
    listed: Sequence[Sequence[int]], right: int, start: Sequence[int] = (), sets: Sequence[int] = ()
) -> list[int]:
    """The right vertex that every left vertex is matched to, or -1. O(|E| sqrt(|V|)).

    Hopcroft and Karp, SIAM J. Comput. 2(4), 1973. Of the ``right`` right vertices, each left vertex may be matched to
    those ``listed``, tried first and in this order, and to the set bits of ``sets``, in ascending order. ``start`` is a
    matching to enlarge, in the form of the result: its vertices stay matched, perhaps to others.

    Sets are for graphs too dense to list: of 50,000 operators in layers the transitive closure has 10^9 edges; as sets
    of bits it takes 300 MB. With them, O(|V|^2 / 64) a phase, of which there are at most O(sqrt(|V|)).
    """
    matched = list(start) or [-1] * len(listed)
    owner = [-1] * right
    for left, partner in enumerate(matched):
        if partner >= 0:
            owner[partner] = left
    while layer := _layers(listed, sets, matched, owner):
        phase = _Phase(listed, sets, layer, matched, owner)
        for left in range(len(listed)):
            if matched[left] < 0:
                phase.augment(left)
    return matched


def minimum_vertex_cover(adjacency: Sequence[Sequence[int]], matched: Sequence[int]) -> tuple[set[int], set[int]]:
    """Left and right vertices that touch every edge, as many as a maximum matching has edges (König 1931).

    ``adjacency`` has the right neighbors of each left vertex, ``matched`` is as ``maximum_matching`` gives it.
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


def _layers(
    listed: Sequence[Sequence[int]], sets: Sequence[int], matched: Sequence[int], owner: Sequence[int]
) -> list[int]:
    """Distance of left vertices on shortest alternating paths to a free right vertex, else -1; empty without a path."""
    layer = [-1] * len(matched)
    frontier = [left for left, partner in enumerate(matched) if partner < 0]
    free = _as_set((right for right, left in enumerate(owner) if left < 0), len(owner))
    unseen = ((1 << len(owner)) - 1) ^ free
    distance = 0
    while frontier:
        near = 0
        for left in frontier:
            layer[left] = distance
            near |= sets[left] if sets else 0
        rights = {right for left in frontier for right in listed[left]}
        if near & free or any(owner[right] < 0 for right in rights):
            return layer
        near &= unseen
        unseen ^= near
        rights.update(members(near))
        frontier = [owner[right] for right in rights if layer[owner[right]] < 0]
        distance += 1
    return []


def _as_set(places: Iterator[int], size: int) -> int:
    """Positions as a bit set, without a copy of the number for each of them."""
    digits = bytearray(size // 8 + 1)
    for place in places:
        digits[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(digits, "little")


class _Phase:
    """Paths of the shortest length, found by depth-first search and flipped one after another."""

    def __init__(
        self,
        listed: Sequence[Sequence[int]],
        sets: Sequence[int],
        layer: Sequence[int],
        matched: list[int],
        owner: list[int],
    ) -> None:
        self._listed = [iter(neighbors) for neighbors in listed]
        self._sets = sets
        self._layer = layer
        self._matched = matched
        self._owner = owner
        if not sets:
            return
        self._tried = [0] * len(sets)  # of the bits of every left vertex those below this have been tried
        right = len(owner)
        self._free = _as_set((place for place, left in enumerate(owner) if left < 0), right)
        # Right vertices by the layer of their owner, without those through which nothing can be reached any more.
        layers = [bytearray(right // 8 + 1) for _ in range(max(layer) + 2)]
        for place, left in enumerate(owner):
            if left >= 0 and layer[left] >= 0:
                layers[layer[left]][place >> 3] |= 1 << (place & 7)
        self._of_layer = [int.from_bytes(digits, "little") for digits in layers]

    def augment(self, start: int) -> None:
        """Flip a path from a free left vertex, if there is one left."""
        # The path, and how each of its left vertices was reached; recursion gets too deep.
        lefts, rights = [start], [-1]
        while lefts:
            left = lefts[-1]
            right = self._next(left)
            if right < 0:
                lefts.pop()
                if (reached := rights.pop()) >= 0 and self._sets:
                    self._of_layer[self._layer[left]] &= ~(1 << reached)
            elif self._owner[right] < 0:
                self._flip(lefts, [*rights[1:], right])
                return
            else:
                lefts.append(self._owner[right])
                rights.append(right)

    def _next(self, left: int) -> int:
        """The next right vertex that is free or leads on, -1 without one; those before it are not tried again."""
        beyond = self._layer[left] + 1
        for right in self._listed[left]:
            holder = self._owner[right]
            if holder < 0 or self._layer[holder] == beyond:
                return right
        if not self._sets:
            return -1
        own = self._sets[left]
        rest = own and (own & (self._free | self._of_layer[beyond])) >> self._tried[left]
        if not rest:
            self._tried[left] = len(self._owner)
            return -1
        self._tried[left] += (rest & -rest).bit_length()
        return self._tried[left] - 1

    def _flip(self, lefts: Sequence[int], rights: Sequence[int]) -> None:
        for left, right in zip(lefts, rights, strict=True):
            holder = self._owner[right]
            self._matched[left], self._owner[right] = right, left
            if not self._sets:
                continue
            if holder < 0:
                self._free &= ~(1 << right)
            else:
                self._of_layer[self._layer[holder]] &= ~(1 << right)
            self._of_layer[self._layer[left]] |= 1 << right


@register(
    "nimble",
    paper="Nimble (Kwon et al., NeurIPS 2020), section 4.2",
    summary="independent operators on different streams with the fewest synchronizations, whatever operators cost",
    several_devices=False,
)
def nimble(problem: Problem, devices: int) -> Solution:
    """Streams by ``assign_streams``; operators are launched in topological order.

    The notes state how many synchronizations between streams the schedule needs.
    """
    began = time.perf_counter()
    assigned = assign_streams(problem)
    return Solution(
        StreamPlan((assigned.streams,), problem.order),
        notes={"synchronizations": str(len(assigned.synchronizations))},
        allocation_time_s=time.perf_counter() - began,
    )


class StreamAssignment(NamedTuple):
    """Operators, by number, on the streams of one device, in the order of each.

    ``synchronizations`` are pairs (u, v) on different streams where v must be made to wait for u. All other
    dependencies follow from these and from the order of the streams.
    """

    streams: tuple[tuple[int, ...], ...]
    synchronizations: tuple[tuple[int, int], ...]


def assign_streams(problem: Problem) -> StreamAssignment:
    """Stream assignment of Nimble (section 4.2), and its chains one after another.

    The edges E' of the transitive reduction ("minimum equivalent graph") are taken as a bipartite graph from
    operators to operators; the edges of a maximum matching M join operators into chains. Operators that do not
    depend on each other are in different chains, and |E'| - |M| synchronizations are needed, the fewest that this
    allows.

    The paper gives each of the |V| - |M| chains a stream. As in the authors' program, a chain follows another on its
    stream where it depends on it from end to start, which costs neither parallelism nor a synchronization; as many
    do as possible, by a matching again. How many that are depends on M, which the paper leaves open; here it is one
    of those that allow the fewest streams. By linear programming duality these need not be searched for: a matching
    of the transitive closure has |M| edges of E' if it covers a minimum vertex cover C of E' with edges of E' that
    have one end in C and other edges that have none (complementary slackness). M is such a matching, and enlarging
    it keeps what it covers.

    O(|V| |E| / 64 + |V|^2.5 / 64) in time and |V|^2 / 8 bytes, as the closure is kept as sets of bits.
    """
    below = reachable(problem.order[::-1], problem.successors)
    reduced = transitive_reduction(problem, below)
    matching = maximum_matching(reduced, len(problem))
    sources, targets = minimum_vertex_cover(reduced, matching)
    free = sum(1 << operator for operator in range(len(problem)) if operator not in targets)
    listed = [
        [target for target in row if target not in targets] if source in sources else row
        for source, row in enumerate(reduced)
    ]
    for source in range(len(problem)):  # in place: a second closure would double the memory
        below[source] = 0 if source in sources else below[source] & free
    following = maximum_matching(listed, len(problem), matching, below)
    synchronizations = tuple(
        (source, target) for source in problem.order for target in reduced[source] if following[source] != target
    )
    return StreamAssignment(tuple(_paths(following, problem.order)), synchronizations)


def transitive_reduction(problem: Problem, below: Sequence[int] = ()) -> list[list[int]]:
    """Successors of every operator that depend on no other of them, by number, in topological order.

    ``below`` has what depends on every operator, as `hios.core.problem.reachable` finds it.
    """
    below = below or reachable(problem.order[::-1], problem.successors)
    reduced: list[list[int]] = []
    for successors in problem.successors:
        kept: list[int] = []
        covered = 0
        for successor, _ in successors:  # in topological order: what it may depend on comes before it
            if not covered >> successor & 1:
                kept.append(successor)
                covered |= below[successor]
        reduced.append(kept)
    return reduced


def _paths(following: Sequence[int], order: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Paths along ``following`` (-1 ends them), by where they start in ``order``."""
    later = set(following)
    for operator in order:
        if operator not in later:
            path = [operator]
            while following[path[-1]] >= 0:
                path.append(following[path[-1]])
            yield tuple(path)
