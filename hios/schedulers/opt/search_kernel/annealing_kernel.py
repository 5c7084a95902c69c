"""Simulated annealing over lists of stages.

A candidate is one list of stages, each with a device, in an order in which they can run. A move changes it, the
times from the first changed place on are worked out again, and the move is kept or taken back. All arrays are
allocated once by `hios.schedulers.opt.annealing`; the functions change them in place. They are said in staged_records.
"""

from __future__ import annotations

from hios.schedulers.opt.search_kernel.compiling import compiled, kept
from hios.schedulers.opt.search_kernel.shared_moves import draw, highest_latency, operator_to_move, reset
from hios.schedulers.opt.search_kernel.staged_moves import (
    NONE,
    move_alone,
    move_change,
    move_join,
    move_swap,
    move_together,
    take_back,
)
from hios.schedulers.opt.search_kernel.staged_records import CRITICAL, SPARE, StagedSearch
from hios.schedulers.opt.search_kernel.staged_updates import prepare, set_after, timed

#: Shares of the kinds in 100 moves, chosen by measurement; the rest relocates an operator into a stage (JOIN).
SHARE_ALONE, SHARE_CHANGE, SHARE_TOGETHER, SHARE_SWAP = 25, 20, 10, 20


@compiled
def keep(search: StagedSearch, latency: float) -> None:
    """Make the changed candidate the current one."""
    stages, order, state = search.stages, search.order, search.states[0]
    for k in range(state.first, state.count):
        if stages[order[k]].changed == state.iteration:
            stages[order[k]].finish = stages[order[k]].new_finish
    if state.count < state.old_count:
        search.lists[SPARE, state.spares] = state.source
        state.spares += 1
    set_after(search)
    state.latency = latency
    trace_critical(search)


@compiled
def trace_critical(search: StagedSearch) -> None:
    """Collect the operators of one critical path, from a stage that ends last backwards."""
    operators, stages, order, state = search.operators, search.stages, search.order, search.states[0]
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
            search.lists[CRITICAL, state.criticals] = v
            state.criticals += 1
            for e in range(operators[v].first_input, operators[v + 1].first_input):
                before = operators[search.inputs[e].operator].stage
                arrival = stages[before].finish + (
                    0.0 if stages[before].device == device else search.inputs[e].transfer
                )
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
def set_starts(search: StagedSearch) -> None:
    """Work out the starts of the stages, none of them before one that it waits for."""
    operators, stages, devices, start = search.operators, search.stages, search.devices, search.starts
    reset(devices)  # here: start of the stage before on the device
    for k in range(search.states[0].count):
        stage = search.order[k]
        # Rounding must not put it before the stage before it on its device, or those of its inputs.
        start[k] = max(stages[stage].finish - stages[stage].duration, devices[stages[stage].device].free)
        for i in range(stages[stage].size):
            v = stages[stage].members[i]
            for e in range(operators[v].first_input, operators[v + 1].first_input):
                start[k] = max(start[k], start[stages[operators[search.inputs[e].operator].stage].position])
        devices[stages[stage].device].free = start[k]


@compiled
def copy_best(search: StagedSearch) -> None:
    """Remember the list and its stages; the rest of ``best_order`` becomes -1."""
    order = search.order
    search.best_order[:] = -1
    for k in range(search.states[0].count):
        search.best_order[k] = order[k]
        search.best_stages[order[k]] = search.stages[order[k]]


@kept
def anneal(search: StagedSearch, temperature: float, moves: int) -> None:
    """Try a number of moves at one temperature, given in milliseconds."""
    state, critical = search.states[0], search.lists[CRITICAL]
    for _ in range(moves):
        state.iteration += 1
        limit = highest_latency(state, temperature)
        operator = operator_to_move(critical, state, search.operators.shape[0] - 1)
        chosen = draw(state, 100)
        if search.devices.shape[0] == 1:  # only the order and the stages are open
            chosen = SHARE_CHANGE + SHARE_TOGETHER + SHARE_SWAP + chosen // 2
        if chosen < SHARE_CHANGE:
            move_change(search, operator)
        elif chosen < SHARE_CHANGE + SHARE_TOGETHER:
            move_together(search, operator)
        elif chosen < SHARE_CHANGE + SHARE_TOGETHER + SHARE_SWAP:
            move_swap(search, operator)
        elif chosen < SHARE_CHANGE + SHARE_TOGETHER + SHARE_SWAP + SHARE_ALONE:
            move_alone(search, operator)
        else:
            move_join(search, operator)
        if state.kind == NONE:
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
