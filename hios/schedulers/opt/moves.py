"""What the compiled searches over stages and over operators on several devices have in common.

A candidate is a list of items, stages or operators, each with its devices, in an order in which they can run. A move
changes it, the times from the first changed place on are worked out again, and the move is kept or taken back. All
arrays are allocated once by `hios.schedulers.opt.annealing`; the functions change them in place.

The arrays hold records (numpy structured types), which numba reaches fastest; what they hold is said below. n
operators, e edges, M devices; times in milliseconds. Imported only where the search runs: numba is not light.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit


def _sources() -> str:
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(f"{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


#: A field without contents, named after the sources of this folder. What numba keeps on disk of a function is compiled
#: anew when the file of the function changes, or the types of its arguments, but not when another file does whose
#: functions it calls. So a function that is kept and calls those of other files takes a record with this field.
SOURCES = (f"sources_{_sources()}", np.bool_)


_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False}


def compiled(function: Callable[..., Any]) -> Any:
    """Compile without holding the interpreter lock; for functions that compiled ones call.

    They make no arrays, so references are not counted (``_nrt``): arrays in a tuple would be at every use, which would
    take a quarter of the time.
    """
    return njit(**_OPTIONS)(function)


def kept(function: Callable[..., Any]) -> Any:
    """Compile likewise, and keep the result on disk where there is a place for it; for functions that Python calls.

    It calls compiled functions of its own file only, or takes a record with the field ``SOURCES``.
    """
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # neither this folder nor a cache folder of the user can be written
        return compiled(function)


#: An array or record; the conventions tell its type.
Array: TypeAlias = Any

#: A value that an operator takes or makes: the operator at its other end, and t(u,v).
EDGE = np.dtype([("operator", np.int64), ("transfer", np.float64)])
#: A device while a candidate is timed: when it is free, whether what it runs next must be timed, whether everything
#: up to the last place of the move must.
DEVICE = np.dtype([("free", np.float64), ("dirty", np.bool_), ("forced", np.bool_), SOURCES])

#: Sets of devices are the bits of one number; 0 where every item takes one.
MOST_DEVICES = 64

#: Fields of an operator: the longest path after it without transfers, its first edge in ``inputs`` and ``outputs`` (its
#: last is the one before that of the next operator), its item.
TASK = [("tail", np.float64), ("first_input", np.int64), ("first_output", np.int64), ("item", np.int64)]


def item_fields(most: int) -> list[Any]:
    """Fields of an item of at most so many operators.

    Its place in the list, all its devices and the one that keeps its values, its option, duration, finish, longest path
    after it to the end of the list. While a move is timed: its finish if that changed in iteration ``changed``, and the
    iteration in which it must be timed again. Then its operators.
    """
    return [
        ("position", np.int64),
        ("held", np.uint64),
        ("device", np.int64),
        ("option", np.int64),
        ("duration", np.float64),
        ("finish", np.float64),
        ("after", np.float64),
        ("new_finish", np.float64),
        ("changed", np.int64),
        ("marked", np.int64),
        ("size", np.int64),
        ("members", np.int64, (most,)),
    ]


#: An item that a move gave other devices, and what it had before.
TOUCHED = np.dtype(
    [("item", np.int64), ("option", np.int64), ("duration", np.float64), ("device", np.int64), ("held", np.uint64)]
)
#: Random numbers, count of iterations, latency of the candidate and of the best, how many items are in the list, how
#: many operators of a critical path and how many changed devices are listed. Of the move: the first and the last place
#: that it changes, how many items were in the list, an item whose place it changes, with the place before (or -1), and
#: an operator that leaves an item and joins another; items are equal where none does. Over stages also: the kind of the
#: move, how many stages are spare, share of serialization (negative without contention), time of a barrier
#: (`Problem.barrier_ms`).
STATE = np.dtype(
    [
        ("random", np.uint64),
        ("iteration", np.int64),
        ("latency", np.float64),
        ("best", np.float64),
        ("count", np.int64),
        ("criticals", np.int64),
        ("touched", np.int64),
        ("first", np.int64),
        ("last", np.int64),
        ("old_count", np.int64),
        ("moved", np.int64),
        ("was_at", np.int64),
        ("operator", np.int64),
        ("source", np.int64),
        ("target", np.int64),
        ("kind", np.int64),
        ("spares", np.int64),
        ("alpha", np.float64),
        ("barrier", np.float64),
    ]
)


class Search(NamedTuple):
    """The arrays: of the problem, of the current candidate, of the best so far, and of the move."""

    operators: Array  # (n+1,) TASK and more
    inputs: Array  # (e,) EDGE, by consumer
    outputs: Array  # (e,) EDGE, by producer
    items: Array  # `item_fields`; an item is known by its number here and is either in the list or spare
    order: Array  # int, the list: the item at each place
    best_items: Array  # as ``items``
    best_order: Array  # int
    devices: Array  # (M,) DEVICE
    touched: Array  # (n,) TOUCHED, the items whose devices a move changed, as they were
    critical: Array  # (n,) int, operators of a critical path
    states: Array  # (1,) STATE
    starts: Array  # float, start of each item of the list at the end
    options: Array = None  # over operators: (o,) OPTION, by operator
    measured: Array = None  # over stages: (k,) MEASURED, ascending keys
    saved: Array = None  # over stages: (2,) STAGE, copies of the stage that an operator leaves and of the one it joins
    lists: Array = None  # over stages: (SAVED_ORDER + 1, n+1) int
    room: Array = None  # over stages: (4, MOST_MEMBERS) int, while the groups of a stage are worked out
    progress: Array = None  # over stages: (5, MOST_MEMBERS) float, while operators share resources


#: Largest number of stages or operators that move to another device together.
MOST_TOGETHER = 8
#: Share of moves in 100 that begin at an operator of a critical path, and of swaps that end before the end of the list.
SHARE_CRITICAL, SHARE_SEGMENT = 60, 60


@compiled
def draw(state: Array, bound: int) -> int:
    """An integer in 0..bound-1 (xorshift64, Marsaglia 2003)."""
    x = state.random
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state.random = x
    return np.int64((x >> np.uint64(33)) % np.uint64(bound))  # type: ignore[return-value]


@compiled
def highest_latency(state: Array, temperature: float) -> float:
    """The latency above which a move is taken back (Kirkpatrick, Gelatt and Vecchi, Science 1983).

    One random number settles whether a move is kept, before it is made: it is if the latency rises by less than
    -temperature*log(that number). So the timing of a move can stop as soon as that limit is passed.
    """
    return float(state.latency - temperature * np.log((draw(state, 1 << 30) + 1) / (1 << 30)))


@compiled
def operator_to_move(critical: Array, state: Array, count: int) -> int:
    """Where a move begins: often at an operator of the critical path, else at any of ``count``."""
    if state.criticals > 0 and draw(state, 100) < SHARE_CRITICAL:
        return int(critical[draw(state, state.criticals)])
    return int(draw(state, count))


@compiled
def neighbor(search: Any, operator: int) -> int:
    """A random predecessor or successor; the operator itself where it has none."""
    operators, state = search.operators, search.states[0]
    first_input, first_output = operators[operator].first_input, operators[operator].first_output
    before = operators[operator + 1].first_input - first_input
    after = operators[operator + 1].first_output - first_output
    if before + after == 0:
        return operator
    chosen = draw(state, before + after)
    if chosen < before:
        return int(search.inputs[first_input + chosen].operator)
    return int(search.outputs[first_output + chosen - before].operator)


@compiled
def other_device(devices: Array, device: int, state: Array) -> int:
    """A random device but this one."""
    number = draw(state, devices.shape[0] - 1)
    return int(number + 1 if number >= device else number)


@compiled
def swap_end(devices: Array, state: Array, first: int, count: int) -> int:
    """The place before which a swap from a place on ends: the end of a list of ``count``, or after a stretch of it."""
    if draw(state, 100) < SHARE_SEGMENT:
        return int(min(count, first + 1 + draw(state, 3 * devices.shape[0])))
    return count


@compiled
def shift(items: Array, order: Array, here: int, there: int) -> None:
    """Move what is at a place of the list to another."""
    item = order[here]
    step = 1 if there > here else -1
    k = here
    while k != there:
        order[k] = order[k + step]
        items[order[k]].position = k
        k += step
    order[there] = item
    items[item].position = there


@compiled
def reset(devices: Array) -> None:
    """All devices are free from the beginning."""
    for device in range(devices.shape[0]):
        devices[device].free = 0.0


@compiled
def last_free(devices: Array) -> float:
    """When the last device becomes free."""
    latest = 0.0
    for device in range(devices.shape[0]):
        latest = max(latest, devices[device].free)
    return latest


@compiled
def only(device: int) -> np.uint64:
    """The set of one device."""
    return np.uint64(1) << np.uint64(device)


@compiled
def holds(held: np.uint64, device: int) -> bool:
    """Whether a set of devices has a device."""
    return bool((held >> np.uint64(device)) & np.uint64(1) != np.uint64(0))


@compiled
def begin(state: Array, item: int, first: int, last: int) -> None:
    """Say which places of the list a move changes that begins at an item."""
    state.source = state.target = item
    state.first, state.last = first, last
    state.old_count, state.touched, state.moved, state.kind = state.count, 0, -1, 0


@compiled
def touch(search: Search, item: int, option: int, duration: float, device: int, held: np.uint64) -> None:
    """Give an item other devices and remember those that it had."""
    own, state = search.items[item], search.states[0]
    entry = search.touched[state.touched]
    entry.item, entry.option, entry.duration = item, own.option, own.duration
    entry.device, entry.held = own.device, own.held
    state.touched += 1
    own.option, own.duration, own.device, own.held = option, duration, device, held


@compiled
def restore(search: Search) -> None:
    """Give all items back the devices that a move took from them."""
    for number in range(search.states[0].touched - 1, -1, -1):
        entry = search.touched[number]
        own = search.items[entry.item]
        own.option, own.duration, own.device, own.held = entry.option, entry.duration, entry.device, entry.held


@compiled
def exchange(search: Search, item: int, one: int, other: int) -> None:
    """Put one device for another in the set of an item, and the other way around."""
    own = search.items[item]
    held = own.held
    if held != np.uint64(0) and holds(held, one) != holds(held, other):
        held ^= only(one) | only(other)
    device = other if own.device == one else one if own.device == other else own.device
    touch(search, item, own.option, own.duration, device, held)


@compiled
def is_narrow(item: Array) -> bool:
    """Whether an item takes one device."""
    return bool(item.held == np.uint64(0) or item.held == only(item.device))


@compiled
def runs_on(item: Array, device: int) -> bool:
    """Whether an item takes a device."""
    return bool(item.device == device or (item.held != np.uint64(0) and holds(item.held, device)))


@compiled
def move_swap(search: Search, operator: int) -> None:
    """Two devices exchange what they run from a place on, to the end of the list or for a stretch of it."""
    items, state = search.items, search.states[0]
    item = search.operators[operator].item
    first, one = items[item].position, items[item].device
    other = other_device(search.devices, one, state)
    end = swap_end(search.devices, state, first, state.count)
    begin(state, item, first, end - 1)
    for k in range(first, end):
        item = search.order[k]
        if runs_on(items[item], one) or runs_on(items[item], other):
            exchange(search, item, one, other)


@compiled
def mark_after(search: Search, operator: int) -> None:
    """The items that take the value of an operator must be timed again."""
    operators = search.operators
    for e in range(operators[operator].first_output, operators[operator + 1].first_output):
        search.items[operators[search.outputs[e].operator].item].marked = search.states[0].iteration


@compiled
def free_before(search: Search, place: int) -> None:
    """When each device is free before a place of the list."""
    devices = search.devices
    for d in range(devices.shape[0]):
        devices[d].free, devices[d].dirty = 0.0, False  # here: whether it has been seen
    left, k = devices.shape[0], place - 1
    while k >= 0 and left > 0:
        own = search.items[search.order[k]]
        if is_narrow(own):
            if not devices[own.device].dirty:
                devices[own.device].free, devices[own.device].dirty = own.finish, True
                left -= 1
        else:
            for d in range(devices.shape[0]):
                if holds(own.held, d) and not devices[d].dirty:
                    devices[d].free, devices[d].dirty = own.finish, True
                    left -= 1
        k -= 1


@compiled
def force(devices: Array, device: int, held: np.uint64) -> None:
    """Time what runs next on some devices again."""
    devices[device].forced = True
    if held != np.uint64(0):
        for d in range(devices.shape[0]):
            devices[d].forced |= holds(held, d)


@compiled
def prepare(search: Search) -> None:
    """When each device is free before the first change, and what the move changed directly."""
    items, devices, state = search.items, search.devices, search.states[0]
    free_before(search, state.first)
    for d in range(devices.shape[0]):
        devices[d].dirty = devices[d].forced = False
    if state.target != state.source:
        for item in (state.source, state.target):
            items[item].marked = state.iteration
            force(devices, items[item].device, items[item].held)
        mark_after(search, state.operator)
    if state.moved >= 0:
        items[state.moved].marked = state.iteration
        force(devices, items[state.moved].device, items[state.moved].held)
    for number in range(state.touched):
        before = search.touched[number]
        own = items[before.item]
        own.marked = state.iteration
        force(devices, before.device, before.held)
        force(devices, own.device, own.held)
        for i in range(own.size):
            mark_after(search, own.members[i])


@compiled
def waits(devices: Array, item: Array) -> Any:
    """When the devices of an item are free, and whether one of them is so at another time than before."""
    if is_narrow(item):
        device = devices[item.device]
        return device.free, device.dirty or device.forced
    free, again = 0.0, False
    for d in range(devices.shape[0]):
        if holds(item.held, d):
            free = max(free, devices[d].free)
            again |= devices[d].dirty or devices[d].forced
    return free, again


@compiled
def occupy(devices: Array, item: Array, finish: float, dirty: bool, past: bool) -> None:
    """An item ran on its devices: when they are free, and whether the next ones there must be timed.

    ``dirty``: its finish changed; ``past``: its place is behind the last that the move changed.
    """
    if is_narrow(item):
        device = devices[item.device]
        device.free, device.dirty = finish, dirty
        if past:
            device.forced = False
        return
    for d in range(devices.shape[0]):
        if holds(item.held, d):
            devices[d].free, devices[d].dirty = finish, dirty
            if past:
                devices[d].forced = False


@compiled
def tail_after(search: Search, item: int) -> float:
    """The longest path after an item without transfers: what its operators feed inside it has run with it."""
    operators, outputs, own = search.operators, search.outputs, search.items[item]
    tail = 0.0
    for i in range(own.size):
        v = own.members[i]
        for e in range(operators[v].first_output, operators[v + 1].first_output):
            if operators[outputs[e].operator].item != item:
                tail = max(tail, operators[outputs[e].operator].time + operators[outputs[e].operator].tail)
    return tail


@compiled
def arrival(search: Search, operator: int, item: int, device: int) -> float:
    """When the inputs of an operator of an item are on a device; while a candidate is timed, in that one."""
    operators, items, iteration, latest = search.operators, search.items, search.states[0].iteration, 0.0
    for e in range(operators[operator].first_input, operators[operator + 1].first_input):
        before = operators[search.inputs[e].operator].item
        if before != item:
            done = items[before].new_finish if items[before].changed == iteration else items[before].finish
            latest = max(latest, done if items[before].device == device else done + search.inputs[e].transfer)
    return latest


@kept
def timed(search: Search, limit: float) -> float:
    """Latency of the changed candidate; infinite as soon as it must exceed ``limit``.

    Only items are timed whose inputs changed or one of whose devices is free at another time, and those on the devices
    that the move itself changed, up to the first after its last place. Beyond that place the list is as it was, so the
    longest path after an item is too: bad moves are found out there at the latest, most of them at once.
    """
    operators, devices, state = search.operators, search.devices, search.states[0]
    iteration = state.iteration
    for k in range(state.first, state.count):
        item = search.order[k]
        own = search.items[item]
        start, again = waits(devices, own)
        if not (again or own.marked == iteration):
            occupy(devices, own, own.finish, False, False)
            continue
        tail = 0.0
        for i in range(own.size):
            start = max(start, arrival(search, own.members[i], item, own.device))
            tail = max(tail, operators[own.members[i]].tail)
        finish = start + own.duration
        dirty, past = finish != own.finish, k > state.last
        occupy(devices, own, finish, dirty, past)
        if dirty:
            if tail > 0 and own.size > 1 and finish + tail > limit:
                tail = tail_after(search, item)
            if finish + tail > limit or (past and finish + own.after > limit):
                return np.inf
            own.new_finish, own.changed = finish, iteration
            for i in range(own.size):
                mark_after(search, own.members[i])
    return float(last_free(devices))


@kept
def set_after(search: Search) -> None:
    """Work out the longest path after every item: through its devices, or through what takes its values."""
    operators, items, devices = search.operators, search.items, search.devices
    reset(devices)  # here: from the start of the next item on the device to the end
    for k in range(search.states[0].count - 1, -1, -1):
        item = search.order[k]
        own = items[item]
        after, _ = waits(devices, own)
        for i in range(own.size):
            v = own.members[i]
            for e in range(operators[v].first_output, operators[v + 1].first_output):
                target = operators[search.outputs[e].operator].item
                if target != item:
                    transfer = search.outputs[e].transfer if items[target].device != own.device else 0.0
                    after = max(after, transfer + items[target].duration + items[target].after)
        own.after = after
        occupy(devices, own, own.duration + after, False, False)


@kept
def keep(search: Search, latency: float) -> None:
    """Make the changed candidate the current one."""
    items, order, state = search.items, search.order, search.states[0]
    for k in range(state.first, state.count):
        if items[order[k]].changed == state.iteration:
            items[order[k]].finish = items[order[k]].new_finish
    set_after(search)
    state.latency = latency
    trace_critical(search)


@compiled
def trace_critical(search: Search) -> None:
    """Collect the operators of one critical path, from an item that ends last backwards."""
    operators, items, order, state = search.operators, search.items, search.order, search.states[0]
    state.criticals = 0
    item = -1
    for k in range(state.count - 1, -1, -1):
        if items[order[k]].finish >= state.latency:
            item = order[k]
            break
    while item >= 0:
        own, binding = items[item], -1
        start = own.finish - own.duration
        for i in range(own.size):
            v = own.members[i]
            search.critical[state.criticals] = v
            state.criticals += 1
            for e in range(operators[v].first_input, operators[v + 1].first_input):
                before = operators[search.inputs[e].operator].item
                came = items[before].finish + (0.0 if items[before].device == own.device else search.inputs[e].transfer)
                if before != item and came >= start - 1e-9:
                    binding = before
        if start <= 0:
            break
        k = own.position - 1
        while binding < 0 and k >= 0:  # it waited for an item before it on one of its devices
            before = order[k]
            if own.held == np.uint64(0):  # of those on one device, for the last
                waited = items[before].device == own.device
            else:
                waited = items[before].finish >= start - 1e-9 and items[before].held & own.held != np.uint64(0)
            if waited:
                binding = before
            k -= 1
        item = binding


@compiled
def set_starts(search: Search) -> None:
    """Work out the starts of the items, none of them before one that it waits for."""
    operators, items, devices, start = search.operators, search.items, search.devices, search.starts
    reset(devices)  # here: start of the item before on the device
    for k in range(search.states[0].count):
        own = items[search.order[k]]
        # Rounding must not put it before the items before it on its devices, or those of its inputs.
        start[k] = max(own.finish - own.duration, waits(devices, own)[0])
        for i in range(own.size):
            v = own.members[i]
            for e in range(operators[v].first_input, operators[v + 1].first_input):
                start[k] = max(start[k], start[items[operators[search.inputs[e].operator].item].position])
        occupy(devices, own, start[k], False, False)


@compiled
def copy_best(search: Search) -> None:
    """Remember the list and its items; the rest of ``best_order`` becomes -1."""
    order = search.order
    search.best_order[:] = -1
    for k in range(search.states[0].count):
        search.best_order[k] = order[k]
        search.best_items[order[k]] = search.items[order[k]]


@compiled
def attempt(search: Search, limit: float) -> bool:
    """Make the changed candidate the current one; false if it takes longer than the limit, and is to be taken back."""
    prepare(search)
    latency = timed(search, limit)
    if latency > limit:
        return False
    keep(search, latency)
    if latency < search.states[0].best:
        search.states[0].best = latency
        copy_best(search)
    return True
