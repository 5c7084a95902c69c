"""Simulated annealing over lists of stages, compiled.

A move puts an operator into another stage, or stages on other devices; `hios.schedulers.opt.moves` says how lists are
kept and timed. t(S) of a stage is that of `hios.core.problem.Problem.stage_ms`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hios.core.sharing import ROUNDING
from hios.schedulers.opt.moves import (
    MOST_TOGETHER,
    TASK,
    Array,
    Search,
    attempt,
    begin,
    compiled,
    draw,
    highest_latency,
    item_fields,
    kept,
    move_swap,
    neighbor,
    operator_to_move,
    other_device,
    restore,
    set_starts,
    shift,
    touch,
)

#: Largest number of operators in a stage of a candidate.
MOST_MEMBERS = 16

#: An operator: also t(v), t(v)*u(v), its place in topological order, its demand if operators share resources.
OPERATOR = np.dtype([*TASK, ("time", float), ("work", float), ("place", np.int64), ("demand", float, (3,))])
#: A measured stage, see `stage_key`.
MEASURED = np.dtype([("key", np.uint64), ("time", np.float64)])
STAGE = np.dtype(item_fields(MOST_MEMBERS))
#: Rows of ``lists``: free numbers of stages, and the list as it was before the move.
SPARE, SAVED_ORDER = range(2)


@compiled
def number_groups(search: Search, stage: int, group: Array) -> None:
    """Number the groups of a stage: operators that depend on each other, directly or through others, share one."""
    operators = search.operators
    size = search.items[stage].size
    members = search.items[stage].members
    for i in range(size):
        group[i] = i
    for i in range(size):
        for e in range(operators[members[i]].first_input, operators[members[i] + 1].first_input):
            if operators[search.inputs[e].operator].item != stage:
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
def arrange(search: Search, stage: int, group: Array) -> None:
    """Put the operators of a stage, by place in topological order, and their groups into rows 1 and 2 of ``room``."""
    in_order, group_in_order = search.room[1], search.room[2]
    for i in range(search.items[stage].size):  # insertion sort
        v = search.items[stage].members[i]
        j = i
        while j > 0 and search.operators[in_order[j - 1]].place > search.operators[v].place:
            in_order[j], group_in_order[j] = in_order[j - 1], group_in_order[j - 1]
            j -= 1
        in_order[j], group_in_order[j] = v, group[i]


@compiled
def measured_ms(search: Search, stage: int, group: Array) -> float:
    """The measured t(S) of a stage, -1 where there is none."""
    measured = search.measured
    arrange(search, stage, group)
    key = stage_key(search.room[2], search.room[1], search.items[stage].size)
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
def fair_share(asked: Array, count: int) -> float:
    """The most that anyone gets of a resource for which the shares asked for add up to more than 1."""
    level = 1.0 / count
    for _ in range(count):  # each time the level stays, or rises above what somebody asks for
        left, above = 1.0, 0
        for k in range(count):
            above += asked[k] > level
            left -= asked[k] if asked[k] <= level else 0.0
        if above > 0:
            level = left / above
    return level


@compiled
def set_rates(search: Search, count: int) -> None:
    """Work the rates of the operators that run out, in launch order, as `hios.core.sharing.rates` has them."""
    rate, granted, asked = search.progress[0], search.progress[1], search.progress[2]
    free = 1.0
    for k in range(count):
        slots = search.operators[search.room[1, search.room[3, k]]].demand[0]
        granted[k] = rate[k] = min(slots, free) / slots
        free -= min(slots, free)
    for resource in range(1, 3):
        total = 0.0
        for k in range(count):
            asked[k] = granted[k] * search.operators[search.room[1, search.room[3, k]]].demand[resource]
            total += asked[k]
        level = fair_share(asked, count) if total > 1.0 else 1.0
        for k in range(count):
            if asked[k] > level:
                rate[k] = min(rate[k], granted[k] * level / asked[k])


@compiled
def launch(search: Search, group: int, members: Any, now: float, count: int) -> int:
    """Let the first of some members of a stage that is in a group run behind earlier ones; how many run then."""
    running, left, started = search.room[3], search.progress[3], search.progress[4]
    for member in members:
        if search.room[2, member] == group:
            left[member], started[member] = search.operators[search.room[1, member]].time, now
            k = count
            while k > 0 and started[running[k - 1]] == now and running[k - 1] > member:
                running[k] = running[k - 1]
                k -= 1
            running[k] = member
            return count + 1
    return count


@compiled
def shared_ms(search: Search, stage: int, group: Array) -> float:
    """How long the groups of a stage take beside each other, as `hios.core.sharing.together_ms` has it."""
    arrange(search, stage, group)
    size, running = search.items[stage].size, search.room[3]
    rate, left = search.progress[0], search.progress[3]
    count, now = 0, 0.0
    for g in range(size):
        count = launch(search, g, range(size), now, count)
    while count > 0:
        set_rates(search, count)
        ended, step = 0, np.inf
        for k in range(count):
            rest = left[running[k]]
            if rest == 0.0 or (rate[k] > 0.0 and rest < step * rate[k]):
                ended, step = k, 0.0 if rest == 0.0 else rest / rate[k]
        now += step
        for k in range(count):
            i = running[k]
            rest = left[i] - step * rate[k]
            left[i] = rest if rest > ROUNDING * search.operators[search.room[1, i]].time else 0.0
        member = running[ended]
        count -= 1
        for k in range(ended, count):
            running[k] = running[k + 1]
        count = launch(search, search.room[2, member], range(member + 1, size), now, count)
    return now


@compiled
def set_duration(search: Search, stage: int, alpha: float) -> None:
    """Work t(S) of a stage out, as `Problem.stage_ms` has it."""
    operators, stages = search.operators, search.items
    size = stages[stage].size
    members = stages[stage].members
    if size == 1:
        stages[stage].duration = operators[members[0]].time
        return
    group = search.room[0]
    number_groups(search, stage, group)
    number = 0
    total, work, longest = 0.0, 0.0, 0.0
    for g in range(size):
        length = 0.0
        number += group[g] == g  # a group has the number of one of its operators
        for i in range(size):
            if group[i] == g:
                length += operators[members[i]].time
                work += operators[members[i]].work
        total += length
        longest = max(longest, length)
    barriers = search.states[0].barrier * (number - 1)
    if number > 1 and search.measured.shape[0] > 0:
        duration = measured_ms(search, stage, group)
        if duration >= 0:
            stages[stage].duration = duration
            return
    if number == 1:
        stages[stage].duration = total
    elif operators[members[0]].demand[0] > 0:
        stages[stage].duration = shared_ms(search, stage, group) + barriers
    elif alpha < 0:
        stages[stage].duration = longest + barriers
    else:
        stages[stage].duration = alpha * total + (1 - alpha) * max(work, longest) + barriers


#: Kinds of moves: an operator becomes a stage of its own, or joins one; 0: stages go to other devices.
ALONE, JOIN = 1, 2


@compiled
def window(search: Search, operator: int, count: int) -> Any:
    """Places of the last stage before and of the first stage after an operator, and whether its stage ties it.

    These are -1 and ``count`` where there is none. Where the operator depends on others of its own stage, that stage
    bounds it; it is tied if this holds on both sides.
    """
    operators = search.operators
    own = operators[operator].item
    low, high = -1, count
    before, after = False, False
    for e in range(operators[operator].first_input, operators[operator + 1].first_input):
        stage = operators[search.inputs[e].operator].item
        before |= stage == own
        low = max(low, search.items[stage].position)
    for e in range(operators[operator].first_output, operators[operator + 1].first_output):
        stage = operators[search.outputs[e].operator].item
        after |= stage == own
        high = min(high, search.items[stage].position)
    return low, high, before and after


@compiled
def aim(search: Search, operator: int) -> Any:
    """The places of `window`, and a random stage between them or at them; -1 where the operator is tied to its own."""
    state = search.states[0]
    low, high, tied = window(search, operator, state.count)
    if tied:
        return low, high, -1
    start, end = max(low, 0), min(high, state.count - 1)
    return low, high, search.order[start + draw(state, end - start + 1)]


@compiled
def better_device(search: Search, operator: int) -> int:
    """Another device for an operator: every second time, if possible, that of a predecessor or successor."""
    state = search.states[0]
    device = search.items[search.operators[operator].item].device
    beside = search.items[search.operators[neighbor(search, operator)].item].device
    if beside != device and draw(state, 2) == 0:
        return int(beside)
    return int(other_device(search.devices, device, state))


@compiled
def save_order(order: Array, lists: Array, first: int, end: int) -> None:
    """Remember the places first..end-1 of the list."""
    for k in range(first, end):
        lists[SAVED_ORDER, k] = order[k]


@compiled
def put(search: Search, stage: int, device: int) -> None:
    """Put a stage on a device."""
    touch(search, stage, 0, search.items[stage].duration, device, np.uint64(0))


@compiled
def save_stage(stages: Array, saved: Array, slot: int, stage: int) -> None:
    """Remember the members of the stage that an operator leaves (slot 0) or joins (slot 1)."""
    saved[slot].size, saved[slot].duration = stages[stage].size, stages[stage].duration
    for i in range(stages[stage].size):
        saved[slot].members[i] = stages[stage].members[i]


@compiled
def leave(stages: Array, saved: Array, operator: int, stage: int) -> None:
    """Take an operator out of a stage of several."""
    save_stage(stages, saved, 0, stage)
    size = stages[stage].size - 1
    for i in range(size):
        if stages[stage].members[i] == operator:
            stages[stage].members[i] = stages[stage].members[size]
    stages[stage].size = size


@compiled
def move_alone(search: Search, operator: int) -> bool:
    """An operator becomes a stage of its own beside another stage between its predecessors and successors."""
    operators, stages, order, lists = search.operators, search.items, search.order, search.lists
    state = search.states[0]
    low, high, target = aim(search, operator)
    source = operators[operator].item
    single = stages[source].size == 1
    if target < 0 or (target == source and single):
        return False
    at = stages[target].position
    after = 1 if at == low else 0 if at == high else draw(state, 2)
    chosen = draw(state, 4)
    device = stages[target].device
    if chosen == 0:
        device = draw(state, search.devices.shape[0])
    elif chosen == 1:
        device = stages[operators[neighbor(search, operator)].item].device
    here, there = stages[source].position, at + after
    if single:
        there -= 1 if there > here else 0
        if there == here and device == stages[source].device:
            return False
        begin(state, source, min(here, there), max(here, there))
        save_order(order, lists, state.first, state.last + 1)
        shift(stages, order, here, there)
        put(search, source, device)
    else:
        begin(state, source, min(here, there), max(here + 1, there))
        save_order(order, lists, state.first, state.count)
        leave(stages, search.saved, operator, source)
        state.spares -= 1
        stage = lists[SPARE, state.spares]
        state.target = stage
        order[state.count] = stage
        shift(stages, order, state.count, there)
        state.count += 1
        stages[stage].device, stages[stage].size = device, 1
        stages[stage].members[0], operators[operator].item = operator, stage
        stages[stage].duration, stages[stage].finish = operators[operator].time, -1.0
        set_duration(search, source, state.alpha)
    state.kind, state.operator = ALONE, operator
    return True


@compiled
def move_join(search: Search, operator: int) -> bool:
    """An operator joins another stage between its predecessors and successors, or one that holds some of them."""
    stages, saved, state = search.items, search.saved, search.states[0]
    _, _, target = aim(search, operator)
    source = search.operators[operator].item
    if target < 0 or target == source or stages[target].size == MOST_MEMBERS:
        return False
    here, there = stages[source].position, stages[target].position
    single = stages[source].size == 1
    begin(state, source, min(here, there), max(here, there))
    state.kind, state.operator, state.target = JOIN, operator, target
    save_order(search.order, search.lists, state.first, state.count if single else state.first)
    save_stage(stages, saved, 1, target)
    if single:
        save_stage(stages, saved, 0, source)
        state.count -= 1
        shift(stages, search.order, here, state.count)
    else:
        leave(stages, saved, operator, source)
    stages[target].members[stages[target].size] = operator
    stages[target].size += 1
    search.operators[operator].item = target
    set_duration(search, target, state.alpha)
    if not single:
        set_duration(search, source, state.alpha)
    return True


@compiled
def move_change(search: Search, operator: int) -> None:
    """A stage goes to another device."""
    stage = search.operators[operator].item
    begin(search.states[0], stage, search.items[stage].position, search.items[stage].position)
    put(search, stage, better_device(search, operator))


@compiled
def move_together(search: Search, operator: int) -> None:
    """Stages that are joined by edges and share a device go to another together: alone, each would pay transfers."""
    stages, state = search.items, search.states[0]
    stage = search.operators[operator].item
    device = stages[stage].device
    begin(state, stage, stages[stage].position, stages[stage].position)
    chosen = better_device(search, operator)
    put(search, stage, chosen)
    wanted = 2 + draw(state, MOST_TOGETHER - 1)
    for _ in range(MOST_TOGETHER):
        other = neighbor(search, operator)
        stage = search.operators[other].item
        if stages[stage].device == device:
            put(search, stage, chosen)
            state.first = min(state.first, stages[stage].position)
            state.last = max(state.last, stages[stage].position)
        if stages[stage].device == chosen:
            operator = other
        if state.touched == wanted:
            break


@compiled
def take_back(search: Search) -> None:
    """Undo the move."""
    stages, saved, lists, state = search.items, search.saved, search.lists, search.states[0]
    restore(search)
    source, target = state.source, state.target
    if target != source:  # an operator changed its stage
        search.operators[state.operator].item = source
        stages[source].size, stages[source].duration = saved[0].size, saved[0].duration
        for i in range(saved[0].size):
            stages[source].members[i] = saved[0].members[i]
        if state.kind == JOIN:
            stages[target].size, stages[target].duration = saved[1].size, saved[1].duration
        else:
            lists[SPARE, state.spares] = target
            state.spares += 1
    if state.kind == ALONE or state.count != state.old_count:
        end = state.last + 1 if state.count == state.old_count else state.old_count
        for k in range(state.first, end):
            search.order[k] = lists[SAVED_ORDER, k]
            stages[search.order[k]].position = k
    state.count = state.old_count


#: Shares of the kinds in 100 moves, chosen by measurement; the rest relocates an operator into a stage (JOIN).
SHARE_ALONE, SHARE_CHANGE, SHARE_TOGETHER, SHARE_SWAP = 25, 20, 10, 20


@kept
def anneal(search: Search, temperature: float, moves: int) -> None:
    """Try a number of moves at one temperature, given in milliseconds."""
    state = search.states[0]
    for _ in range(moves):
        state.iteration += 1
        limit = highest_latency(state, temperature)
        operator = operator_to_move(search.critical, state, search.operators.shape[0] - 1)
        chosen = draw(state, 100)
        if search.devices.shape[0] == 1:  # only the order and the stages are open
            chosen = SHARE_CHANGE + SHARE_TOGETHER + SHARE_SWAP + chosen // 2
        changed = True
        if chosen < SHARE_CHANGE:
            move_change(search, operator)
        elif chosen < SHARE_CHANGE + SHARE_TOGETHER:
            move_together(search, operator)
        elif chosen < SHARE_CHANGE + SHARE_TOGETHER + SHARE_SWAP:
            move_swap(search, operator)
        elif chosen < SHARE_CHANGE + SHARE_TOGETHER + SHARE_SWAP + SHARE_ALONE:
            changed = move_alone(search, operator)
        else:
            changed = move_join(search, operator)
        if changed and not attempt(search, limit):
            take_back(search)
        elif changed and state.count < state.old_count:
            search.lists[SPARE, state.spares] = state.source
            state.spares += 1
    set_starts(search)
