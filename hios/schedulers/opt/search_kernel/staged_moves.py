"""Changes of a list of stages, and taking them back. The arrays are those of staged_records."""

from __future__ import annotations

from typing import Any

from hios.schedulers.opt.search_kernel.compiling import compiled
from hios.schedulers.opt.search_kernel.shared_moves import (
    MOST_TOGETHER,
    Array,
    draw,
    neighbor,
    other_device,
    shift,
    swap_end,
)
from hios.schedulers.opt.search_kernel.staged_durations import set_duration
from hios.schedulers.opt.search_kernel.staged_records import (
    MOST_MEMBERS,
    SAVED_ORDER,
    SPARE,
    TOUCHED,
    WAS_ON,
    StagedSearch,
)

# Kinds of moves.
NONE, ALONE, JOIN, CHANGE, TOGETHER, SWAP = range(6)


@compiled
def window(search: StagedSearch, operator: int, count: int) -> Any:
    """Places of the last stage before and of the first stage after an operator, and whether its stage ties it.

    Returns:
        (low, high, tied): low is -1 and high ``count`` where there is none. Where the operator depends on others
        of its own stage, that stage bounds it; it is tied if this holds on both sides.
    """
    operators = search.operators
    own = operators[operator].stage
    low, high = -1, count
    before, after = False, False
    for e in range(operators[operator].first_input, operators[operator + 1].first_input):
        stage = operators[search.inputs[e].operator].stage
        before |= stage == own
        low = max(low, search.stages[stage].position)
    for e in range(operators[operator].first_output, operators[operator + 1].first_output):
        stage = operators[search.outputs[e].operator].stage
        after |= stage == own
        high = min(high, search.stages[stage].position)
    return low, high, before and after


@compiled
def aim(search: StagedSearch, operator: int) -> Any:
    """A random stage between the predecessors and the successors of an operator, or one that holds some of them.

    Returns:
        (low, high, stage): the places of `window`; the stage is -1 where the operator is tied to its own.
    """
    state = search.states[0]
    low, high, tied = window(search, operator, state.count)
    if tied:
        return low, high, -1
    start, end = max(low, 0), min(high, state.count - 1)
    return low, high, search.order[start + draw(state, end - start + 1)]


@compiled
def better_device(search: StagedSearch, operator: int) -> int:
    """Another device for an operator: every second time, if possible, that of a predecessor or successor."""
    state = search.states[0]
    device = search.stages[search.operators[operator].stage].device
    beside = search.stages[search.operators[neighbor(search, operator)].stage].device
    if beside != device and draw(state, 2) == 0:
        return int(beside)
    return int(other_device(search.devices, device, state))


@compiled
def begin(state: Array, kind: int, operator: int, stage: int, first: int, last: int) -> None:
    """Say what a move is and which places of the list it changes."""
    state.kind, state.operator = kind, operator
    state.source, state.target = stage, stage
    state.first, state.last = first, last
    state.old_count, state.touched = state.count, 0


@compiled
def save_order(order: Array, lists: Array, first: int, end: int) -> None:
    """Remember the places first..end-1 of the list."""
    for k in range(first, end):
        lists[SAVED_ORDER, k] = order[k]


@compiled
def touch(search: StagedSearch, stage: int, device: int) -> None:
    """Put a stage on a device and remember where it was."""
    state = search.states[0]
    search.lists[TOUCHED, state.touched] = stage
    search.lists[WAS_ON, state.touched] = search.stages[stage].device
    state.touched += 1
    search.stages[stage].device = device


@compiled
def save_stage(stages: Array, saved: Array, slot: int, stage: int) -> None:
    """Remember the members of the stage that an operator leaves (slot 0) or joins (slot 1)."""
    saved[slot].size, saved[slot].duration = stages[stage].size, stages[stage].duration
    for i in range(stages[stage].size):
        saved[slot].members[i] = stages[stage].members[i]


@compiled
def shift_up(stages: Array, order: Array, first: int, last: int) -> None:
    """Move the stages of the places first..last one place on."""
    for k in range(last, first - 1, -1):
        order[k + 1] = order[k]
        stages[order[k]].position = k + 1


@compiled
def shift_down(stages: Array, order: Array, first: int, last: int) -> None:
    """Move the stages of the places first..last one place back."""
    for k in range(first, last + 1):
        order[k - 1] = order[k]
        stages[order[k]].position = k - 1


@compiled
def leave(stages: Array, saved: Array, operator: int, stage: int) -> None:
    """Take an operator out of a stage of several."""
    save_stage(stages, saved, 0, stage)
    size = stages[stage].size - 1
    for i in range(size):
        if stages[stage].members[i] == operator:
            stages[stage].members[i] = stages[stage].members[size]
    stages[stage].size = size


