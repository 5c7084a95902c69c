"""The search space of IOS: states, endings, and how many there are (IOS sections 4.1 to 4.3, table 1).

Sets of operators are integers here: bit i stands for the i-th operator of a block in topological order. ``ios_kernel``
has the same endings, compiled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


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


def members(mask: int) -> list[int]:
    """The positions that are in a set, in ascending order."""
    positions = []
    while mask:
        low = mask & -mask
        positions.append(low.bit_length() - 1)
        mask ^= low
    return positions


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
