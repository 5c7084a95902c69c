"""Simulated annealing over lists of stages, compiled by numba. Imported only where it runs: numba is not light.

A candidate is one list of stages, each with a device, in an order in which they can run. A move changes it, the
times from the first changed place on are worked out again, and the move is kept or taken back. All arrays are
allocated once by `hios.schedulers.opt.annealing`; the functions below change them in place. All stand in one file:
what numba keeps on disk of a function is renewed when the file of the function changes, and no other.

Arrays are records (numpy structured types), which numba reaches fastest; what they hold is said below. n operators,
e edges, M devices; times in milliseconds. By convention the functions call them

    operators   (n+1,) OPERATOR
    inputs      (e,) INPUT, by consumer
    outputs     (e,) OUTPUT, by producer
    measured    (k,) MEASURED, ascending keys
    stages      (n+1,) STAGE; a stage is known by its number here and is either in the list or spare
    order       (n+1,) int, the list: the stage at each place
    devices     (M,) DEVICE
    saved       (2,) STAGE, copies of the stage that an operator leaves and of the one it joins
    lists       (SAVED_ORDER + 1, n+1) int, rows CRITICAL to SAVED_ORDER
    state       STATE, a single record
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numba import njit

#: Largest number of operators in a stage of a candidate.
MOST_MEMBERS = 16
#: Largest number of stages that move to another device together.
MOST_TOGETHER = 8

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
#: A value that an operator takes: its producer and t(u,v).
INPUT = np.dtype([("operator", np.int64), ("transfer", np.float64)])
#: A value that an operator makes: its consumer and t(u,v).
OUTPUT = INPUT
#: A measured stage, see `stage_key`.
MEASURED = np.dtype([("key", np.uint64), ("time", np.float64)])
#: A stage: its place in the list, device, operators, t(S), finish, longest path after it to the end of the list; its
#: finish in the candidate of iteration ``changed``; the iteration in which it must be timed again.
STAGE = np.dtype(
    [
        ("position", np.int64),
        ("device", np.int64),
        ("size", np.int64),
        ("duration", np.float64),
        ("finish", np.float64),
        ("after", np.float64),
        ("new_finish", np.float64),
        ("changed", np.int64),
        ("marked", np.int64),
        ("members", np.int64, (MOST_MEMBERS,)),
    ]
)
#: A device while a candidate is timed: when it is free, whether its next stage must be timed, whether every stage
#: up to the last place of the move must.
DEVICE = np.dtype([("free", np.float64), ("dirty", np.bool_), ("forced", np.bool_)])
#: Share of serialisation (negative without contention), random numbers, count of iterations, latency of the
#: candidate and of the best, lengths of the lists, and the move: its kind, the operator and the stages it leaves
#: and joins, its device, the first and the last place that it changes, and how many stages were in the list.
STATE = np.dtype(
    [
        ("alpha", np.float64),
        ("random", np.uint64),
        ("iteration", np.int64),
        ("latency", np.float64),
        ("best", np.float64),
        ("count", np.int64),
        ("spares", np.int64),
        ("criticals", np.int64),
        ("touched", np.int64),
        ("kind", np.int64),
        ("operator", np.int64),
        ("source", np.int64),
        ("target", np.int64),
        ("device", np.int64),
        ("first", np.int64),
        ("last", np.int64),
        ("old_count", np.int64),
    ]
)
#: Rows of ``lists``: operators on a critical path, free numbers of stages, stages that changed their device, the
#: devices they were on, and the list as it was before the move.
CRITICAL, SPARE, TOUCHED, WAS_ON, SAVED_ORDER = range(5)

#: An array or record; the conventions above tell its type.
Array: TypeAlias = Any

# Kinds of moves.
NONE, ALONE, JOIN, CHANGE, TOGETHER, SWAP = range(6)

#: Shares of the kinds in 100 moves, chosen by measurement; the rest relocates an operator into a stage (JOIN).
SHARE_ALONE, SHARE_CHANGE, SHARE_TOGETHER, SHARE_SWAP = 25, 20, 10, 20
#: Share of moves that begin at an operator of a critical path, and of swaps that end before the end of the list.
SHARE_CRITICAL, SHARE_SEGMENT = 60, 60


def compiled(function: Callable[..., Any]) -> Any:
    """Compile without holding the interpreter lock, and keep the result on disk where there is a place for it."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # neither this folder nor a cache folder of the user can be written
        return njit(nogil=True)(function)