@compiled
def move_alone(search: StagedSearch, operator: int) -> None:
    """An operator becomes a stage of its own beside another stage between its predecessors and successors."""
    operators, stages, order, lists = search.operators, search.stages, search.order, search.lists
    state = search.states[0]
    state.kind = NONE
    low, high, target = aim(search, operator)
    source = operators[operator].stage
    single = stages[source].size == 1
    if target < 0 or (target == source and single):
        return
    at = stages[target].position
    after = 1 if at == low else 0 if at == high else draw(state, 2)
    chosen = draw(state, 4)
    device = stages[target].device
    if chosen == 0:
        device = draw(state, search.devices.shape[0])
    elif chosen == 1:
        device = stages[operators[neighbor(search, operator)].stage].device
    here, there = stages[source].position, at + after
    if single:
        there -= 1 if there > here else 0
        if there == here and device == stages[source].device:
            return
        begin(state, ALONE, operator, source, min(here, there), max(here, there))
        save_order(order, lists, state.first, state.last + 1)
        shift(stages, order, here, there)
        touch(search, source, device)
    else:
        begin(state, ALONE, operator, source, min(here, there), max(here + 1, there))
        save_order(order, lists, state.first, state.count)
        leave(stages, search.saved, operator, source)
        state.spares -= 1
        stage = lists[SPARE, state.spares]
        state.target = stage
        shift_up(stages, order, there, state.count - 1)
        state.count += 1
        stages[stage].device, stages[stage].size = device, 1
        stages[stage].members[0], operators[operator].stage = operator, stage
        stages[stage].duration, stages[stage].finish = operators[operator].time, -1.0
        order[there], stages[stage].position = stage, there
        set_duration(search, source, state.alpha)
    state.device = device


@compiled
def move_join(search: StagedSearch, operator: int) -> None:
    """An operator joins another stage between its predecessors and successors, or one that holds some of them."""
    stages, saved, state = search.stages, search.saved, search.states[0]
    state.kind = NONE
    _, _, target = aim(search, operator)
    source = search.operators[operator].stage
    if target < 0 or target == source or stages[target].size == MOST_MEMBERS:
        return
    here, there = stages[source].position, stages[target].position
    single = stages[source].size == 1
    begin(state, JOIN, operator, source, min(here, there), max(here, there))
    state.target, state.device = target, stages[target].device
    save_order(search.order, search.lists, state.first, state.count if single else state.first)
    save_stage(stages, saved, 1, target)
    if single:
        save_stage(stages, saved, 0, source)
        shift_down(stages, search.order, here + 1, state.count - 1)
        state.count -= 1
    else:
        leave(stages, saved, operator, source)
    stages[target].members[stages[target].size] = operator
    stages[target].size += 1
    search.operators[operator].stage = target
    set_duration(search, target, state.alpha)
    if not single:
        set_duration(search, source, state.alpha)


@compiled
def move_change(search: StagedSearch, operator: int) -> None:
    """A stage goes to another device."""
    state = search.states[0]
    stage = search.operators[operator].stage
    begin(state, CHANGE, operator, stage, search.stages[stage].position, search.stages[stage].position)
    state.device = better_device(search, operator)
    touch(search, stage, state.device)


@compiled
def move_together(search: StagedSearch, operator: int) -> None:
    """Stages that are joined by edges and share a device go to another together: alone, each would pay transfers."""
    stages, state = search.stages, search.states[0]
    stage = search.operators[operator].stage
    device = stages[stage].device
    begin(state, TOGETHER, operator, stage, stages[stage].position, stages[stage].position)
    state.device = better_device(search, operator)
    touch(search, stage, state.device)
    wanted = 2 + draw(state, MOST_TOGETHER - 1)
    for _ in range(MOST_TOGETHER):
        other = neighbor(search, operator)
        stage = search.operators[other].stage
        if stages[stage].device == device:
            touch(search, stage, state.device)
            state.first = min(state.first, stages[stage].position)
            state.last = max(state.last, stages[stage].position)
        if stages[stage].device == state.device:
            operator = other
        if state.touched == wanted:
            break


@compiled
def move_swap(search: StagedSearch, operator: int) -> None:
    """Two devices exchange their stages from a place on, to the end of the list or for a stretch of it."""
    stages, order, state = search.stages, search.order, search.states[0]
    stage = search.operators[operator].stage
    first, one = stages[stage].position, stages[stage].device
    other = other_device(search.devices, one, state)
    end = swap_end(search.devices, state, first, state.count)
    begin(state, SWAP, operator, stage, first, end - 1)
    state.device = other
    for k in range(first, end):
        if stages[order[k]].device == one:
            touch(search, order[k], other)
        elif stages[order[k]].device == other:
            touch(search, order[k], one)


@compiled
def take_back(search: StagedSearch) -> None:
    """Undo the move."""
    stages, saved, lists, state = search.stages, search.saved, search.lists, search.states[0]
    for number in range(state.touched):
        stages[lists[TOUCHED, number]].device = lists[WAS_ON, number]
    source, target = state.source, state.target
    if target != source:  # an operator changed its stage
        search.operators[state.operator].stage = source
        stages[source].size, stages[source].duration = saved[0].size, saved[0].duration
        for i in range(saved[0].size):
            stages[source].members[i] = saved[0].members[i]
        if state.kind == JOIN:
            stages[target].size, stages[target].duration = saved[1].size, saved[1].duration
        else:
            lists[SPARE, state.spares] = target
            state.spares += 1
    if state.kind == ALONE or state.count != state.old_count:
        end = state.last + 1 if state.count == state.old_count else state.old_count
        for k in range(state.first, end):
            search.order[k] = lists[SAVED_ORDER, k]
            stages[search.order[k]].position = k
    state.count = state.old_count
