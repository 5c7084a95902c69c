"""Changes of a list of operators on several devices, and taking them back. The arrays are those of wide_records."""

from __future__ import annotations

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
from hios.schedulers.opt.search_kernel.wide_devices import (
    exchange,
    first_device,
    free_before,
    holds,
    touch,
    with_others,
)
from hios.schedulers.opt.search_kernel.wide_records import WideSearch

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
