"""Times of a changed list of operators on several devices. The arrays are those of wide_records."""

from __future__ import annotations

from typing import Any

import numpy as np

from hios.schedulers.opt.search_kernel.compiling import compiled, kept
from hios.schedulers.opt.search_kernel.shared_moves import Array, last_free, reset
from hios.schedulers.opt.search_kernel.wide_devices import arrival, free_before, holds
from hios.schedulers.opt.search_kernel.wide_records import WideSearch


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
