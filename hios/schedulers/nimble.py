"""Nimble: streams that give up no parallelism, with the fewest synchronizations."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hios.problem import Problem
from hios.schedule import Solution, StreamPlan
from hios.schedulers.algorithm_registry import register
from hios.schedulers.matching import closure_matching, maximum_matching, minimum_vertex_cover


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
    """Operators, by number, on the streams of one device.

    Attributes:
        streams: the operators of every stream in order.
        synchronizations: pairs (u, v) on different streams where v must be made to wait for u. All other
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
    below = _descendants(problem)
    reduced = _reduced(problem, below)
    matching = maximum_matching(reduced, len(problem))
    sources, targets = minimum_vertex_cover(reduced, matching)
    free = sum(1 << operator for operator in range(len(problem)) if operator not in targets)
    listed = [
        [target for target in row if target not in targets] if source in sources else row
        for source, row in enumerate(reduced)
    ]
    for source in range(len(problem)):  # in place: a second closure would double the memory
        below[source] = 0 if source in sources else below[source] & free
    following = closure_matching(listed, below, len(problem), matching)
    synchronizations = tuple(
        (source, target) for source in problem.order for target in reduced[source] if following[source] != target
    )
    return StreamAssignment(tuple(_paths(following, problem.order)), synchronizations)


def transitive_reduction(problem: Problem) -> list[list[int]]:
    """Successors of every operator that depend on no other of them, by number, in topological order."""
    return _reduced(problem, _descendants(problem))


def _reduced(problem: Problem, below: Sequence[int]) -> list[list[int]]:
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


def _descendants(problem: Problem) -> list[int]:
    """What depends on every operator, as set bits of the operators' numbers."""
    below = [0] * len(problem)
    for operator in reversed(problem.order):
        for successor, _ in problem.successors[operator]:
            below[operator] |= below[successor] | 1 << successor
    return below


def _paths(following: Sequence[int], order: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Paths along ``following`` (-1 ends them), by where they start in ``order``."""
    later = set(following)
    for operator in order:
        if operator not in later:
            path = [operator]
            while following[path[-1]] >= 0:
                path.append(following[path[-1]])
            yield tuple(path)
