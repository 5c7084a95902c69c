"""Simulated annealing over lists of stages.

A candidate is one list of stages, each with a device, in an order in which they can run. A move changes it, the
times from the first changed place on are worked out again, and the move is kept or taken back. All arrays are
allocated once by `hios.schedulers.opt.annealing`; the functions change them in place. They are said in staged_records.
"""

from __future__ import annotations

import numpy as np

from hios.schedulers.opt.search_kernel.compiling import compiled, kept
from hios.schedulers.opt.search_kernel.shared_moves import (
    Array,
    draw,
    highest_latency,
    operator_to_move,
    reset,
    sort_list,
)
from hios.schedulers.opt.search_kernel.staged_moves import (
    NONE,
    move_alone,
    move_change,
    move_join,
    move_swap,
    move_together,
    take_back,
)
from hios.schedulers.opt.search_kernel.staged_records import CRITICAL, SPARE
from hios.schedulers.opt.search_kernel.staged_updates import prepare, set_after, timed

#: Shares of the kinds in 100 moves, chosen by measurement; the rest relocates an operator into a stage (JOIN).
SHARE_ALONE, SHARE_CHANGE, SHARE_TOGETHER, SHARE_SWAP = 25, 20, 10, 20


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
    """Bring the list into the order of start times, so that neighbors in the list are neighbors in time."""
    start = np.empty(count)
    reset(devices)  # here: start of the stage before on the device
    for k in range(count):
        stage = order[k]
        # Rounding must not put a stage before one that it waits for: that on its device, those of its inputs.
        start[k] = max(stages[stage].finish - stages[stage].duration, devices[stages[stage].device].free)
        for i in range(stages[stage].size):
            v = stages[stage].members[i]
            for e in range(operators[v].first_input, operators[v + 1].first_input):
                start[k] = max(start[k], start[stages[operators[inputs[e].operator].stage].position])
        devices[stages[stage].device].free = start[k]
    sort_list(stages, order, start)


@compiled
def copy_best(stages: Array, order: Array, best_stages: Array, best_order: Array, count: int) -> None:
    """Remember the list and its stages; the rest of ``best_order`` becomes -1."""
    best_order[:] = -1
    for k in range(count):
        best_order[k] = order[k]
        best_stages[order[k]] = stages[order[k]]


@kept
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
    """Try a number of moves at one temperature.

    Args:
        operators: these and the following as said in staged_records; ``stages`` and ``order`` are the
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
    state, critical = states[0], lists[CRITICAL]
    for _ in range(moves):
        state.iteration += 1
        limit = highest_latency(state, temperature)
        operator = operator_to_move(critical, state, operators.shape[0] - 1)
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
