"""Simulated annealing over lists of operators that may take several devices at once, compiled by numba.

A candidate is a list of operators in an order in which they can run, each with its devices. A move changes the place
of an operator or the devices of one or several, the times from the first changed place on are worked out again, and
the move is kept or taken back, as in `hios.schedulers.opt.annealing_kernel`; unlike there, stages of several operators
are not searched. All arrays are allocated once by `hios.schedulers.opt.wide_search`; the functions below change them in
place. They are in one file for the reason given there; only `draw` is imported, and a change of it needs one here.

Arrays are records (numpy structured types); n operators, e edges, o options, M devices; times in milliseconds. By
convention the functions call them

    operators   (n+1,) OPERATOR
    inputs      (e,) EDGE, by consumer
    outputs     (e,) EDGE, by producer
    options     (o,) OPTION, by operator
    order       (n,) int, the list
    devices     (M,) DEVICE
    touched     (n,) TOUCHED, the operators whose devices a move changed, as they were
    critical    (n,) int, operators of a critical path
    state       STATE, a single record
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from hios.schedulers.opt.annealing_kernel import compiled, draw

#: Sets of devices are the bits of one number.
MOST_DEVICES = 64
#: Largest number of operators that move to another device together.
MOST_TOGETHER = 8

#: An operator: the longest path after it with the least times, its first edges and its first option (its last is the
#: one before that of the next operator). In the candidate: its place in the list, its option, the device that keeps
#: its value, all its devices, t(v, k), its finish, the longest path after it to the end of the list. While a move is
#: timed: its finish if that changed in iteration ``changed``, and the iteration in which it must be timed again.
OPERATOR = np.dtype(
    [
        ("tail", np.float64),
        ("first_input", np.int64),
        ("first_output", np.int64),
        ("first_option", np.int64),
        ("position", np.int64),
        ("option", np.int64),
        ("device", np.int64),
        ("held", np.uint64),
        ("duration", np.float64),
        ("finish", np.float64),
        ("after", np.float64),
        ("new_finish", np.float64),
        ("changed", np.int64),
        ("marked", np.int64),
    ]
)
#: A value that an operator takes or makes: the operator at its other end, and t(u,v).
EDGE = np.dtype([("operator", np.int64), ("transfer", np.float64)])
#: A number of devices k and t(v, k).
OPTION = np.dtype([("width", np.int64), ("time", np.float64)])
#: A device while a candidate is timed: when it is free, whether its next operator must be timed, whether every
#: operator up to the last place of the move must.
DEVICE = np.dtype([("free", np.float64), ("dirty", np.bool_), ("forced", np.bool_)])
#: An operator that a move gave other devices, and what it had before.
TOUCHED = np.dtype([("operator", np.int64), ("option", np.int64), ("device", np.int64), ("held", np.uint64)])
#: Random numbers, count of iterations, latency of the candidate and of the best, lengths of the lists; the move: the
#: first and the last place that it changes, and the operator whose place it changes, with the place before (or -1).
STATE = np.dtype(
    [
        ("random", np.uint64),
        ("iteration", np.int64),
        ("latency", np.float64),
        ("best", np.float64),
        ("criticals", np.int64),
        ("touched", np.int64),
        ("first", np.int64),
        ("last", np.int64),
        ("moved", np.int64),
        ("was_at", np.int64),
    ]
)

#: An array or record; the conventions above tell its type.
Array: TypeAlias = Any

#: Shares of the kinds in 100 moves, chosen by measurement; the rest changes the place of an operator.
SHARE_DEVICES, SHARE_TOGETHER, SHARE_SWAP = 30, 8, 15
#: Share of the operators that get other devices which also get another number of them.
SHARE_WIDTH = 50
#: Share of moves that begin at an operator of a critical path, and of swaps that end before the end of the list.
SHARE_CRITICAL, SHARE_SEGMENT = 60, 60


@compiled
def holds(held: np.uint64, device: int) -> bool:
    """Whether a set of devices has a device."""
    return bool((held >> np.uint64(device)) & np.uint64(1) != np.uint64(0))


@compiled
def free_before(operators: Array, order: Array, devices: Array, place: int) -> None:
    """When each device is free before a place of the list."""
    count = devices.shape[0]
    seen = np.uint64(0)
    for d in range(count):
        devices[d].free = 0.0
    left, k = count, place - 1
    while k >= 0 and left > 0:
        v = order[k]
        fresh = operators[v].held & ~seen
        if fresh != np.uint64(0):
            for d in range(count):
                if holds(fresh, d):
                    devices[d].free = operators[v].finish
                    left -= 1
            seen |= fresh
        k -= 1


@compiled
def arrival(operators: Array, inputs: Array, operator: int, device: int) -> float:
    """When the inputs of an operator are on a device, in the current candidate."""
    latest = 0.0
    for e in range(operators[operator].first_input, operators[operator + 1].first_input):
        u = inputs[e].operator
        latest = max(latest, operators[u].finish + (0.0 if operators[u].device == device else inputs[e].transfer))
    return latest


@compiled
def first_device(operators: Array, inputs: Array, outputs: Array, devices: Array, state: Array, operator: int) -> int:
    """A device to keep the value of an operator: where it starts first, that of a neighbour, or any."""
    chosen = draw(state, 4)
    if chosen <= 1:
        first_input, first_output = operators[operator].first_input, operators[operator].first_output
        before = operators[operator + 1].first_input - first_input
        after = operators[operator + 1].first_output - first_output
        if before + after > 0:
            number = draw(state, before + after)
            if number < before:
                return int(operators[inputs[first_input + number].operator].device)
            return int(operators[outputs[first_output + number - before].operator].device)
    if chosen == 2:
        best, device = np.inf, 0
        offset = draw(state, devices.shape[0])
        for number in range(devices.shape[0]):
            d = (number + offset) % devices.shape[0]
            start = max(devices[d].free, arrival(operators, inputs, operator, d))
            if start < best:
                best, device = start, d
        return int(device)
    return int(draw(state, devices.shape[0]))


@compiled
def with_others(
    operators: Array, inputs: Array, devices: Array, state: Array, operator: int, first: int, width: int
) -> Any:
    """A set of devices with a first one: the others free last before it starts, else free first; sometimes any."""
    held = np.uint64(1) << np.uint64(first)
    if width == 1:
        return held
    start = max(devices[first].free, arrival(operators, inputs, operator, first))
    random = draw(state, 4) == 0
    for _ in range(width - 1):
        other, other_cost = -1, np.inf
        offset = draw(state, devices.shape[0])
        for number in range(devices.shape[0]):
            d = (number + offset) % devices.shape[0]
            if holds(held, d):
                continue
            free = devices[d].free
            # Waiting for a device counts more than leaving it idle, but both count in its order.
            cost = start - free if free <= start else 1e9 + free
            if random:
                cost = 0.0
            if cost < other_cost:
                other, other_cost = d, cost
        held |= np.uint64(1) << np.uint64(other)
    return held


@compiled
def touch(
    operators: Array,
    options: Array,
    touched: Array,
    state: Array,
    operator: int,
    option: int,
    device: int,
    held: np.uint64,
) -> None:
    """Give an operator other devices and remember those that it had."""
    entry = touched[state.touched]
    entry.operator, entry.option = operator, operators[operator].option
    entry.device, entry.held = operators[operator].device, operators[operator].held
    state.touched += 1
    operators[operator].option, operators[operator].duration = option, options[option].time
    operators[operator].device, operators[operator].held = device, held


@compiled
def begin(state: Array, first: int, last: int) -> None:
    """Say which places of the list a move changes."""
    state.first, state.last = first, last
    state.touched, state.moved = 0, -1


@compiled
def other_option(operators: Array, state: Array, operator: int) -> int:
    """Another number of devices for an operator, sometimes; its own where there is none."""
    own, first = operators[operator].option, operators[operator].first_option
    count = operators[operator + 1].first_option - first
    if count == 1 or draw(state, 100) >= SHARE_WIDTH:
        return int(own)
    option = first + draw(state, count - 1)
    return int(option if option < own else option + 1)


@compiled
def other_devices(
    operators: Array,
    inputs: Array,
    outputs: Array,
    options: Array,
    devices: Array,
    touched: Array,
    state: Array,
    operator: int,
) -> bool:
    """Other devices for an operator, given when they are free; whether they are others."""
    option = other_option(operators, state, operator)
    device = first_device(operators, inputs, outputs, devices, state, operator)
    if option != operators[operator].option and draw(state, 2) == 0:
        device = operators[operator].device
    held = with_others(operators, inputs, devices, state, operator, device, options[option].width)
    own = operators[operator]
    if option == own.option and device == own.device and held == own.held:
        return False
    touch(operators, options, touched, state, operator, option, device, held)
    return True


@compiled
def move_devices(
    operators: Array,
    inputs: Array,
    outputs: Array,
    options: Array,
    order: Array,
    devices: Array,
    touched: Array,
    state: Array,
    operator: int,
) -> bool:
    """An operator takes other devices, or another number of them."""
    place = operators[operator].position
    begin(state, place, place)
    free_before(operators, order, devices, place)
    return bool(other_devices(operators, inputs, outputs, options, devices, touched, state, operator))


@compiled
def shift(operators: Array, order: Array, here: int, there: int) -> None:
    """Move the operator at a place of the list to another."""
    v = order[here]
    step = 1 if there > here else -1
    k = here
    while k != there:
        order[k] = order[k + step]
        operators[order[k]].position = k
        k += step
    order[there] = v
    operators[v].position = there


@compiled
def move_place(
    operators: Array,
    inputs: Array,
    outputs: Array,
    options: Array,
    order: Array,
    devices: Array,
    touched: Array,
    state: Array,
    operator: int,
) -> bool:
    """An operator runs earlier or later: on its devices, on that of the one beside it there, or on others."""
    here = operators[operator].position
    low, high = 0, order.shape[0] - 1
    for e in range(operators[operator].first_input, operators[operator + 1].first_input):
        low = max(low, operators[inputs[e].operator].position + 1)
    for e in range(operators[operator].first_output, operators[operator + 1].first_output):
        high = min(high, operators[outputs[e].operator].position - 1)
    there = low + draw(state, high - low + 1)
    if there == here:
        return False
    beside = order[there]
    begin(state, min(here, there), max(here, there))
    chosen = draw(state, 4)
    if chosen >= 2:
        # From the times before the move, without what is moved over: where it would go on devices that are free then.
        free_before(operators, order, devices, there if there < here else there + 1)
        own = operators[operator]
        if chosen == 2:
            held = with_others(
                operators, inputs, devices, state, operator, operators[beside].device, options[own.option].width
            )
            if held != own.held or operators[beside].device != own.device:
                touch(operators, options, touched, state, operator, own.option, operators[beside].device, held)
        else:
            other_devices(operators, inputs, outputs, options, devices, touched, state, operator)
    state.moved, state.was_at = operator, here
    shift(operators, order, here, there)
    return True


@compiled
def move_together(
    operators: Array,
    inputs: Array,
    outputs: Array,
    options: Array,
    devices: Array,
    touched: Array,
    state: Array,
    operator: int,
) -> bool:
    """Operators that are joined by edges and share a device go to another together: alone, each would pay transfers."""
    one = operators[operator].device
    other = draw(state, devices.shape[0] - 1)
    other += 1 if other >= one else 0
    begin(state, operators[operator].position, operators[operator].position)
    wanted = 2 + draw(state, MOST_TOGETHER - 1)
    v = operator
    for _ in range(MOST_TOGETHER):
        if operators[v].device == one:
            exchange(operators, options, touched, state, v, one, other)
            state.first = min(state.first, operators[v].position)
            state.last = max(state.last, operators[v].position)
        if state.touched == wanted:
            break
        first_input, first_output = operators[v].first_input, operators[v].first_output
        before = operators[v + 1].first_input - first_input
        after = operators[v + 1].first_output - first_output
        if before + after == 0:
            break
        number = draw(state, before + after)
        u = (
            inputs[first_input + number].operator
            if number < before
            else outputs[first_output + number - before].operator
        )
        if operators[u].device == one or operators[u].device == other:
            v = u
    return bool(state.touched > 0)


@compiled
def exchange(
    operators: Array, options: Array, touched: Array, state: Array, operator: int, one: int, other: int
) -> None:
    """Put one device for another in the set of an operator, and the other way around."""
    own = operators[operator]
    has_one, has_other = holds(own.held, one), holds(own.held, other)
    held = own.held
    if has_one != has_other:
        held ^= (np.uint64(1) << np.uint64(one)) | (np.uint64(1) << np.uint64(other))
    device = other if own.device == one else one if own.device == other else own.device
    touch(operators, options, touched, state, operator, own.option, device, held)


@compiled
def move_swap(
    operators: Array, options: Array, order: Array, devices: Array, touched: Array, state: Array, operator: int
) -> bool:
    """Two devices exchange what they run from a place on, to the end of the list or for a stretch of it."""
    first, end, one = operators[operator].position, order.shape[0], operators[operator].device
    other = draw(state, devices.shape[0] - 1)
    other += 1 if other >= one else 0
    if draw(state, 100) < SHARE_SEGMENT:
        end = min(end, first + 1 + draw(state, 3 * devices.shape[0]))
    begin(state, first, end - 1)
    for k in range(first, end):
        v = order[k]
        if holds(operators[v].held, one) or holds(operators[v].held, other):
            exchange(operators, options, touched, state, v, one, other)
    return True


@compiled
def take_back(operators: Array, options: Array, order: Array, touched: Array, state: Array) -> None:
    """Undo the move."""
    for number in range(state.touched - 1, -1, -1):
        entry = touched[number]
        v = entry.operator
        operators[v].option, operators[v].duration = entry.option, options[entry.option].time
        operators[v].device, operators[v].held = entry.device, entry.held
    if state.moved >= 0:
        shift(operators, order, operators[state.moved].position, state.was_at)


@compiled
def mark_after(operators: Array, outputs: Array, operator: int, iteration: int) -> None:
    """The operators that take the value of one must be timed again."""
    for e in range(operators[operator].first_output, operators[operator + 1].first_output):
        operators[outputs[e].operator].marked = iteration


@compiled
def prepare(operators: Array, outputs: Array, order: Array, devices: Array, touched: Array, state: Array) -> None:
    """When each device is free before the first change, and what the move changed directly."""
    free_before(operators, order, devices, state.first)
    forced = np.uint64(0)
    if state.moved >= 0:
        forced |= operators[state.moved].held
        operators[state.moved].marked = state.iteration
    for number in range(state.touched):
        v = touched[number].operator
        forced |= touched[number].held | operators[v].held
        operators[v].marked = state.iteration
        mark_after(operators, outputs, v, state.iteration)
    for d in range(devices.shape[0]):
        devices[d].dirty = False
        devices[d].forced = holds(forced, d)


@compiled
def waits(devices: Array, held: np.uint64, device: int, width: int) -> Any:
    """When the devices of an operator are free, and whether one of them is so at another time than before."""
    if width == 1:
        return devices[device].free, devices[device].dirty or devices[device].forced
    free, again = 0.0, False
    for d in range(devices.shape[0]):
        if holds(held, d):
            free = max(free, devices[d].free)
            again |= devices[d].dirty or devices[d].forced
    return free, again


@compiled
def occupy(devices: Array, held: np.uint64, device: int, width: int, finish: float, dirty: bool, past: bool) -> None:
    """An operator ran on its devices: when they are free, and whether the next ones there must be timed.

    Args:
        devices: as said at the top of this file.
        held: devices of the operator.
        device: the first of them.
        width: how many they are.
        finish: its finish.
        dirty: whether that is another than before.
        past: whether its place is behind the last that the move changed.
    """
    if width == 1:
        devices[device].free, devices[device].dirty = finish, dirty
        if past:
            devices[device].forced = False
        return
    for d in range(devices.shape[0]):
        if holds(held, d):
            devices[d].free, devices[d].dirty = finish, dirty
            if past:
                devices[d].forced = False


@compiled
def arrived(operators: Array, inputs: Array, operator: int, device: int, iteration: int) -> float:
    """When the inputs of an operator are on a device, in the changed candidate."""
    latest = 0.0
    for e in range(operators[operator].first_input, operators[operator + 1].first_input):
        u = inputs[e].operator
        done = operators[u].new_finish if operators[u].changed == iteration else operators[u].finish
        latest = max(latest, done if operators[u].device == device else done + inputs[e].transfer)
    return latest


@compiled
def timed(
    operators: Array,
    inputs: Array,
    outputs: Array,
    options: Array,
    order: Array,
    devices: Array,
    state: Array,
    limit: float,
) -> float:
    """Latency of the changed candidate; infinite as soon as it must exceed ``limit``.

    Only operators are timed whose inputs changed or one of whose devices is free at another time, and those on the
    devices that the move itself changed, up to the first after its last place. Beyond that place the list is as it
    was, so the longest path after an operator is too.
    """
    iteration = state.iteration
    for k in range(state.first, order.shape[0]):
        v = order[k]
        own = operators[v]
        width, held, device = options[own.option].width, own.held, own.device
        free, again = waits(devices, held, device, width)
        if not (again or own.marked == iteration):
            occupy(devices, held, device, width, own.finish, False, False)
            continue
        finish = max(free, arrived(operators, inputs, v, device, iteration)) + own.duration
        dirty, past = finish != own.finish, k > state.last
        occupy(devices, held, device, width, finish, dirty, past)
        if dirty:
            if finish + own.tail > limit or (past and finish + own.after > limit):
                return np.inf
            own.new_finish, own.changed = finish, iteration
            mark_after(operators, outputs, v, iteration)
    latency = 0.0
    for d in range(devices.shape[0]):
        latency = max(latency, devices[d].free)
    return latency


@compiled
def set_after(operators: Array, outputs: Array, order: Array, devices: Array) -> None:
    """Work out the longest path after every operator: through its devices, or through what takes its value."""
    for d in range(devices.shape[0]):
        devices[d].free = 0.0  # here: from the start of the next operator on the device to the end
    for k in range(order.shape[0] - 1, -1, -1):
        v = order[k]
        held, after = operators[v].held, 0.0
        for d in range(devices.shape[0]):
            if holds(held, d):
                after = max(after, devices[d].free)
        for e in range(operators[v].first_output, operators[v + 1].first_output):
            w = outputs[e].operator
            transfer = outputs[e].transfer if operators[w].device != operators[v].device else 0.0
            after = max(after, transfer + operators[w].duration + operators[w].after)
        operators[v].after = after
        for d in range(devices.shape[0]):
            if holds(held, d):
                devices[d].free = operators[v].duration + after


@compiled
def keep(
    operators: Array,
    inputs: Array,
    outputs: Array,
    order: Array,
    devices: Array,
    critical: Array,
    state: Array,
    latency: float,
) -> None:
    """Make the changed candidate the current one."""
    for k in range(state.first, order.shape[0]):
        if operators[order[k]].changed == state.iteration:
            operators[order[k]].finish = operators[order[k]].new_finish
    set_after(operators, outputs, order, devices)
    state.latency = latency
    trace_critical(operators, inputs, order, critical, state)


@compiled
def trace_critical(operators: Array, inputs: Array, order: Array, critical: Array, state: Array) -> None:
    """Collect the operators of one critical path, from one that ends last backwards."""
    state.criticals = 0
    v = -1
    for k in range(order.shape[0] - 1, -1, -1):
        if operators[order[k]].finish >= state.latency:
            v = order[k]
            break
    while v >= 0:
        critical[state.criticals] = v
        state.criticals += 1
        start = operators[v].finish - operators[v].duration
        if start <= 0.0:
            break
        binding = -1
        for e in range(operators[v].first_input, operators[v + 1].first_input):
            u = inputs[e].operator
            came = operators[u].finish + (0.0 if operators[u].device == operators[v].device else inputs[e].transfer)
            if came >= start - 1e-9:
                binding = u
        k = operators[v].position - 1
        while binding < 0 and k >= 0:  # it waited for an operator before it on one of its devices
            u = order[k]
            if operators[u].finish >= start - 1e-9 and operators[u].held & operators[v].held != np.uint64(0):
                binding = u
            k -= 1
        v = binding


@compiled
def sort_by_start(operators: Array, inputs: Array, order: Array, devices: Array) -> None:
    """Bring the list into the order of start times, so that neighbours in the list are neighbours in time."""
    count = order.shape[0]
    start = np.empty(count)
    for d in range(devices.shape[0]):
        devices[d].free = 0.0  # here: start of the operator before on the device
    for k in range(count):
        v = order[k]
        start[k] = operators[v].finish - operators[v].duration
        # Rounding must not put an operator before one that it waits for.
        for d in range(devices.shape[0]):
            if holds(operators[v].held, d):
                start[k] = max(start[k], devices[d].free)
        for e in range(operators[v].first_input, operators[v + 1].first_input):
            start[k] = max(start[k], start[operators[inputs[e].operator].position])
        for d in range(devices.shape[0]):
            if holds(operators[v].held, d):
                devices[d].free = start[k]
    ranked = np.argsort(start, kind="mergesort")  # stable: the list stays an order in which operators can run
    before = order.copy()
    for k in range(count):
        order[k] = before[ranked[k]]
        operators[order[k]].position = k


@compiled
def copy_best(operators: Array, order: Array, best_operators: Array, best_order: Array) -> None:
    """Remember the candidate."""
    for k in range(order.shape[0]):
        best_order[k] = order[k]
        best_operators[k] = operators[k]


@compiled
def anneal_wide(
    operators: Array,
    inputs: Array,
    outputs: Array,
    options: Array,
    order: Array,
    best_operators: Array,
    best_order: Array,
    devices: Array,
    touched: Array,
    critical: Array,
    states: Array,
    temperature: float,
    moves: int,
) -> None:
    """Try a number of moves at one temperature; they are kept as in `hios.schedulers.opt.annealing_kernel.anneal`.

    Args:
        operators: these and the following as said at the top of this file; ``operators`` and ``order`` are the
            current candidate, ``best_operators`` and ``best_order`` the best so far.
        inputs: ditto.
        outputs: ditto.
        options: ditto.
        order: ditto.
        best_operators: ditto.
        best_order: ditto.
        devices: ditto.
        touched: ditto.
        critical: ditto.
        states: (1,) STATE.
        temperature: in milliseconds.
        moves: how many.
    """
    state = states[0]
    for _ in range(moves):
        state.iteration += 1
        limit = state.latency - temperature * np.log((draw(state, 1 << 30) + 1) / (1 << 30))
        if state.criticals > 0 and draw(state, 100) < SHARE_CRITICAL:
            operator = critical[draw(state, state.criticals)]
        else:
            operator = draw(state, order.shape[0])
        chosen = draw(state, 100)
        if devices.shape[0] == 1:  # only the order is open
            chosen = 99
        if chosen < SHARE_DEVICES:
            changed = move_devices(operators, inputs, outputs, options, order, devices, touched, state, operator)
        elif chosen < SHARE_DEVICES + SHARE_TOGETHER:
            changed = move_together(operators, inputs, outputs, options, devices, touched, state, operator)
        elif chosen < SHARE_DEVICES + SHARE_TOGETHER + SHARE_SWAP:
            changed = move_swap(operators, options, order, devices, touched, state, operator)
        else:
            changed = move_place(operators, inputs, outputs, options, order, devices, touched, state, operator)
        if not changed:
            continue
        prepare(operators, outputs, order, devices, touched, state)
        latency = timed(operators, inputs, outputs, options, order, devices, state, limit)
        if latency > limit:
            take_back(operators, options, order, touched, state)
            continue
        keep(operators, inputs, outputs, order, devices, critical, state, latency)
        if latency < state.best:
            state.best = latency
            copy_best(operators, order, best_operators, best_order)
    sort_by_start(operators, inputs, order, devices)
