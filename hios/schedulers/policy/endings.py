"""The endings of a combined block, counted and found by number (Algorithm 2 of TOP, lines 6 to 11).

An ending is what IOS calls one (`hios.schedulers.ios_space`): at most s groups of at most r operators, each an operator
with all its descendants that are left. Four Inception blocks have 16 million of them, so they are not listed. A block
falls into sub-blocks without edges between them; the endings of all are the products of those of each. They are
numbered in the order of the first sub-block, then of the second, and so on, and within a sub-block by the number of
groups, so that the last ending is one of the largest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from hios.problem import Group, Stage
from hios.schedulers.ios_space import as_set
from hios.schedulers.policy.independent_sets import independent_sets, product

#: Rounds in which operators are distinguished by their neighbors.
_ROUNDS = 8


class SubBlock:
    """Operators that are connected, as bits by their places in ``operators``, with the limits r and s of stages.

    ``operators`` are numbers in topological order; ``predecessors`` has those of each of them, and others do not count.
    """

    def __init__(self, operators: Sequence[int], predecessors: Sequence[Iterable[int]], r: int, s: int) -> None:
        place = {operator: position for position, operator in enumerate(operators)}
        self.operators = tuple(operators)
        self.r, self.s = r, s
        self.predecessors = [as_set(place[u] for u in before if u in place) for before in predecessors]
        self.successors = [0] * len(operators)
        for position, before in enumerate(self.predecessors):
            for predecessor in _members(before):
                self.successors[predecessor] |= 1 << position
        self._states: dict[int, SubBlockState] = {}
        whole = (1 << len(operators)) - 1
        self.start = self.state(whole, as_set(p for p, after in enumerate(self.successors) if not after))

    def state(self, left: int, leaves: int) -> SubBlockState:
        """The state in which some operators are left, ``leaves`` being those without a successor among them."""
        if left not in self._states:
            self._states[left] = SubBlockState(self, left, leaves)
        return self._states[left]


class SubBlockState:
    """What is left of a sub-block; ``counts[k]`` is the number of its endings with k groups, k = 0 included."""

    def __init__(self, block: SubBlock, left: int, leaves: int) -> None:
        self.block, self.left, self.leaves = block, left, leaves
        self._groups = self._small_groups()
        self._choices = independent_sets(self._groups, block.s)
        self.counts = self._choices.counts

    def _small_groups(self) -> list[int]:
        """Every operator with its descendants that are left, where these are at most r.

        All successors of such an operator head such groups themselves, so they are found from the leaves upwards.
        """
        block = self.block
        groups: dict[int, int] = {}
        waiting = list(_members(self.leaves))
        for position in waiting:  # grows
            group = 1 << position
            for successor in _members(block.successors[position] & self.left):
                group |= groups[successor]
            if position in groups or group.bit_count() > block.r:
                continue
            groups[position] = group
            waiting += [
                before
                for before in _members(block.predecessors[position])
                if all(after in groups for after in _members(block.successors[before] & self.left))
            ]
        return [groups[root] for root in sorted(groups, key=lambda root: self._rank(root, groups[root]))]

    def _rank(self, root: int, group: int) -> tuple[int, int, int]:
        """Place of a group among all: last come those that make no other operator wait for their stage, long ones."""
        outside = 0
        for position in _members(group & ~(1 << root)):
            outside |= self.block.predecessors[position]
        return -(outside & self.left & ~group).bit_count(), group.bit_count(), -root

    def ending(self, groups: int, index: int) -> tuple[int, ...]:
        """The ending of ``groups`` groups with a number from 0 to ``counts[groups]`` - 1, as its groups."""
        return tuple(self._groups[place] for place in self._choices.choice(groups, index))

    def after(self, groups: Iterable[int]) -> SubBlockState:
        """What is left when an ending has been taken out."""
        taken = 0
        for group in groups:
            taken |= group
        if not taken:
            return self
        left = self.left & ~taken
        leaves = self.leaves & ~taken
        for position in _members(taken):
            for before in _members(self.block.predecessors[position] & left):
                if not self.block.successors[before] & left:
                    leaves |= 1 << before
        return self.block.state(left, leaves)


class Ending(NamedTuple):
    """A stage, and what is left of the combined block before it."""

    stage: Stage
    left: CombinedState


class CombinedState:
    """What is left of a combined block.

    Attributes:
        count: M, the number of endings.
    """

    def __init__(self, states: tuple[SubBlockState, ...]) -> None:
        self.states = states
        self._most = most = states[0].block.s if states else 0
        ways: list[tuple[int, ...]] = [(1,)]
        for state in reversed(states):
            ways.append(product(state.counts, ways[-1], most))
        #: For every sub-block and number of groups, in how many ways it and those after it have at most that many.
        self._at_most = [_cumulative(counts, most) for counts in reversed(ways)]
        self.count = self._at_most[0][most] - 1

    @property
    def key(self) -> Hashable:
        """Equal for states of one combined block in which the same operators are left."""
        return tuple(state.left for state in self.states)

    @property
    def leaves(self) -> list[int]:
        """Numbers of the operators without a successor that is left."""
        return [state.block.operators[place] for state in self.states for place in _members(state.leaves)]

    def ending(self, index: int) -> Ending:
        """The ending with a number from 0 to ``count`` - 1.

        Raises:
            IndexError: there is none of this number.
        """
        if not 0 <= index < self.count:
            raise IndexError(f"ending {index}: found {self.count} endings")
        number, left = index + 1, self._most  # number 0 is that of no group at all
        stage: list[Group] = []
        states: list[SubBlockState] = []
        for state, at_most in zip(self.states, self._at_most[1:], strict=True):
            for groups, count in enumerate(state.counts[: left + 1]):
                others = at_most[left - groups]
                if number < count * others:
                    break
                number -= count * others
            place, number = divmod(number, others)
            chosen = state.ending(groups, place)
            stage += [tuple(state.block.operators[p] for p in _members(group)) for group in chosen]
            states.append(state.after(chosen))
            left -= groups
        return Ending(tuple(stage), CombinedState(tuple(states)))


def combined(blocks: Iterable[SubBlock]) -> CombinedState:
    """All operators of a combined block, given by its sub-blocks."""
    return CombinedState(tuple(block.start for block in blocks))


def sub_blocks(
    operators: Sequence[int], predecessors: Sequence[Iterable[int]], labels: Sequence[Any], r: int, s: int
) -> list[SubBlock]:
    """The connected parts of some operators of a graph, in an order that does not depend on how they are numbered.

    ``operators`` are in topological order; ``predecessors`` and ``labels`` are those of every operator of the graph;
    labels are sortable values that distinguish operators.
    """
    inside = set(operators)
    before = {v: sorted({u for u in predecessors[v] if u in inside}) for v in operators}
    depth: dict[int, int] = {}
    home: dict[int, int] = {v: v for v in operators}

    def root(operator: int) -> int:
        while home[operator] != operator:
            home[operator] = home[home[operator]]
            operator = home[operator]
        return operator

    for v in operators:
        depth[v] = max((depth[u] + 1 for u in before[v]), default=0)
        for u in before[v]:
            home[root(u)] = root(v)
    color = _colors(operators, before, labels)
    parts: dict[int, list[int]] = {}
    for v in sorted(operators, key=lambda v: (depth[v], color[v])):
        parts.setdefault(root(v), []).append(v)
    ordered = sorted(parts.values(), key=lambda part: [color[v] for v in part])
    return [SubBlock(part, [before[v] for v in part], r, s) for part in ordered]


def _colors(operators: Sequence[int], before: dict[int, list[int]], labels: Sequence[Any]) -> dict[int, int]:
    """Numbers that are equal only for operators that look alike, their neighbors and theirs included."""
    after: dict[int, list[int]] = {v: [] for v in operators}
    for v, predecessors in before.items():
        for u in predecessors:
            after[u].append(v)
    color = _ranks({v: labels[v] for v in operators})
    for _ in range(_ROUNDS):
        classes = len(set(color.values()))
        color = _ranks(
            {v: (color[v], sorted(color[u] for u in before[v]), sorted(color[w] for w in after[v])) for v in operators}
        )
        if len(set(color.values())) == classes:
            break
    return color


def _ranks(values: dict[int, Any]) -> dict[int, int]:
    rank = -1
    ranks: dict[int, int] = {}
    last: Any = None
    for v in sorted(values, key=values.__getitem__):
        if rank < 0 or values[v] != last:
            rank, last = rank + 1, values[v]
        ranks[v] = rank
    return ranks


def _cumulative(counts: Sequence[int], most: int) -> list[int]:
    sums, total = [], 0
    for size in range(most + 1):
        total += counts[size] if size < len(counts) else 0
        sums.append(total)
    return sums


def _members(mask: int) -> list[int]:
    members = []
    while mask:
        low = mask & -mask
        members.append(low.bit_length() - 1)
        mask ^= low
    return members
