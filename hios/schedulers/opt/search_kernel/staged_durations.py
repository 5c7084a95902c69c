"""t(S) of a stage, as `hios.problem.Problem.stage_ms` has it. The arrays are those of staged_records."""

from __future__ import annotations

import numpy as np

from hios.schedulers.opt.search_kernel.compiling import compiled, kept
from hios.schedulers.opt.search_kernel.shared_moves import Array
from hios.schedulers.opt.search_kernel.staged_records import StagedSearch


@compiled
def number_groups(search: StagedSearch, stage: int, group: Array) -> None:
    """Number the groups of a stage: operators that depend on each other, directly or through others, share one."""
    operators = search.operators
    size = search.stages[stage].size
    members = search.stages[stage].members
    for i in range(size):
        group[i] = i
    for i in range(size):
        for e in range(operators[members[i]].first_input, operators[members[i] + 1].first_input):
            if operators[search.inputs[e].operator].stage != stage:
                continue
            for j in range(size):
                if members[j] == search.inputs[e].operator and group[j] != group[i]:
                    old, new = group[j], group[i]
                    for k in range(size):
                        if group[k] == old:
                            group[k] = new


@compiled
def mixed(value: np.uint64) -> np.uint64:
    """Scatter the bits of a number (the finaliser of splitmix64, Steele, Lea and Flood 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@kept
def stage_key(group: Array, operator: Array, size: int) -> np.uint64:
    """A key of a stage that depends on the order within its groups and not on the order of the groups.

    ``group`` has the group number, below ``size``, of each of ``size`` operators; those of a group are in their order.
    """
    key = np.uint64(0)
    for g in range(size):
        of_group = np.uint64(0)
        for i in range(size):
            if group[i] == g:
                of_group = mixed(of_group + np.uint64(operator[i] + 1))
        if of_group != np.uint64(0):
            key += mixed(of_group)
    return key


@compiled
def measured_ms(search: StagedSearch, stage: int, group: Array) -> float:
    """The measured t(S) of a stage, -1 where there is none."""
    measured = search.measured
    size = search.stages[stage].size
    in_order, group_in_order = search.members[1], search.members[2]
    for i in range(size):  # insertion sort by place in topological order
        v = search.stages[stage].members[i]
        j = i
        while j > 0 and search.operators[in_order[j - 1]].place > search.operators[v].place:
            in_order[j], group_in_order[j] = in_order[j - 1], group_in_order[j - 1]
            j -= 1
        in_order[j], group_in_order[j] = v, group[i]
    key = stage_key(group_in_order, in_order, size)
    low, high = 0, measured.shape[0]
    while low < high:
        middle = (low + high) // 2
        if measured[middle].key < key:
            low = middle + 1
        else:
            high = middle
    if low < measured.shape[0] and measured[low].key == key:
        return float(measured[low].time)
    return -1.0


@compiled
def set_duration(search: StagedSearch, stage: int, alpha: float) -> None:
    """Work t(S) of a stage out, as `Problem.stage_ms` has it."""
    operators, stages = search.operators, search.stages
    size = stages[stage].size
    members = stages[stage].members
    if size == 1:
        stages[stage].duration = operators[members[0]].time
        return
    group = search.members[0]
    number_groups(search, stage, group)
    several = False
    total, work, longest = 0.0, 0.0, 0.0
    for g in range(size):
        length = 0.0
        for i in range(size):
            if group[i] == g:
                length += operators[members[i]].time
                work += operators[members[i]].work
        several |= group[g] != group[0]
        total += length
        longest = max(longest, length)
    if several and search.measured.shape[0] > 0:
        duration = measured_ms(search, stage, group)
        if duration >= 0:
            stages[stage].duration = duration
            return
    if not several:
        stages[stage].duration = total
    elif alpha < 0:
        stages[stage].duration = longest
    else:
        stages[stage].duration = alpha * total + (1 - alpha) * max(work, longest)