@compiled
def draw(state: Array, bound: int) -> int:
    """An integer in 0..bound-1 (xorshift64, Marsaglia 2003)."""
    x = state.random
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state.random = x
    return np.int64((x >> np.uint64(33)) % np.uint64(bound))  # type: ignore[return-value]


@compiled
def number_groups(operators: Array, inputs: Array, stages: Array, stage: int, group: Array) -> None:
    """Number the groups of a stage: operators that depend on each other, directly or through others, share one."""
    size = stages[stage].size
    members = stages[stage].members
    for i in range(size):
        group[i] = i
    for i in range(size):
        for e in range(operators[members[i]].first_input, operators[members[i] + 1].first_input):
            if operators[inputs[e].operator].stage != stage:
                continue
            for j in range(size):
                if members[j] == inputs[e].operator and group[j] != group[i]:
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


@compiled
def stage_key(group: Array, operator: Array, size: int) -> np.uint64:
    """A key of a stage that depends on the order within its groups and not on the order of the groups.

    Args:
        group: group number, below ``size``, of each of ``size`` operators.
        operator: the operators; those of a group in their order.
        size: how many there are.
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
def measured_ms(operators: Array, measured: Array, stages: Array, stage: int, group: Array) -> float:
    """The measured t(S) of a stage, -1 where there is none."""
    size = stages[stage].size
    in_order = np.empty(MOST_MEMBERS, np.int64)
    group_in_order = np.empty(MOST_MEMBERS, np.int64)
    for i in range(size):  # insertion sort by place in topological order
        v = stages[stage].members[i]
        j = i
        while j > 0 and operators[in_order[j - 1]].place > operators[v].place:
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
def set_duration(operators: Array, inputs: Array, measured: Array, stages: Array, stage: int, alpha: float) -> None:
    """Work t(S) of a stage out, as `Problem.stage_ms` has it."""
    size = stages[stage].size
    members = stages[stage].members
    if size == 1:
        stages[stage].duration = operators[members[0]].time
        return
    group = np.empty(MOST_MEMBERS, np.int64)
    number_groups(operators, inputs, stages, stage, group)
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
    if several and measured.shape[0] > 0:
        duration = measured_ms(operators, measured, stages, stage, group)
        if duration >= 0:
            stages[stage].duration = duration
            return
    if not several:
        stages[stage].duration = total
    elif alpha < 0:
        stages[stage].duration = longest
    else:
        stages[stage].duration = alpha * total + (1 - alpha) * max(work, longest)


@compiled
def window(operators: Array, inputs: Array, outputs: Array, stages: Array, operator: int, count: int) -> Any:
    """Places of the last stage before and of the first stage after an operator, and whether its stage ties it.

    Returns:
        (low, high, tied): low is -1 and high ``count`` where there is none. Where the operator depends on others
        of its own stage, that stage bounds it; it is tied if this holds on both sides.
    """
    own = operators[operator].stage
    low, high = -1, count
    before, after = False, False
    for e in range(operators[operator].first_input, operators[operator + 1].first_input):
        stage = operators[inputs[e].operator].stage
        before |= stage == own
        low = max(low, stages[stage].position)
    for e in range(operators[operator].first_output, operators[operator + 1].first_output):
        stage = operators[outputs[e].operator].stage
        after |= stage == own
        high = min(high, stages[stage].position)
    return low, high, before and after


@compiled
def aim(
    operators: Array, inputs: Array, outputs: Array, stages: Array, order: Array, state: Array, operator: int
) -> Any:
    """A random stage between the predecessors and the successors of an operator, or one that holds some of them.

    Returns:
        (low, high, stage): the places of `window`; the stage is -1 where the operator is tied to its own.
    """
    low, high, tied = window(operators, inputs, outputs, stages, operator, state.count)
    if tied:
        return low, high, -1
    start, end = max(low, 0), min(high, state.count - 1)
    return low, high, order[start + draw(state, end - start + 1)]


@compiled
def neighbour(operators: Array, inputs: Array, outputs: Array, operator: int, state: Array) -> int:
    """A random predecessor or successor; the operator itself where it has none."""
    first_input, first_output = operators[operator].first_input, operators[operator].first_output
    before = operators[operator + 1].first_input - first_input
    after = operators[operator + 1].first_output - first_output
    if before + after == 0:
        return operator
    chosen = draw(state, before + after)
    if chosen < before:
        return int(inputs[first_input + chosen].operator)
    return int(outputs[first_output + chosen - before].operator)


@compiled
def other_device(devices: Array, device: int, state: Array) -> int:
    """A random device but this one."""
    number = draw(state, devices.shape[0] - 1)
    return int(number + 1 if number >= device else number)


@compiled
def better_device(
    operators: Array, inputs: Array, outputs: Array, stages: Array, devices: Array, state: Array, operator: int
) -> int:
    """Another device for an operator: every second time, if possible, that of a predecessor or successor."""
    device = stages[operators[operator].stage].device
    beside = stages[operators[neighbour(operators, inputs, outputs, operator, state)].stage].device
    if beside != device and draw(state, 2) == 0:
        return int(beside)
    return int(other_device(devices, device, state))


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
def touch(stages: Array, lists: Array, state: Array, stage: int, device: int) -> None:
    """Put a stage on a device and remember where it was."""
    lists[TOUCHED, state.touched] = stage
    lists[WAS_ON, state.touched] = stages[stage].device
    state.touched += 1
    stages[stage].device = device


@compiled
def save_stage(stages: Array, saved: Array, slot: int, stage: int) -> None:
    """Remember the members of the stage that an operator leaves (slot 0) or joins (slot 1)."""
    saved[slot].size, saved[slot].duration = stages[stage].size, stages[stage].duration
    for i in range(stages[stage].size):
        saved[slot].members[i] = stages[stage].members[i]


@compiled
def shift_up(stages: Array, order: Array, first: int, last: int) -> None:
    """Move the stages of the places first..last one place on."""
    for k in range(last, first - 1, -1):
        order[k + 1] = order[k]
        stages[order[k]].position = k + 1


@compiled
def shift_down(stages: Array, order: Array, first: int, last: int) -> None:
    """Move the stages of the places first..last one place back."""
    for k in range(first, last + 1):
        order[k - 1] = order[k]
        stages[order[k]].position = k - 1


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
def move_alone(
    operators: Array,
    inputs: Array,
    outputs: Array,
    measured: Array,
    stages: Array,
    order: Array,
    devices: Array,
    saved: Array,
    lists: Array,
    state: Array,
    operator: int,
) -> None:
    """An operator becomes a stage of its own beside another stage between its predecessors and successors."""
    state.kind = NONE
    low, high, target = aim(operators, inputs, outputs, stages, order, state, operator)
    source = operators[operator].stage
    single = stages[source].size == 1
    if target < 0 or (target == source and single):
        return
    at = stages[target].position
    after = 1 if at == low else 0 if at == high else draw(state, 2)
    chosen = draw(state, 4)
    device = stages[target].device
    if chosen == 0:
        device = draw(state, devices.shape[0])
    elif chosen == 1:
        device = stages[operators[neighbour(operators, inputs, outputs, operator, state)].stage].device
    here, there = stages[source].position, at + after
    if single:
        there -= 1 if there > here else 0
        if there == here and device == stages[source].device:
            return
        begin(state, ALONE, operator, source, min(here, there), max(here, there))
        save_order(order, lists, state.first, state.last + 1)
        if there > here:
            shift_down(stages, order, here + 1, there)
        else:
            shift_up(stages, order, there, here - 1)
        stage = source
        touch(stages, lists, state, stage, device)
    else:
        begin(state, ALONE, operator, source, min(here, there), max(here + 1, there))
        save_order(order, lists, state.first, state.count)
        leave(stages, saved, operator, source)
        state.spares -= 1
        stage = lists[SPARE, state.spares]
        state.target = stage
        shift_up(stages, order, there, state.count - 1)
        state.count += 1
        stages[stage].device, stages[stage].size = device, 1
        stages[stage].members[0], operators[operator].stage = operator, stage
        stages[stage].duration, stages[stage].finish = operators[operator].time, -1.0
        set_duration(operators, inputs, measured, stages, source, state.alpha)
    order[there], stages[stage].position = stage, there
    state.device = device


@compiled
def move_join(
    operators: Array,
    inputs: Array,
    outputs: Array,
    measured: Array,
    stages: Array,
    order: Array,
    saved: Array,
    lists: Array,
    state: Array,
    operator: int,
) -> None:
    """An operator joins another stage between its predecessors and successors, or one that holds some of them."""
    state.kind = NONE
    _, _, target = aim(operators, inputs, outputs, stages, order, state, operator)
    source = operators[operator].stage
    if target < 0 or target == source or stages[target].size == MOST_MEMBERS:
        return
    here, there = stages[source].position, stages[target].position
    single = stages[source].size == 1
    begin(state, JOIN, operator, source, min(here, there), max(here, there))
    state.target, state.device = target, stages[target].device
    save_order(order, lists, state.first, state.count if single else state.first)
    save_stage(stages, saved, 1, target)
    if single:
        save_stage(stages, saved, 0, source)
        shift_down(stages, order, here + 1, state.count - 1)
        state.count -= 1
    else:
        leave(stages, saved, operator, source)
    stages[target].members[stages[target].size] = operator
    stages[target].size += 1
    operators[operator].stage = target
    set_duration(operators, inputs, measured, stages, target, state.alpha)
    if not single:
        set_duration(operators, inputs, measured, stages, source, state.alpha)


@compiled
def move_change(
    operators: Array,
    inputs: Array,
    outputs: Array,
    stages: Array,
    devices: Array,
    lists: Array,
    state: Array,
    operator: int,
) -> None:
    """A stage goes to another device."""
    stage = operators[operator].stage
    begin(state, CHANGE, operator, stage, stages[stage].position, stages[stage].position)
    state.device = better_device(operators, inputs, outputs, stages, devices, state, operator)
    touch(stages, lists, state, stage, state.device)


@compiled
def move_together(
    operators: Array,
    inputs: Array,
    outputs: Array,
    stages: Array,
    devices: Array,
    lists: Array,
    state: Array,
    operator: int,
) -> None:
    """Stages that are joined by edges and share a device go to another together: alone, each would pay transfers."""
    stage = operators[operator].stage
    device = stages[stage].device
    begin(state, TOGETHER, operator, stage, stages[stage].position, stages[stage].position)
    state.device = better_device(operators, inputs, outputs, stages, devices, state, operator)
    touch(stages, lists, state, stage, state.device)
    wanted = 2 + draw(state, MOST_TOGETHER - 1)
    for _ in range(MOST_TOGETHER):
        other = neighbour(operators, inputs, outputs, operator, state)
        stage = operators[other].stage
        if stages[stage].device == device:
            touch(stages, lists, state, stage, state.device)
            state.first = min(state.first, stages[stage].position)
            state.last = max(state.last, stages[stage].position)
        if stages[stage].device == state.device:
            operator = other
        if state.touched == wanted:
            break


@compiled
def move_swap(
    stages: Array, order: Array, devices: Array, lists: Array, state: Array, operator: int, stage: int
) -> None:
    """Two devices exchange their stages from a place on, to the end of the list or for a stretch of it."""
    first, end, one = stages[stage].position, state.count, stages[stage].device
    other = other_device(devices, one, state)
    if draw(state, 100) < SHARE_SEGMENT:
        end = min(end, first + 1 + draw(state, 3 * devices.shape[0]))
    begin(state, SWAP, operator, stage, first, end - 1)
    state.device = other
    for k in range(first, end):
        if stages[order[k]].device == one:
            touch(stages, lists, state, order[k], other)
        elif stages[order[k]].device == other:
            touch(stages, lists, state, order[k], one)


@compiled
def take_back(operators: Array, stages: Array, order: Array, saved: Array, lists: Array, state: Array) -> None:
    """Undo the move."""
    for number in range(state.touched):
        stages[lists[TOUCHED, number]].device = lists[WAS_ON, number]
    source, target = state.source, state.target
    if target != source:  # an operator changed its stage
        operators[state.operator].stage = source
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
            order[k] = lists[SAVED_ORDER, k]
            stages[order[k]].position = k
    state.count = state.old_count


@compiled
def mark_after(operators: Array, outputs: Array, stages: Array, operator: int, iteration: int) -> None:
    """The stages that take a value from an operator must be timed again."""
    for e in range(operators[operator].first_output, operators[operator + 1].first_output):
        stages[operators[outputs[e].operator].stage].marked = iteration


@compiled
def prepare(
    operators: Array, outputs: Array, stages: Array, order: Array, devices: Array, lists: Array, state: Array
) -> None:
    """When each device is free before the first change, and what the move changed directly."""
    for device in range(devices.shape[0]):
        devices[device].free = 0.0
        devices[device].dirty = devices[device].forced = False
    count, k = 0, state.first - 1
    while k >= 0 and count < devices.shape[0]:
        device = stages[order[k]].device
        if not devices[device].dirty:  # here: not seen yet
            devices[device].dirty = True
            devices[device].free = stages[order[k]].finish
            count += 1
        k -= 1
    for device in range(devices.shape[0]):
        devices[device].dirty = False
    devices[state.device].forced = True
    if state.target != state.source:
        stages[state.source].marked = stages[state.target].marked = state.iteration
        devices[stages[state.source].device].forced = True
        mark_after(operators, outputs, stages, state.operator, state.iteration)
    for number in range(state.touched):
        stage = lists[TOUCHED, number]
        stages[stage].marked = state.iteration
        devices[lists[WAS_ON, number]].forced = True
        for i in range(stages[stage].size):
            mark_after(operators, outputs, stages, stages[stage].members[i], state.iteration)


@compiled
def tail_after(operators: Array, outputs: Array, stages: Array, stage: int) -> float:
    """The longest path after a stage without transfers: what its operators feed inside it has run with it."""
    tail = 0.0
    for i in range(stages[stage].size):
        v = stages[stage].members[i]
        for e in range(operators[v].first_output, operators[v + 1].first_output):
            if operators[outputs[e].operator].stage != stage:
                tail = max(tail, operators[outputs[e].operator].time + operators[outputs[e].operator].tail)
    return tail


@compiled
def ready(operators: Array, inputs: Array, stages: Array, stage: int, free: float, iteration: int) -> Any:
    """Earliest start of a stage whose device is free at a time, and the longest path after its operators."""
    device, tail = stages[stage].device, 0.0
    for i in range(stages[stage].size):
        v = stages[stage].members[i]
        tail = max(tail, operators[v].tail)
        for e in range(operators[v].first_input, operators[v + 1].first_input):
            before = operators[inputs[e].operator].stage
            if before == stage:
                continue
            arrival = stages[before].new_finish if stages[before].changed == iteration else stages[before].finish
            if stages[before].device != device:
                arrival += inputs[e].transfer
            free = max(free, arrival)
    return free, tail


@compiled
def timed(
    operators: Array,
    inputs: Array,
    outputs: Array,
    stages: Array,
    order: Array,
    devices: Array,
    state: Array,
    limit: float,
) -> float:
    """Latency of the changed candidate; infinite as soon as it must exceed ``limit``.

    Only stages are timed whose inputs or whose place on the device changed, and on the devices that the move
    itself changed, all up to the first after its last place. Beyond that place the list is as it was, so the
    longest path after a stage is too: bad moves are found out there at the latest, most of them at once.
    """
    iteration = state.iteration
    for k in range(state.first, state.count):
        stage = order[k]
        device = stages[stage].device
        if not (devices[device].dirty or devices[device].forced) and stages[stage].marked != iteration:
            devices[device].free = stages[stage].finish
            continue
        start, tail = ready(operators, inputs, stages, stage, devices[device].free, iteration)
        finish = start + stages[stage].duration
        if k > state.last:
            devices[device].forced = False
        devices[device].dirty = finish != stages[stage].finish
        if devices[device].dirty:
            if tail > 0 and stages[stage].size > 1 and finish + tail > limit:
                tail = tail_after(operators, outputs, stages, stage)
            if finish + tail > limit or (k > state.last and finish + stages[stage].after > limit):
                return np.inf
            stages[stage].new_finish, stages[stage].changed = finish, iteration
            for i in range(stages[stage].size):
                mark_after(operators, outputs, stages, stages[stage].members[i], iteration)
        devices[device].free = finish
    latency = 0.0
    for device in range(devices.shape[0]):
        latency = max(latency, devices[device].free)
    return latency


@compiled
def set_after(operators: Array, outputs: Array, stages: Array, order: Array, devices: Array, count: int) -> None:
    """Work out the longest path after every stage: through its device, or through what takes its values."""
    for device in range(devices.shape[0]):
        devices[device].free = 0.0  # here: from the start of the next stage on the device to the end
    for k in range(count - 1, -1, -1):
        stage = order[k]
        device = stages[stage].device
        after = devices[device].free
        for i in range(stages[stage].size):
            v = stages[stage].members[i]
            for e in range(operators[v].first_output, operators[v + 1].first_output):
                target = operators[outputs[e].operator].stage
                if target != stage:
                    transfer = outputs[e].transfer if stages[target].device != device else 0.0
                    after = max(after, transfer + stages[target].duration + stages[target].after)
        stages[stage].after = after
        devices[device].free = stages[stage].duration + after


@compiled
def keep(
    operators: Array,
    inputs: Array,
    outputs: Array,
    stages: Array,
    order: Array,
    devices: Array,
    lists: Array,
    state: Array,
    latency: float,
) -> None:
    """Make the changed candidate the current one."""
    for k in range(state.first, state.count):
        if stages[order[k]].changed == state.iteration:
            stages[order[k]].finish = stages[order[k]].new_finish
    if state.count < state.old_count:
        lists[SPARE, state.spares] = state.source
        state.spares += 1
    set_after(operators, outputs, stages, order, devices, state.count)
    state.latency = latency
    trace_critical(operators, inputs, stages, order, lists, state)


@compiled
def trace_critical(operators: Array, inputs: Array, stages: Array, order: Array, lists: Array, state: Array) -> None:
    """Collect the operators of one critical path, from a stage that ends last backwards."""
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
            lists[CRITICAL, state.criticals] = v
            state.criticals += 1
            for e in range(operators[v].first_input, operators[v + 1].first_input):
                before = operators[inputs[e].operator].stage
                arrival = stages[before].finish + (0.0 if stages[before].device == device else inputs[e].transfer)
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
def sort_by_start(operators: Array, inputs: Array, stages: Array, order: Array, devices: Array, count: int) -> None:
    """Bring the list into the order of start times, so that neighbours in the list are neighbours in time."""
    start = np.empty(count)
    for device in range(devices.shape[0]):
        devices[device].free = 0.0  # here: start of the stage before on the device
    for k in range(count):
        stage = order[k]
        # Rounding must not put a stage before one that it waits for: that on its device, those of its inputs.
        start[k] = max(stages[stage].finish - stages[stage].duration, devices[stages[stage].device].free)
        for i in range(stages[stage].size):
            v = stages[stage].members[i]
            for e in range(operators[v].first_input, operators[v + 1].first_input):
                start[k] = max(start[k], start[stages[operators[inputs[e].operator].stage].position])
        devices[stages[stage].device].free = start[k]
    ranked = np.argsort(start, kind="mergesort")  # stable: the list stays an order in which stages can run
    before = order[:count].copy()
    for k in range(count):
        order[k] = before[ranked[k]]
        stages[order[k]].position = k


@compiled
def copy_best(stages: Array, order: Array, best_stages: Array, best_order: Array, count: int) -> None:
    """Remember the list and its stages; the rest of ``best_order`` becomes -1."""
    best_order[:] = -1
    for k in range(count):
        best_order[k] = order[k]
        best_stages[order[k]] = stages[order[k]]


@compiled
def anneal(
    operators: Array,
    inputs: Array,
    outputs: Array,
    measured: Array,
    stages: Array,
    order: Array,
    best_stages: Array,
    best_order: Array,
    devices: Array,
    saved: Array,
    lists: Array,
    states: Array,
    temperature: float,
    moves: int,
) -> None:
    """Try a number of moves at one temperature (Kirkpatrick, Gelatt and Vecchi, Science 1983).

    Whether a move is kept is settled by one random number, drawn first: it is if the latency rises by less than
    -temperature*log(that number). So the timing of a move can stop as soon as that limit is passed.

    Args:
        operators: these and the following as said at the top of this file; ``stages`` and ``order`` are the
            current candidate, ``best_stages`` and ``best_order`` the best so far.
        inputs: ditto.
        outputs: ditto.
        measured: ditto.
        stages: ditto.
        order: ditto.
        best_stages: ditto.
        best_order: ditto.
        devices: ditto.
        saved: ditto.
        lists: ditto.
        states: (1,) STATE.
        temperature: in milliseconds.
        moves: how many.
    """
    state = states[0]
    for _ in range(moves):
        state.iteration += 1
        limit = state.latency - temperature * np.log((draw(state, 1 << 30) + 1) / (1 << 30))
        if state.criticals > 0 and draw(state, 100) < SHARE_CRITICAL:
            operator = lists[CRITICAL, draw(state, state.criticals)]
        else:
            operator = draw(state, operators.shape[0] - 1)
        stage = operators[operator].stage
        chosen = draw(state, 100)
        if devices.shape[0] == 1:  # only the order and the stages are open
            chosen = SHARE_CHANGE + SHARE_TOGETHER + SHARE_SWAP + chosen // 2
        if chosen < SHARE_CHANGE:
            move_change(operators, inputs, outputs, stages, devices, lists, state, operator)
        elif chosen < SHARE_CHANGE + SHARE_TOGETHER:
            move_together(operators, inputs, outputs, stages, devices, lists, state, operator)
        elif chosen < SHARE_CHANGE + SHARE_TOGETHER + SHARE_SWAP:
            move_swap(stages, order, devices, lists, state, operator, stage)
        elif chosen < SHARE_CHANGE + SHARE_TOGETHER + SHARE_SWAP + SHARE_ALONE:
            move_alone(operators, inputs, outputs, measured, stages, order, devices, saved, lists, state, operator)
        else:
            move_join(operators, inputs, outputs, measured, stages, order, saved, lists, state, operator)
        if state.kind == NONE:
            continue
        prepare(operators, outputs, stages, order, devices, lists, state)
        latency = timed(operators, inputs, outputs, stages, order, devices, state, limit)
        if latency > limit:
            take_back(operators, stages, order, saved, lists, state)
            continue
        keep(operators, inputs, outputs, stages, order, devices, lists, state, latency)
        if latency < state.best:
            state.best = latency
            copy_best(stages, order, best_stages, best_order, state.count)
    sort_by_start(operators, inputs, stages, order, devices, state.count)
