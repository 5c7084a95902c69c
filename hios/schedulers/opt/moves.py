"""What the compiled searches over stages and over operators on several devices have in common.

The functions take the arrays of either: ``operators`` (n+1) with the fields ``first_input`` and ``first_output``,
``inputs`` and ``outputs`` EDGE, ``items`` what the list ``order`` is of (stages or operators) with the fields ITEM,
``devices`` DEVICE, and ``state``, a record with the fields SEARCH. Times are in milliseconds. Imported only
where the search runs: numba is not light.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

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

#: Fields of a stage or an operator in a list: its place there, device, duration, finish, longest path after it to the
#: end of the list. While a move is timed: its finish if that changed in iteration ``changed``, and the iteration in
#: which it must be timed again.
ITEM = [
    ("position", np.int64),
    ("device", np.int64),
    ("duration", np.float64),
    ("finish", np.float64),
    ("after", np.float64),
    ("new_finish", np.float64),
    ("changed", np.int64),
    ("marked", np.int64),
]
#: Fields of the state: random numbers, count of iterations, latency of the candidate and of the best, how many
#: operators of a critical path and how many changed devices are listed, and the first and the last place that the move
#: changes.
SEARCH = [
    ("random", np.uint64),
    ("iteration", np.int64),
    ("latency", np.float64),
    ("best", np.float64),
    ("criticals", np.int64),
    ("touched", np.int64),
    ("first", np.int64),
    ("last", np.int64),
]

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
