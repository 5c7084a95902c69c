"""Simulated annealing over lists of stages, compiled.

A candidate is one list of stages, each with a device, in an order in which they can run. A move changes it, the
times from the first changed place on are worked out again, and the move is kept or taken back. All arrays are
allocated once by `hios.schedulers.opt.annealing`; the functions change them in place.

The arrays hold records (numpy structured types), which numba reaches fastest; what they hold is said below.
n operators, e edges, M devices; times in milliseconds. t(S) of a stage is that of `hios.core.problem.Problem.stage_ms`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hios.schedulers.opt.moves import (
    ITEM,
    MOST_TOGETHER,
    SEARCH,
    Array,
    compiled,
    draw,
    highest_latency,
    kept,
    last_free,
    neighbor,
    operator_to_move,
    other_device,
    reset,
    shift,
    swap_end,
)

#: Largest number of operators in a stage of a candidate.
MOST_MEMBERS = 16

#: An operator: t(v), t(v)*u(v), the longest path after it without transfers, its place in topological order, its
#: first edge in ``inputs`` and ``outputs`` (its last is the one before that of the next operator), its stage.
OPERATOR = np.dtype(
    [
        ("time", np.float64),
        ("work", np.float64),
        ("tail", np.float64),
        ("place", np.int64),
        ("first_input", np.int64),
        ("first_output", np.int64),
        ("stage", np.int64),
    ]
)
#: A measured stage, see `stage_key`.
MEASURED = np.dtype([("key", np.uint64), ("time", np.float64)])
#: A stage with its operators.
STAGE = np.dtype([*ITEM, ("size", np.int64), ("members", np.int64, (MOST_MEMBERS,))])
#: Share of serialization (negative without contention), time of a barrier (`Problem.barrier_ms`), how many stages are
#: in the list and how many spare, and the move: its kind, the operator and the stages it leaves and joins, its device,
#: and how many stages were in the list.
STATE = np.dtype(
    [
        *SEARCH,
        ("alpha", np.float64),
        ("barrier", np.float64),
        ("count", np.int64),
        ("spares", np.int64),
        ("kind", np.int64),
        ("operator", np.int64),
        ("source", np.int64),
        ("target", np.int64),
        ("device", np.int64),
        ("old_count", np.int64),
    ]
)
#: Rows of ``lists``: operators on a critical path, free numbers of stages, stages that changed their device, the
#: devices they were on, and the list as it was before the move.
CRITICAL, SPARE, TOUCHED, WAS_ON, SAVED_ORDER = range(5)


class StagedSearch(NamedTuple):
    """The arrays: of the problem, of the current candidate, of the best so far, and of the move."""

    operators: Array  # (n+1,) OPERATOR
    inputs: Array  # (e,) EDGE, by consumer
    outputs: Array  # (e,) EDGE, by producer
    measured: Array  # (k,) MEASURED, ascending keys
    stages: Array  # (n+1,) STAGE; a stage is known by its number here and is either in the list or spare
    order: Array  # (n+1,) int, the list: the stage at each place
    best_stages: Array  # (n+1,) STAGE
    best_order: Array  # (n+1,) int
    devices: Array  # (M,) DEVICE
    saved: Array  # (2,) STAGE, copies of the stage that an operator leaves and of the one it joins
    lists: Array  # (SAVED_ORDER + 1, n+1) int, rows CRITICAL to SAVED_ORDER
    states: Array  # (1,) STATE
    members: Array  # (3, MOST_MEMBERS) int, room while the groups of a stage are worked out
    starts: Array  # (n+1,) float, start of each stage of the list at the end


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
    """Work t(S) of a stage out, as `Problem.stage_ms` has it; by work alone if operators share resources."""
    operators, stages = search.operators, search.stages
    size = stages[stage].size
    members = stages[stage].members
    if size == 1:
        stages[stage].duration = operators[members[0]].time
        return
    group = search.members[0]
    number_groups(search, stage, group)
    several = False
    barriers = 0
    total, work, longest = 0.0, 0.0, 0.0
    for g in range(size):
        length = 0.0
        barriers += group[g] == g  # a group has the number of one of its operators
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
        stages[stage].duration = longest + search.states[0].barrier * (barriers - 1)
    else:
        blend = alpha * total + (1 - alpha) * max(work, longest)
        stages[stage].duration = blend + search.states[0].barrier * (barriers - 1)


@compiled
def mark_after(search: StagedSearch, operator: int) -> None:
    """The stages that take a value from an operator must be timed again."""
    operators = search.operators
    for e in range(operators[operator].first_output, operators[operator + 1].first_output):
        search.stages[operators[search.outputs[e].operator].stage].marked = search.states[0].iteration


@compiled
def prepare(search: StagedSearch) -> None:
    """When each device is free before the first change, and what the move changed directly."""
    stages, devices, state = search.stages, search.devices, search.states[0]
    for device in range(devices.shape[0]):
        devices[device].free = 0.0
        devices[device].dirty = devices[device].forced = False
    count, k = 0, state.first - 1
    while k >= 0 and count < devices.shape[0]:
        device = stages[search.order[k]].device
        if not devices[device].dirty:  # here: not seen yet
            devices[device].dirty = True
            devices[device].free = stages[search.order[k]].finish
            count += 1
        k -= 1
    for device in range(devices.shape[0]):
        devices[device].dirty = False
    devices[state.device].forced = True
    if state.target != state.source:
        stages[state.source].marked = stages[state.target].marked = state.iteration
        devices[stages[state.source].device].forced = True
        mark_after(search, state.operator)
    for number in range(state.touched):
        stage = search.lists[TOUCHED, number]
        stages[stage].marked = state.iteration
        devices[search.lists[WAS_ON, number]].forced = True
        for i in range(stages[stage].size):
            mark_after(search, stages[stage].members[i])


@compiled
def tail_after(search: StagedSearch, stage: int) -> float:
    """The longest path after a stage without transfers: what its operators feed inside it has run with it."""
    operators, outputs = search.operators, search.outputs
    tail = 0.0
    for i in range(search.stages[stage].size):
        v = search.stages[stage].members[i]
        for e in range(operators[v].first_output, operators[v + 1].first_output):
            if operators[outputs[e].operator].stage != stage:
                tail = max(tail, operators[outputs[e].operator].time + operators[outputs[e].operator].tail)
    return tail


@compiled
def ready(search: StagedSearch, stage: int, free: float, iteration: int) -> Any:
    """Earliest start of a stage whose device is free at a time, and the longest path after its operators."""
    operators, stages = search.operators, search.stages
    device, tail = stages[stage].device, 0.0
    for i in range(stages[stage].size):
        v = stages[stage].members[i]
        tail = max(tail, operators[v].tail)
        for e in range(operators[v].first_input, operators[v + 1].first_input):
            before = operators[search.inputs[e].operator].stage
            if before == stage:
                continue
            arrival = stages[before].new_finish if stages[before].changed == iteration else stages[before].finish
            if stages[before].device != device:
                arrival += search.inputs[e].transfer
            free = max(free, arrival)
    return free, tail


@compiled
def timed(search: StagedSearch, limit: float) -> float:
    """Latency of the changed candidate; infinite as soon as it must exceed ``limit``.

    Only stages are timed whose inputs or whose place on the device changed, and on the devices that the move
    itself changed, all up to the first after its last place. Beyond that place the list is as it was, so the
    longest path after a stage is too: bad moves are found out there at the latest, most of them at once.
    """
    stages, devices, state = search.stages, search.devices, search.states[0]
    iteration = state.iteration
    for k in range(state.first, state.count):
        stage = search.order[k]
        device = stages[stage].device
        if not (devices[device].dirty or devices[device].forced) and stages[stage].marked != iteration:
            devices[device].free = stages[stage].finish
            continue
        start, tail = ready(search, stage, devices[device].free, iteration)
        finish = start + stages[stage].duration
        if k > state.last:
            devices[device].forced = False
        devices[device].dirty = finish != stages[stage].finish
        if devices[device].dirty:
            if tail > 0 and stages[stage].size > 1 and finish + tail > limit:
                tail = tail_after(search, stage)
            if finish + tail > limit or (k > state.last and finish + stages[stage].after > limit):
                return np.inf
            stages[stage].new_finish, stages[stage].changed = finish, iteration
            for i in range(stages[stage].size):
                mark_after(search, stages[stage].members[i])
        devices[device].free = finish
    return float(last_free(devices))


@kept
def set_after(search: StagedSearch) -> None:
    """Work out the longest path after every stage: through its device, or through what takes its values."""
    operators, stages, devices = search.operators, search.stages, search.devices
    reset(devices)  # here: from the start of the next stage on the device to the end
    for k in range(search.states[0].count - 1, -1, -1):
        stage = search.order[k]
        device = stages[stage].device
        after = devices[device].free
        for i in range(stages[stage].size):
            v = stages[stage].members[i]
            for e in range(operators[v].first_output, operators[v + 1].first_output):
                target = operators[search.outputs[e].operator].stage
                if target != stage:
                    transfer = search.outputs[e].transfer if stages[target].device != device else 0.0
                    after = max(after, transfer + stages[target].duration + stages[target].after)
        stages[stage].after = after
        devices[device].free = stages[stage].duration + after


# Kinds of moves.
NONE, ALONE, JOIN, CHANGE, TOGETHER, SWAP = range(6)


@compiled
def window(search: StagedSearch, operator: int, count: int) -> Any:
    """Places of the last stage before and of the first stage after an operator, and whether its stage ties it.

    These are -1 and ``count`` where there is none. Where the operator depends on others of its own stage, that stage
    bounds it; it is tied if this holds on both sides.
    """
    operators = search.operators
    own = operators[operator].stage
    low, high = -1, count
    before, after = False, False
    for e in range(operators[operator].first_input, operators[operator + 1].first_input):
        stage = operators[search.inputs[e].operator].stage
        before |= stage == own
        low = max(low, search.stages[stage].position)
    for e in range(operators[operator].first_output, operators[operator + 1].first_output):
        stage = operators[search.outputs[e].operator].stage
        after |= stage == own
        high = min(high, search.stages[stage].position)
    return low, high, before and after


@compiled
def aim(search: StagedSearch, operator: int) -> Any:
    """The places of `window`, and a random stage between them or at them; -1 where the operator is tied to its own."""
    state = search.states[0]
    low, high, tied = window(search, operator, state.count)
    if tied:
        return low, high, -1
    start, end = max(low, 0), min(high, state.count - 1)
    return low, high, search.order[start + draw(state, end - start + 1)]


@compiled
def better_device(search: StagedSearch, operator: int) -> int:
    """Another device for an operator: every second time, if possible, that of a predecessor or successor."""
    state = search.states[0]
    device = search.stages[search.operators[operator].stage].device
    beside = search.stages[search.operators[neighbor(search, operator)].stage].device
    if beside != device and draw(state, 2) == 0:
        return int(beside)
    return int(other_device(search.devices, device, state))


@compiled
def begin(state: Array, kind: int, operator: int, stage: int, first: int, last: int) -> None:
    """Say what a move is and which places of the list it changes."""
    state.kind, state.operator = kind, operator
    state.source, state.target = stage, stage
    state.first, state.last = first, last
    state.old_count, state.touched = state.count, 0


@compiled
def save_order(order: Array, lists: Array, first: int, end: int) -> None:
    """Remember the places first..end-1 of the list."""
    for k in range(first, end):
        lists[SAVED_ORDER, k] = order[k]


@compiled
def touch(search: StagedSearch, stage: int, device: int) -> None:
    """Put a stage on a device and remember where it was."""
    state = search.states[0]
    search.lists[TOUCHED, state.touched] = stage
    search.lists[WAS_ON, state.touched] = search.stages[stage].device
    state.touched += 1
    search.stages[stage].device = device


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
def move_alone(search: StagedSearch, operator: int) -> None:
    """An operator becomes a stage of its own beside another stage between its predecessors and successors."""
    operators, stages, order, lists = search.operators, search.stages, search.order, search.lists
    state = search.states[0]
    state.kind = NONE
    low, high, target = aim(search, operator)
    source = operators[operator].stage
    single = stages[source].size == 1
    if target < 0 or (target == source and single):
        return
    at = stages[target].position
    after = 1 if at == low else 0 if at == high else draw(state, 2)
    chosen = draw(state, 4)
    device = stages[target].device
    if chosen == 0:
        device = draw(state, search.devices.shape[0])
    elif chosen == 1:
        device = stages[operators[neighbor(search, operator)].stage].device
    here, there = stages[source].position, at + after
    if single:
        there -= 1 if there > here else 0
        if there == here and device == stages[source].device:
            return
        begin(state, ALONE, operator, source, min(here, there), max(here, there))
        save_order(order, lists, state.first, state.last + 1)
        shift(stages, order, here, there)
        touch(search, source, device)
    else:
        begin(state, ALONE, operator, source, min(here, there), max(here + 1, there))
        save_order(order, lists, state.first, state.count)
        leave(stages, search.saved, operator, source)
        state.spares -= 1
        stage = lists[SPARE, state.spares]
        state.target = stage
        order[state.count] = stage
        shift(stages, order, state.count, there)
        state.count += 1
        stages[stage].device, stages[stage].size = device, 1
        stages[stage].members[0], operators[operator].stage = operator, stage
        stages[stage].duration, stages[stage].finish = operators[operator].time, -1.0
        set_duration(search, source, state.alpha)
    state.device = device


@compiled
def move_join(search: StagedSearch, operator: int) -> None:
    """An operator joins another stage between its predecessors and successors, or one that holds some of them."""
    stages, saved, state = search.stages, search.saved, search.states[0]
    state.kind = NONE
    _, _, target = aim(search, operator)
    source = search.operators[operator].stage
    if target < 0 or target == source or stages[target].size == MOST_MEMBERS:
        return
    here, there = stages[source].position, stages[target].position
    single = stages[source].size == 1
    begin(state, JOIN, operator, source, min(here, there), max(here, there))
    state.target, state.device = target, stages[target].device
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
    search.operators[operator].stage = target
    set_duration(search, target, state.alpha)
    if not single:
        set_duration(search, source, state.alpha)


@compiled
def move_change(search: StagedSearch, operator: int) -> None:
    """A stage goes to another device."""
    state = search.states[0]
    stage = search.operators[operator].stage
    begin(state, CHANGE, operator, stage, search.stages[stage].position, search.stages[stage].position)
    state.device = better_device(search, operator)
    touch(search, stage, state.device)


@compiled
def move_together(search: StagedSearch, operator: int) -> None:
    """Stages that are joined by edges and share a device go to another together: alone, each would pay transfers."""
    stages, state = search.stages, search.states[0]
    stage = search.operators[operator].stage
    device = stages[stage].device
    begin(state, TOGETHER, operator, stage, stages[stage].position, stages[stage].position)
    state.device = better_device(search, operator)
    touch(search, stage, state.device)
    wanted = 2 + draw(state, MOST_TOGETHER - 1)
    for _ in range(MOST_TOGETHER):
        other = neighbor(search, operator)
        stage = search.operators[other].stage
        if stages[stage].device == device:
            touch(search, stage, state.device)
            state.first = min(state.first, stages[stage].position)
            state.last = max(state.last, stages[stage].position)
        if stages[stage].device == state.device:
            operator = other
        if state.touched == wanted:
            break


@compiled
def move_swap(search: StagedSearch, operator: int) -> None:
    """Two devices exchange their stages from a place on, to the end of the list or for a stretch of it."""
    stages, order, state = search.stages, search.order, search.states[0]
    stage = search.operators[operator].stage
    first, one = stages[stage].position, stages[stage].device
    other = other_device(search.devices, one, state)
    end = swap_end(search.devices, state, first, state.count)
    begin(state, SWAP, operator, stage, first, end - 1)
    state.device = other
    for k in range(first, end):
        if stages[order[k]].device == one:
            touch(search, order[k], other)
        elif stages[order[k]].device == other:
            touch(search, order[k], one)


@compiled
def take_back(search: StagedSearch) -> None:
    """Undo the move."""
    stages, saved, lists, state = search.stages, search.saved, search.lists, search.states[0]
    for number in range(state.touched):
        stages[lists[TOUCHED, number]].device = lists[WAS_ON, number]
    source, target = state.source, state.target
    if target != source:  # an operator changed its stage
        search.operators[state.operator].stage = source
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


@compiled
def keep(search: StagedSearch, latency: float) -> None:
    """Make the changed candidate the current one."""
    stages, order, state = search.stages, search.order, search.states[0]
    for k in range(state.first, state.count):
        if stages[order[k]].changed == state.iteration:
            stages[order[k]].finish = stages[order[k]].new_finish
    if state.count < state.old_count:
        search.lists[SPARE, state.spares] = state.source
        state.spares += 1
    set_after(search)
    state.latency = latency
    trace_critical(search)


@compiled
def trace_critical(search: StagedSearch) -> None:
    """Collect the operators of one critical path, from a stage that ends last backwards."""
    operators, stages, order, state = search.operators, search.stages, search.order, search.states[0]
    state.criticals = 0
    stage = -1
    for k in range(state.count - 1, -1, -1):
        if stages[order[k]].finish >= state.latency:
            stage = order[k]
            break
    while stage >= 0:
        start = stages[stage].finish - stages[stage].duration
        device, binding = stages[stage].device, -1
        for i in range(stages[stage].size):
            v = stages[stage].members[i]
            search.lists[CRITICAL, state.criticals] = v
            state.criticals += 1
            for e in range(operators[v].first_input, operators[v + 1].first_input):
                before = operators[search.inputs[e].operator].stage
                arrival = stages[before].finish + (
                    0.0 if stages[before].device == device else search.inputs[e].transfer
                )
                if before != stage and arrival >= start - 1e-9:
                    binding = before
        if start <= 0:
            break
        if binding < 0:  # it waited for the stage before it on its device
            k = stages[stage].position - 1
            while k >= 0 and stages[order[k]].device != device:
                k -= 1
            binding = order[k] if k >= 0 else -1
        stage = binding


@compiled
def set_starts(search: StagedSearch) -> None:
    """Work out the starts of the stages, none of them before one that it waits for."""
    operators, stages, devices, start = search.operators, search.stages, search.devices, search.starts
    reset(devices)  # here: start of the stage before on the device
    for k in range(search.states[0].count):
        stage = search.order[k]
        # Rounding must not put it before the stage before it on its device, or those of its inputs.
        start[k] = max(stages[stage].finish - stages[stage].duration, devices[stages[stage].device].free)
        for i in range(stages[stage].size):
            v = stages[stage].members[i]
            for e in range(operators[v].first_input, operators[v + 1].first_input):
                start[k] = max(start[k], start[stages[operators[search.inputs[e].operator].stage].position])
        devices[stages[stage].device].free = start[k]


@compiled
def copy_best(search: StagedSearch) -> None:
    """Remember the list and its stages; the rest of ``best_order`` becomes -1."""
    order = search.order
    search.best_order[:] = -1
    for k in range(search.states[0].count):
        search.best_order[k] = order[k]
        search.best_stages[order[k]] = search.stages[order[k]]


@kept
def anneal(search: StagedSearch, temperature: float, moves: int) -> None:
    """Try a number of moves at one temperature, given in milliseconds."""
    state, critical = search.states[0], search.lists[CRITICAL]
    for _ in range(moves):
        state.iteration += 1
        limit = highest_latency(state, temperature)
        operator = operator_to_move(critical, state, search.operators.shape[0] - 1)
        chosen = draw(state, 100)
        if search.devices.shape[0] == 1:  # only the order and the stages are open
            chosen = SHARE_CHANGE + SHARE_TOGETHER + SHARE_SWAP + chosen // 2
        if chosen < SHARE_CHANGE:
            move_change(search, operator)
        elif chosen < SHARE_CHANGE + SHARE_TOGETHER:
            move_together(search, operator)
        elif chosen < SHARE_CHANGE + SHARE_TOGETHER + SHARE_SWAP:
            move_swap(search, operator)
        elif chosen < SHARE_CHANGE + SHARE_TOGETHER + SHARE_SWAP + SHARE_ALONE:
            move_alone(search, operator)
        else:
            move_join(search, operator)
        if state.kind == NONE:
            continue
        prepare(search)
        latency = timed(search, limit)
        if latency > limit:
            take_back(search)
            continue
        keep(search, latency)
        if latency < state.best:
            state.best = latency
            copy_best(search)
    set_starts(search)
