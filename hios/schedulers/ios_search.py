"""The search space of IOS: blocks, states, endings, how many there are (IOS sections 4.1 to 4.3, table 1), their times.

Sets of operators are integers here: bit i stands for the i-th operator of a block in topological order. ``ios_kernel``
has the same endings, compiled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hios.core.blocks import in_order, pieces
from hios.core.graph import Graph
from hios.core.problem import Problem, members
from hios.core.sums import ROUNDING


def blocks_and_pieces(graph: Graph, predecessors: Sequence[Sequence[int]]) -> Iterator[tuple[Sequence[int], bool]]:
    """The operators of each block that the graph states, in an order in which they can run; says which are stated.

    Operators in no block, in between, come in pieces, cut after each that has a path from or to all others.

    Raises:
        ArtifactError: an operator is in two blocks, or the blocks cannot run one after another.
    """
    for stated, run in itertools.groupby(in_order(graph), key=lambda entry: entry[1]):
        parts = [operators for operators, _ in run]
        for part in parts if stated else pieces([operator for (operator,) in parts], predecessors):
            yield part, stated


class SearchSpace(NamedTuple):
    """Size of a search space.

    ``states`` counts the sets S that some schedule has left to run, the empty one included, ``transitions`` the pairs
    (S, S') of a state and an ending of it, ``schedules`` the ways from all operators to none.
    """

    states: int
    transitions: int
    schedules: int


@dataclass(frozen=True)
class SearchedBlock:
    """Operators that are scheduled together, by their numbers in topological order.

    ``predecessors`` and ``descendants`` are sets for every operator; predecessors outside the block do not count,
    an operator is among its own descendants.
    """

    operators: tuple[int, ...]
    predecessors: tuple[int, ...]
    descendants: tuple[int, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        below = [1 << position for position in range(len(self.operators))]
        for position in reversed(range(len(self.operators))):
            for predecessor in members(self.predecessors[position]):
                below[predecessor] |= below[position]
        object.__setattr__(self, "descendants", tuple(below))

    @classmethod
    def of(cls, operators: Sequence[int], predecessors: Sequence[Iterable[int]]) -> SearchedBlock:
        """The block of some operators, given in topological order, in a graph given by all predecessors."""
        place = {operator: position for position, operator in enumerate(operators)}
        inside = [[place[u] for u in predecessors[operator] if u in place] for operator in operators]
        return cls(tuple(operators), tuple(as_set(row) for row in inside))

    def states(self) -> list[int]:
        """Every set that holds with an operator all its predecessors, in ascending order: subsets come first.

        Each of them is a state of the search, whatever r and s: schedules that end with one operator after the
        other reach it.
        """
        states = [0]
        for position in range(len(self.operators)):
            states += grown(states, position, self.predecessors[position])
        return states

    def endings(self, state: int, r: int, s: int) -> list[int]:
        """The endings of a state with at most ``s`` groups of at most ``r`` operators; fewer groups come first.

        Endings are rooted: a group is an operator and all its descendants in the state, and groups are disjoint.
        The released program chooses at most one root from each chain of a chain decomposition. The roots of
        disjoint groups never lie on one chain, so the endings are the same whatever the decomposition, and none
        is needed.
        """
        levels: list[list[int]] = [[0]]
        for root in members(state):
            group = self.descendants[root] & state
            if group.bit_count() > r:
                continue
            if len(levels) <= s:
                levels.append([])
            for count in range(len(levels) - 1, 0, -1):
                levels[count] += [ending | group for ending in levels[count - 1] if not ending & group]
        return [ending for level in levels[1:] for ending in level]

    def groups(self, ending: int) -> list[tuple[int, ...]]:
        """The groups of an ending as positions in the block, each in topological order."""
        roots = [position for position in members(ending) if not self.predecessors[position] & ending]
        return [tuple(members(self.descendants[root] & ending)) for root in roots]


def as_set(positions: Iterable[int]) -> int:
    """Positions in a block as a set."""
    mask = 0
    for position in positions:
        mask |= 1 << position
    return mask


def grown(states: Iterable[int], position: int, predecessors: int) -> list[int]:
    """The states that an operator adds when it joins the operators before it."""
    bit = 1 << position
    return [state | bit for state in states if not predecessors & ~state]


def block_space(block: SearchedBlock, r: int | None = None, s: int | None = None) -> SearchSpace:
    """Size of the search space of a block.

    ``r`` and ``s`` are the largest numbers of operators in a group and of groups in a stage; None for any.
    """
    size = len(block.operators)
    schedules = {0: 1}
    transitions = 0
    for state in block.states()[1:]:
        endings = block.endings(state, size if r is None else r, size if s is None else s)
        transitions += len(endings)
        schedules[state] = sum([schedules[state ^ ending] for ending in endings])
    return SearchSpace(len(schedules), transitions, schedules[(1 << size) - 1])


def network_space(blocks: Iterable[SearchedBlock], r: int | None = None, s: int | None = None) -> SearchSpace:
    """Size of the search space of a network that is searched block by block.

    States and transitions add up; schedules of the blocks can be combined freely. Blocks of equal structure are
    counted once.
    """
    known: dict[tuple[int, ...], SearchSpace] = {}
    spaces = []
    for block in blocks:
        if block.predecessors not in known:
            known[block.predecessors] = block_space(block, r, s)
        spaces.append(known[block.predecessors])
    return SearchSpace(
        sum(space.states for space in spaces),
        sum(space.transitions for space in spaces),
        math.prod(space.schedules for space in spaces),
    )


#: Operators of a block that is searched with 64-bit integers; the sign is left alone.
MOST_OPERATORS = 62
_NEVER = float("inf")


class _Sums(NamedTuple):
    """Of the operators of an ending: sum of t, sum of t*u, and the longest of its groups; milliseconds."""

    total: float = 0.0
    work: float = 0.0
    longest: float = 0.0


class StageTimes(dict[int, float]):
    """Milliseconds by ending of a block, computed on first use: GENERATESTAGE of Algorithm 1.

    Where no stage was measured, the contention model gives an ending's time from that of the ending with one group
    less, which the search has asked for before; it adds up in the order of `Problem.stage_ms`, so that not even the
    last bit differs. ``is_modeled`` says whether all times of several groups are; they are not if operators share
    resources. ``merged`` are the endings asked for that take least as one merged operator.
    """

    def __init__(self, problem: Problem, block: SearchedBlock, mode: str) -> None:
        self._problem, self._block, self._mode = problem, block, mode
        self._time = [problem.time[operator] for operator in block.operators]
        self._work = [problem.time[operator] * problem.utilization[operator] for operator in block.operators]
        # A subclass has its own `stage_ms`: it records requests, or models lanes.
        self.is_modeled = type(problem) is Problem and not problem.measured and problem.blends
        self._sums = {0: _Sums()}
        self._mergeable = sum(
            1 << place for place, operator in enumerate(block.operators) if problem.convolutions[operator] is not None
        )
        self.merged: set[int] = set()

    @property
    def can_merge(self) -> bool:
        """Whether the block holds two operators that might run as one."""
        return self._mode != "parallel" and self._mergeable.bit_count() > 1

    def __missing__(self, ending: int) -> float:
        rest = self._without_last_group(ending)
        concurrent = _NEVER if rest and self._mode == "merge" else self._concurrent(ending, rest)
        if rest and self._mode != "parallel" and not ending & ~self._mergeable:
            merged = self._merged(ending)
            if merged is not None and merged < concurrent * (1 - ROUNDING):
                self.merged.add(ending)
                concurrent = merged
        self[ending] = concurrent
        return concurrent

    def _without_last_group(self, ending: int) -> int:
        """An ending without the group of its last root, the last operator that depends on no other of the ending."""
        root = ending.bit_length() - 1
        while self._block.predecessors[root] & ending:
            root = (ending & ((1 << root) - 1)).bit_length() - 1
        return ending & ~self._block.descendants[root]

    def _concurrent(self, ending: int, rest: int) -> float:
        """Time of the groups beside each other; ``rest`` is the ending without its last group."""
        if not self.is_modeled:
            operators = self._block.operators
            groups = self._block.groups(ending)
            return self._problem.stage_ms(tuple(tuple(operators[place] for place in group) for group in groups))
        sums = self._summed(ending, rest)
        if not rest or self._problem.alpha is None:
            return sums.longest
        alpha = self._problem.alpha
        return alpha * sums.total + (1 - alpha) * max(sums.work, sums.longest)

    def _summed(self, ending: int, rest: int) -> _Sums:
        """The sums of an ending, from those of ``rest``, which mostly was asked for."""
        total, work, longest = self._sums.get(rest) or self._summed(rest, self._without_last_group(rest))
        alone = 0.0
        for place in members(ending ^ rest):
            time = self._time[place]
            total, work, alone = total + time, work + self._work[place], alone + time
        sums = self._sums[ending] = _Sums(total, work, max(longest, alone))
        return sums

    def _merged(self, ending: int) -> float | None:
        """Time of the merged operator; None where groups have several operators, or these cannot be merged."""
        groups = self._block.groups(ending)
        if any(len(group) > 1 for group in groups):
            return None
        return self._problem.merge_ms(self._block.operators[place] for (place,) in groups)
