"""Times of a changed list of stages. The arrays are those of staged_records."""

from __future__ import annotations

from typing import Any

import numpy as np

from hios.schedulers.opt.search_kernel.compiling import compiled, kept
from hios.schedulers.opt.search_kernel.shared_moves import last_free, reset
from hios.schedulers.opt.search_kernel.staged_records import TOUCHED, WAS_ON, StagedSearch


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
