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
from hios.schedulers.opt.search_kernel.shared_moves import draw, highest_latency, operator_to_move, reset
from hios.schedulers.opt.search_kernel.wide_devices import holds
from hios.schedulers.opt.search_kernel.wide_moves import move_devices, move_place, move_swap, move_together, take_back
from hios.schedulers.opt.search_kernel.wide_records import WideSearch
from hios.schedulers.opt.search_kernel.wide_updates import prepare, set_after, timed

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
