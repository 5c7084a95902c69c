"""The search of IOS over one block, compiled: what `hios.schedulers.ios` does where no stage was measured.

The same as the search in Python: the same endings in the same order, and sums in the same order, so that both choose
the same stages (tests check that). Sets of operators are bits of 64-bit integers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hios.problem import Problem
from hios.schedulers.deadline import check_deadline
from hios.schedulers.ios_space import Block
from hios.schedulers.ios_times import ROUNDING
from hios.schedulers.opt.search_kernel.compiling import compiled, kept

_Integers = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

#: Initial capacity for endings.
_ROOM = 1024
#: States between two checks of the time limit.
_AT_ONCE = 256


def best_endings(problem: Problem, block: Block, r: int, s: int, *, single_groups: bool) -> dict[int, int]:
    """The last stage of the best schedule of every state of a block, under the contention model alone.

    Args:
        problem: its costs.
        block: of at most `hios.schedulers.ios_times.MOST_OPERATORS` operators.
        r: largest number of operators in a group.
        s: largest number of groups in a stage.
        single_groups: whether a stage is one group (IOS-Merge).
    """
    states = np.array(block.states(), dtype=np.int64)
    time = np.array([problem.time[operator] for operator in block.operators])
    work = time * np.array([problem.utilization[operator] for operator in block.operators])
    descendants = np.array(block.descendants, dtype=np.int64)
    cost, choice = np.zeros(len(states)), np.zeros(len(states), dtype=np.int64)
    alpha = np.nan if problem.alpha is None else float(problem.alpha)
    most = min(1 if single_groups else s, len(time))
    for first in range(1, len(states), _AT_ONCE):
        check_deadline()
        end = min(first + _AT_ONCE, len(states))
        _search(states, first, end, descendants, time, work, min(r, len(time)), most, alpha, cost, choice)
    return dict(zip(states.tolist(), choice.tolist(), strict=True))


@kept
def _search(
    states: _Integers,
    first: int,
    end: int,
    descendants: _Integers,
    time: _Floats,
    work: _Floats,
    r: int,
    s: int,
    alpha: float,
    cost: _Floats,
    choice: _Integers,
) -> None:
    """Fill cost and choice of the states from ``first`` to before ``end``; those before are filled."""
    sets = np.zeros(_ROOM, dtype=np.int64)
    groups = np.zeros(_ROOM, dtype=np.int64)
    sums = np.zeros((_ROOM, 3))
    for number in range(first, end):
        state = states[number]
        sets, groups, sums, count = _endings(state, descendants, time, work, r, s, sets, groups, sums)
        best = limit = np.inf
        for level in range(1, s + 1):
            for entry in range(1, count):
                if groups[entry] != level:
                    continue
                stage = sums[entry, 2]
                if level > 1 and not np.isnan(alpha):
                    stage = alpha * sums[entry, 0] + (1 - alpha) * max(sums[entry, 1], sums[entry, 2])
                latency = cost[np.searchsorted(states, state ^ sets[entry])] + stage
                if latency < limit:
                    best, choice[number] = latency, sets[entry]
                    limit = best * (1 - ROUNDING)
        cost[number] = best


@compiled
def _endings(
    state: int,
    descendants: _Integers,
    time: _Floats,
    work: _Floats,
    r: int,
    s: int,
    sets: _Integers,
    groups: _Integers,
    sums: _Floats,
) -> tuple[_Integers, _Integers, _Floats, int]:
    """The endings of a state, how many groups each has, and its sums: total, work and longest group.

    They are written into the given arrays, or into longer ones; the first is the empty ending.
    """
    count = 1
    for root in range(len(time)):
        group = descendants[root] & state
        if not state >> root & 1 or _size(group) > r:
            continue
        for entry in range(count):
            if groups[entry] >= s or sets[entry] & group:
                continue
            if count == len(sets):
                sets = np.concatenate((sets, np.zeros_like(sets)))
                groups = np.concatenate((groups, np.zeros_like(groups)))
                sums = np.concatenate((sums, np.zeros_like(sums)))
            sets[count], groups[count] = sets[entry] | group, groups[entry] + 1
            total, busy, alone = sums[entry, 0], sums[entry, 1], 0.0
            for place in range(root, len(time)):
                if group >> place & 1:
                    total, busy, alone = total + time[place], busy + work[place], alone + time[place]
            sums[count, 0], sums[count, 1], sums[count, 2] = total, busy, max(sums[entry, 2], alone)
            count += 1
    return sets, groups, sums, count


@compiled
def _size(group: int) -> int:
    """Number of operators of a group."""
    size = 0
    while group:
        group &= group - 1
        size += 1
    return size
