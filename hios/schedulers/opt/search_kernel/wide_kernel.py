"""Simulated annealing over lists of operators that may take several devices at once.

A candidate is a list of operators in an order in which they can run, each with its devices. A move changes the place
of an operator or the devices of one or several, the times from the first changed place on are worked out again, and
the move is kept or taken back, as in annealing_kernel; unlike there, stages of several operators are not searched. All
arrays are allocated once by `hios.schedulers.opt.wide_search`; the functions change them in place. They are said in
wide_records.
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
from hios.schedulers.opt.search_kernel.wide_devices import holds
from hios.schedulers.opt.search_kernel.wide_moves import move_devices, move_place, move_swap, move_together, take_back
from hios.schedulers.opt.search_kernel.wide_updates import prepare, set_after, timed

#: Shares of the kinds in 100 moves, chosen by measurement; the rest changes the place of an operator.
SHARE_DEVICES, SHARE_TOGETHER, SHARE_SWAP = 30, 8, 15


@kept
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
    """Bring the list into the order of start times, so that neighbors in the list are neighbors in time."""
    count = order.shape[0]
    start = np.empty(count)
    reset(devices)  # here: start of the operator before on the device
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
    sort_list(operators, order, start)


@compiled
def copy_best(operators: Array, order: Array, best_operators: Array, best_order: Array) -> None:
    """Remember the candidate."""
    for k in range(order.shape[0]):
        best_order[k] = order[k]
        best_operators[k] = operators[k]


@kept
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
    """Try a number of moves at one temperature.

    Args:
        operators: these and the following as said in wide_records; ``operators`` and ``order`` are the
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
        limit = highest_latency(state, temperature)
        operator = operator_to_move(critical, state, order.shape[0])
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
