"""Simulated annealing over lists of operators that may take several devices at once, compiled.

A move changes the place of an operator or the devices of one or several; `hios.schedulers.opt.moves` says how lists are
kept and timed. Unlike in `staged_kernel`, every item is one operator, with the operator's number: ``operators`` and
``items`` are one array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hios.schedulers.opt.moves import (
    MOST_TOGETHER,
    TASK,
    Array,
    Search,
    arrival,
    attempt,
    begin,
    compiled,
    draw,
    exchange,
    free_before,
    highest_latency,
    holds,
    item_fields,
    kept,
    move_swap,
    neighbor,
    only,
    operator_to_move,
    other_device,
    restore,
    set_starts,
    shift,
    touch,
)

#: An operator, whose tail is one with the least times: also t(v) and its first option (its last is the one before that
#: of the next operator).
OPERATOR = np.dtype([*TASK, *item_fields(1), ("time", np.float64), ("first_option", np.int64)])
#: A number of devices k and t(v, k).
OPTION = np.dtype([("width", np.int64), ("time", np.float64)])


@compiled
def first_device(search: Search, operator: int) -> int:
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
            start = max(devices[d].free, arrival(search, operator, operator, d))
            if start < best:
                best, device = start, d
        return int(device)
    return int(draw(state, devices.shape[0]))


@compiled
def with_others(search: Search, operator: int, first: int, width: int) -> Any:
    """A set of devices with a first one: the others free last before it starts, else free first; sometimes any."""
    devices, state = search.devices, search.states[0]
    held = only(first)
    if width == 1:
        return held
    start = max(devices[first].free, arrival(search, operator, operator, first))
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
        held |= only(other)
    return held


#: Share of the operators in 100 that get other devices which also get another number of them, chosen by measurement.
SHARE_WIDTH = 50


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
def other_devices(search: Search, operator: int) -> bool:
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
    touch(search, operator, option, search.options[option].time, device, held)
    return True


@compiled
def move_devices(search: Search, operator: int) -> bool:
    """An operator takes other devices, or another number of them."""
    state = search.states[0]
    place = search.operators[operator].position
    begin(state, operator, place, place)
    free_before(search, place)
    return bool(other_devices(search, operator))


@compiled
def move_place(search: Search, operator: int) -> bool:
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
    begin(state, operator, min(here, there), max(here, there))
    chosen = draw(state, 4)
    if chosen >= 2:
        # From the times before the move, without what is moved over: where it would go on devices that are free then.
        free_before(search, there if there < here else there + 1)
        own = operators[operator]
        if chosen == 2:
            held = with_others(search, operator, operators[beside].device, search.options[own.option].width)
            if held != own.held or operators[beside].device != own.device:
                touch(search, operator, own.option, own.duration, operators[beside].device, held)
        else:
            other_devices(search, operator)
    state.moved, state.was_at = operator, here
    shift(operators, order, here, there)
    return True


@compiled
def move_together(search: Search, operator: int) -> bool:
    """Operators that are joined by edges and share a device go to another together: alone, each would pay transfers."""
    operators, state = search.operators, search.states[0]
    one = operators[operator].device
    other = other_device(search.devices, one, state)
    begin(state, operator, operators[operator].position, operators[operator].position)
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
def take_back(search: Search) -> None:
    """Undo the move."""
    state = search.states[0]
    restore(search)
    if state.moved >= 0:
        shift(search.operators, search.order, search.operators[state.moved].position, state.was_at)


#: Shares of the kinds in 100 moves, chosen by measurement; the rest changes the place of an operator.
SHARE_DEVICES, SHARE_TOGETHER, SHARE_SWAP = 30, 8, 15


@kept
def anneal_wide(search: Search, temperature: float, moves: int) -> None:
    """Try a number of moves at one temperature, given in milliseconds."""
    state = search.states[0]
    for _ in range(moves):
        state.iteration += 1
        limit = highest_latency(state, temperature)
        operator = operator_to_move(search.critical, state, search.order.shape[0])
        chosen = draw(state, 100)
        if search.devices.shape[0] == 1:  # only the order is open
            chosen = 99
        changed = True
        if chosen < SHARE_DEVICES:
            changed = move_devices(search, operator)
        elif chosen < SHARE_DEVICES + SHARE_TOGETHER:
            changed = move_together(search, operator)
        elif chosen < SHARE_DEVICES + SHARE_TOGETHER + SHARE_SWAP:
            move_swap(search, operator)
        else:
            changed = move_place(search, operator)
        if changed and not attempt(search, limit):
            take_back(search)
    set_starts(search)
