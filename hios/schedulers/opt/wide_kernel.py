"""Simulated annealing over lists of operators that may take several devices at once, compiled.

A candidate is a list of operators in an order in which they can run, each with its devices. A move changes the place
of an operator or the devices of one or several, the times from the first changed place on are worked out again, and
the move is kept or taken back, as in `staged_kernel`; unlike there, stages of several operators are not searched. All
arrays are allocated once by `hios.schedulers.opt.annealing`; the functions change them in place.

The arrays hold records (numpy structured types); n operators, e edges, o options, M devices; times in milliseconds.
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

#: Sets of devices are the bits of one number.
MOST_DEVICES = 64

#: An operator, whose device is the one that keeps its value: the longest path after it with the least times, its first
#: edges and its first option (its last is the one before that of the next operator); in the candidate: its option and
#: all its devices.
OPERATOR = np.dtype(
    [
        *ITEM,
        ("tail", np.float64),
        ("first_input", np.int64),
        ("first_output", np.int64),
        ("first_option", np.int64),
        ("option", np.int64),
        ("held", np.uint64),
    ]
)
#: A number of devices k and t(v, k).
OPTION = np.dtype([("width", np.int64), ("time", np.float64)])
#: An operator that a move gave other devices, and what it had before.
TOUCHED = np.dtype([("operator", np.int64), ("option", np.int64), ("device", np.int64), ("held", np.uint64)])
#: Also the operator whose place the move changes, with the place before (or -1).
STATE = np.dtype([*SEARCH, ("moved", np.int64), ("was_at", np.int64)])


class WideSearch(NamedTuple):
    """The arrays: of the problem, of the current candidate, of the best so far, and of the move."""

    operators: Array  # (n+1,) OPERATOR
    inputs: Array  # (e,) EDGE, by consumer
    outputs: Array  # (e,) EDGE, by producer
    options: Array  # (o,) OPTION, by operator
    order: Array  # (n,) int, the list
    best_operators: Array  # (n,) OPERATOR
    best_order: Array  # (n,) int
    devices: Array  # (M,) DEVICE
    touched: Array  # (n,) TOUCHED, the operators whose devices a move changed, as they were
    critical: Array  # (n,) int, operators of a critical path
    states: Array  # (1,) STATE
    starts: Array  # (n,) float, start of each operator of the list at the end


@compiled
def holds(held: np.uint64, device: int) -> bool:
    """Whether a set of devices has a device."""
    return bool((held >> np.uint64(device)) & np.uint64(1) != np.uint64(0))


@compiled
def free_before(search: WideSearch, place: int) -> None:
    """When each device is free before a place of the list."""
    devices = search.devices
    count = devices.shape[0]
    seen = np.uint64(0)
    reset(devices)
    left, k = count, place - 1
    while k >= 0 and left > 0:
        v = search.order[k]
        fresh = search.operators[v].held & ~seen
        if fresh != np.uint64(0):
            for d in range(count):
                if holds(fresh, d):
                    devices[d].free = search.operators[v].finish
                    left -= 1
            seen |= fresh
        k -= 1


@compiled
def arrival(search: WideSearch, operator: int, device: int) -> float:
    """When the inputs of an operator are on a device; while a candidate is timed, in that one."""
    operators, iteration, latest = search.operators, search.states[0].iteration, 0.0
    for e in range(operators[operator].first_input, operators[operator + 1].first_input):
        u = search.inputs[e].operator
        done = operators[u].new_finish if operators[u].changed == iteration else operators[u].finish
        latest = max(latest, done if operators[u].device == device else done + search.inputs[e].transfer)
    return latest


@compiled
def first_device(search: WideSearch, operator: int) -> int:
    """A device to keep the value of an operator: where it starts first, that of a neighbor, or any."""
    devices, state = search.devices, search.states[0]
    chosen = draw(state, 4)
    if chosen <= 1:
        beside = neighbor(search, operator)
        if beside != operator:
            return int(search.operators[beside].device)
    if chosen == 2:
        best, device = np.inf, 0
        offset = draw(state, devices.shape[0])
        for number in range(devices.shape[0]):
            d = (number + offset) % devices.shape[0]
            start = max(devices[d].free, arrival(search, operator, d))
            if start < best:
                best, device = start, d
        return int(device)
    return int(draw(state, devices.shape[0]))


@compiled
def with_others(search: WideSearch, operator: int, first: int, width: int) -> Any:
    """A set of devices with a first one: the others free last before it starts, else free first; sometimes any."""
    devices, state = search.devices, search.states[0]
    held = np.uint64(1) << np.uint64(first)
    if width == 1:
        return held
    start = max(devices[first].free, arrival(search, operator, first))
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
def touch(search: WideSearch, operator: int, option: int, device: int, held: np.uint64) -> None:
    """Give an operator other devices and remember those that it had."""
    operators, state = search.operators, search.states[0]
    entry = search.touched[state.touched]
    entry.operator, entry.option = operator, operators[operator].option
    entry.device, entry.held = operators[operator].device, operators[operator].held
    state.touched += 1
    operators[operator].option, operators[operator].duration = option, search.options[option].time
    operators[operator].device, operators[operator].held = device, held


@compiled
def exchange(search: WideSearch, operator: int, one: int, other: int) -> None:
    """Put one device for another in the set of an operator, and the other way around."""
    own = search.operators[operator]
    has_one, has_other = holds(own.held, one), holds(own.held, other)
    held = own.held
    if has_one != has_other:
        held ^= (np.uint64(1) << np.uint64(one)) | (np.uint64(1) << np.uint64(other))
    device = other if own.device == one else one if own.device == other else own.device
    touch(search, operator, own.option, device, held)


@compiled
def mark_after(search: WideSearch, operator: int) -> None:
    """The operators that take the value of one must be timed again."""
    operators = search.operators
    for e in range(operators[operator].first_output, operators[operator + 1].first_output):
        operators[search.outputs[e].operator].marked = search.states[0].iteration


@compiled
def prepare(search: WideSearch) -> None:
    """When each device is free before the first change, and what the move changed directly."""
    operators, devices, state = search.operators, search.devices, search.states[0]
    free_before(search, state.first)
    forced = np.uint64(0)
    if state.moved >= 0:
        forced |= operators[state.moved].held
        operators[state.moved].marked = state.iteration
    for number in range(state.touched):
        v = search.touched[number].operator
        forced |= search.touched[number].held | operators[v].held
        operators[v].marked = state.iteration
        mark_after(search, v)
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

    ``held`` are its ``width`` devices, ``device`` the first of them; ``dirty``: its finish changed;
    ``past``: its place is behind the last that the move changed.
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


@kept
def timed(search: WideSearch, limit: float) -> float:
    """Latency of the changed candidate; infinite as soon as it must exceed ``limit``.

    Only operators are timed whose inputs changed or one of whose devices is free at another time, and those on the
    devices that the move itself changed, up to the first after its last place. Beyond that place the list is as it
    was, so the longest path after an operator is too.
    """
    operators, devices, state = search.operators, search.devices, search.states[0]
    iteration = state.iteration
    for k in range(state.first, search.order.shape[0]):
        v = search.order[k]
        own = operators[v]
        width, held, device = search.options[own.option].width, own.held, own.device
        free, again = waits(devices, held, device, width)
        if not (again or own.marked == iteration):
            occupy(devices, held, device, width, own.finish, False, False)
            continue
        finish = max(free, arrival(search, v, device)) + own.duration
        dirty, past = finish != own.finish, k > state.last
        occupy(devices, held, device, width, finish, dirty, past)
        if dirty:
            if finish + own.tail > limit or (past and finish + own.after > limit):
                return np.inf
            own.new_finish, own.changed = finish, iteration
            mark_after(search, v)
    return float(last_free(devices))


@compiled
def set_after(search: WideSearch) -> None:
    """Work out the longest path after every operator: through its devices, or through what takes its value."""
    operators, devices = search.operators, search.devices
    reset(devices)  # here: from the start of the next operator on the device to the end
    for k in range(search.order.shape[0] - 1, -1, -1):
        v = search.order[k]
        held, after = operators[v].held, 0.0
        for d in range(devices.shape[0]):
            if holds(held, d):
                after = max(after, devices[d].free)
        for e in range(operators[v].first_output, operators[v + 1].first_output):
            w = search.outputs[e].operator
            transfer = search.outputs[e].transfer if operators[w].device != operators[v].device else 0.0
            after = max(after, transfer + operators[w].duration + operators[w].after)
        operators[v].after = after
        for d in range(devices.shape[0]):
            if holds(held, d):
                devices[d].free = operators[v].duration + after


#: Share of the operators in 100 that get other devices which also get another number of them, chosen by measurement.
SHARE_WIDTH = 50


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
def other_devices(search: WideSearch, operator: int) -> bool:
    """Other devices for an operator, given when they are free; whether they are others."""
    operators, state = search.operators, search.states[0]
    option = other_option(operators, state, operator)
    device = first_device(search, operator)
    if option != operators[operator].option and draw(state, 2) == 0:
        device = operators[operator].device
    held = with_others(search, operator, device, search.options[option].width)
    own = operators[operator]
    if option == own.option and device == own.device and held == own.held:
        return False
    touch(search, operator, option, device, held)
    return True


@compiled
def move_devices(search: WideSearch, operator: int) -> bool:
    """An operator takes other devices, or another number of them."""
    state = search.states[0]
    place = search.operators[operator].position
    begin(state, place, place)
    free_before(search, place)
    return bool(other_devices(search, operator))


@compiled
def move_place(search: WideSearch, operator: int) -> bool:
    """An operator runs earlier or later: on its devices, on that of the one beside it there, or on others."""
    operators, order, state = search.operators, search.order, search.states[0]
    here = operators[operator].position
    low, high = 0, order.shape[0] - 1
    for e in range(operators[operator].first_input, operators[operator + 1].first_input):
        low = max(low, operators[search.inputs[e].operator].position + 1)
    for e in range(operators[operator].first_output, operators[operator + 1].first_output):
        high = min(high, operators[search.outputs[e].operator].position - 1)
    there = low + draw(state, high - low + 1)
    if there == here:
        return False
    beside = order[there]
    begin(state, min(here, there), max(here, there))
    chosen = draw(state, 4)
    if chosen >= 2:
        # From the times before the move, without what is moved over: where it would go on devices that are free then.
        free_before(search, there if there < here else there + 1)
        own = operators[operator]
        if chosen == 2:
            held = with_others(search, operator, operators[beside].device, search.options[own.option].width)
            if held != own.held or operators[beside].device != own.device:
                touch(search, operator, own.option, operators[beside].device, held)
        else:
            other_devices(search, operator)
    state.moved, state.was_at = operator, here
    shift(operators, order, here, there)
    return True


@compiled
def move_together(search: WideSearch, operator: int) -> bool:
    """Operators that are joined by edges and share a device go to another together: alone, each would pay transfers."""
    operators, state = search.operators, search.states[0]
    one = operators[operator].device
    other = other_device(search.devices, one, state)
    begin(state, operators[operator].position, operators[operator].position)
    wanted = 2 + draw(state, MOST_TOGETHER - 1)
    v = operator
    for _ in range(MOST_TOGETHER):
        if operators[v].device == one:
            exchange(search, v, one, other)
            state.first = min(state.first, operators[v].position)
            state.last = max(state.last, operators[v].position)
        if state.touched == wanted:
            break
        u = neighbor(search, v)
        if operators[u].device == one or operators[u].device == other:
            v = u
    return bool(state.touched > 0)


@compiled
def move_swap(search: WideSearch, operator: int) -> bool:
    """Two devices exchange what they run from a place on, to the end of the list or for a stretch of it."""
    operators, state = search.operators, search.states[0]
    first, one = operators[operator].position, operators[operator].device
    other = other_device(search.devices, one, state)
    end = swap_end(search.devices, state, first, search.order.shape[0])
    begin(state, first, end - 1)
    for k in range(first, end):
        v = search.order[k]
        if holds(operators[v].held, one) or holds(operators[v].held, other):
            exchange(search, v, one, other)
    return True


@compiled
def take_back(search: WideSearch) -> None:
    """Undo the move."""
    operators, state = search.operators, search.states[0]
    for number in range(state.touched - 1, -1, -1):
        entry = search.touched[number]
        v = entry.operator
        operators[v].option, operators[v].duration = entry.option, search.options[entry.option].time
        operators[v].device, operators[v].held = entry.device, entry.held
    if state.moved >= 0:
        shift(operators, search.order, operators[state.moved].position, state.was_at)


#: Shares of the kinds in 100 moves, chosen by measurement; the rest changes the place of an operator.
SHARE_DEVICES, SHARE_TOGETHER, SHARE_SWAP = 30, 8, 15


@kept
def keep(search: WideSearch, latency: float) -> None:
    """Make the changed candidate the current one."""
    operators, order, state = search.operators, search.order, search.states[0]
    for k in range(state.first, order.shape[0]):
        if operators[order[k]].changed == state.iteration:
            operators[order[k]].finish = operators[order[k]].new_finish
    set_after(search)
    state.latency = latency
    trace_critical(search)


@compiled
def trace_critical(search: WideSearch) -> None:
    """Collect the operators of one critical path, from one that ends last backwards."""
    operators, order, state = search.operators, search.order, search.states[0]
    state.criticals = 0
    v = -1
    for k in range(order.shape[0] - 1, -1, -1):
        if operators[order[k]].finish >= state.latency:
            v = order[k]
            break
    while v >= 0:
        search.critical[state.criticals] = v
        state.criticals += 1
        start = operators[v].finish - operators[v].duration
        if start <= 0.0:
            break
        binding = -1
        for e in range(operators[v].first_input, operators[v + 1].first_input):
            u = search.inputs[e].operator
            came = operators[u].finish + (
                0.0 if operators[u].device == operators[v].device else search.inputs[e].transfer
            )
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
def set_starts(search: WideSearch) -> None:
    """Work out the starts of the operators, none of them before one that it waits for."""
    operators, order, devices, start = search.operators, search.order, search.devices, search.starts
    reset(devices)  # here: start of the operator before on the device
    for k in range(order.shape[0]):
        v = order[k]
        start[k] = operators[v].finish - operators[v].duration
        # Rounding must not put it before the operators before it on its devices, or those of its inputs.
        for d in range(devices.shape[0]):
            if holds(operators[v].held, d):
                start[k] = max(start[k], devices[d].free)
        for e in range(operators[v].first_input, operators[v + 1].first_input):
            start[k] = max(start[k], start[operators[search.inputs[e].operator].position])
        for d in range(devices.shape[0]):
            if holds(operators[v].held, d):
                devices[d].free = start[k]


@compiled
def copy_best(search: WideSearch) -> None:
    """Remember the candidate."""
    for k in range(search.order.shape[0]):
        search.best_order[k] = search.order[k]
        search.best_operators[k] = search.operators[k]


@kept
def anneal_wide(search: WideSearch, temperature: float, moves: int) -> None:
    """Try a number of moves at one temperature, given in milliseconds."""
    state = search.states[0]
    for _ in range(moves):
        state.iteration += 1
        limit = highest_latency(state, temperature)
        operator = operator_to_move(search.critical, state, search.order.shape[0])
        chosen = draw(state, 100)
        if search.devices.shape[0] == 1:  # only the order is open
            chosen = 99
        if chosen < SHARE_DEVICES:
            changed = move_devices(search, operator)
        elif chosen < SHARE_DEVICES + SHARE_TOGETHER:
            changed = move_together(search, operator)
        elif chosen < SHARE_DEVICES + SHARE_TOGETHER + SHARE_SWAP:
            changed = move_swap(search, operator)
        else:
            changed = move_place(search, operator)
        if not changed:
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
