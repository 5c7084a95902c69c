"""The search of IOS over one block, compiled: what `hios.schedulers.ios` does where no stage was measured.

The same as the search in Python: the same endings in the same order, and sums in the same order, so that both choose
the same stages (tests check that). Sets of operators are bits of 64-bit integers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hios.core.problem import Problem
from hios.core.sums import ROUNDING
from hios.schedulers.deadline import check_deadline
from hios.schedulers.ios_search import SearchedBlock
from hios.schedulers.opt.moves import Array, compiled, kept

#: Initial room for endings of a state.
_ROOM = 1024
#: States between two checks of the time limit.
_AT_ONCE = 256


class _BlockArrays(NamedTuple):
    """A block of n operators with its N states, ascending; times in milliseconds."""

    states: Array  # (N,) int
    cost: Array  # (N,) float, of the best schedule of a state
    choice: Array  # (N,) int, its last stage
    descendants: Array  # (n,) int
    time: Array  # (n,) float
    work: Array  # (n,) float
    r: int
    s: int
    alpha: float  # NaN without contention


class _Endings(NamedTuple):
    """Room for the endings of a state: which operators, how many groups, and sums: total, work and longest group."""

    sets: Array  # (room,) int
    groups: Array  # (room,) int
    sums: Array  # (room, 3) float

    @classmethod
    def room(cls, size: int) -> _Endings:
        """Room for so many; the first is the empty ending."""
        return cls(np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64), np.zeros((size, 3)))


def best_endings(problem: Problem, block: SearchedBlock, r: int, s: int, *, single_groups: bool) -> dict[int, int]:
    """The last stage of the best schedule of every state of a block, under the contention model alone.

    The block has at most `hios.schedulers.ios_search.MOST_OPERATORS` operators; ``single_groups`` is IOS-Merge.
    """
    states = np.array(block.states(), dtype=np.int64)
    time = np.array([problem.time[operator] for operator in block.operators])
    arrays = _BlockArrays(
        states,
        np.zeros(len(states)),
        np.zeros(len(states), dtype=np.int64),
        np.array(block.descendants, dtype=np.int64),
        time,
        time * np.array([problem.utilization[operator] for operator in block.operators]),
        min(r, len(time)),
        min(1 if single_groups else s, len(time)),
        np.nan if problem.alpha is None else float(problem.alpha),
    )
    endings = _Endings.room(_ROOM)
    number = 1
    while number < len(states):
        check_deadline()
        end = min(number + _AT_ONCE, len(states))
        number = _search(arrays, endings, number, end)
        if number < end:
            endings = _Endings.room(2 * len(endings.sets))
    return dict(zip(states.tolist(), arrays.choice.tolist(), strict=True))


@kept
def _search(block: _BlockArrays, endings: _Endings, first: int, end: int) -> int:
    """Fill cost and choice of the states from ``first`` to before ``end``; those before are filled.

    Returns ``end``, or the first state whose endings need more room.
    """
    for number in range(first, end):
        state = block.states[number]
        count = _set_endings(block, endings, state)
        if count < 0:
            return number
        best = limit = np.inf
        for level in range(1, block.s + 1):
            for entry in range(1, count):
                if endings.groups[entry] != level:
                    continue
                total, work, stage = endings.sums[entry, 0], endings.sums[entry, 1], endings.sums[entry, 2]
                if level > 1 and not np.isnan(block.alpha):
                    stage = block.alpha * total + (1 - block.alpha) * max(work, stage)
                latency = block.cost[np.searchsorted(block.states, state ^ endings.sets[entry])] + stage
                if latency < limit:
                    best, block.choice[number] = latency, endings.sets[entry]
                    limit = best * (1 - ROUNDING)
        block.cost[number] = best
    return end


@compiled
def _set_endings(block: _BlockArrays, endings: _Endings, state: int) -> int:
    """Write the endings of a state, and count them with the empty one; -1 if they need more room."""
    sets, groups, sums = endings.sets, endings.groups, endings.sums
    count = 1
    for root in range(len(block.time)):
        group = block.descendants[root] & state
        if not state >> root & 1 or _size(group) > block.r:
            continue
        for entry in range(count):
            if groups[entry] >= block.s or sets[entry] & group:
                continue
            if count == len(sets):
                return -1
            sets[count], groups[count] = sets[entry] | group, groups[entry] + 1
            total, work, alone = sums[entry, 0], sums[entry, 1], 0.0
            for place in range(root, len(block.time)):
                if group >> place & 1:
                    total, work = total + block.time[place], work + block.work[place]
                    alone += block.time[place]
            sums[count, 0], sums[count, 1], sums[count, 2] = total, work, max(sums[entry, 2], alone)
            count += 1
    return count


@compiled
def _size(group: int) -> int:
    """Number of operators of a group."""
    size = 0
    while group:
        group &= group - 1
        size += 1
    return size
