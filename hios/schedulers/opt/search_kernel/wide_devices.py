"""Sets of devices in the search over operators on several devices. The arrays are those of wide_records."""

from __future__ import annotations

from typing import Any

import numpy as np

from hios.schedulers.opt.search_kernel.compiling import compiled
from hios.schedulers.opt.search_kernel.shared_moves import draw, neighbor, reset
from hios.schedulers.opt.search_kernel.wide_records import WideSearch


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
