"""Parts of a page that are made in several processes: charts take most of the time of a large report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

from hios.workers.process_settings import end_with_parent, interrupts_blocked

T = TypeVar("T")

#: Number of parts from which several processes are worth starting.
_MANY = 8


def made(parts: Sequence[Any], make: Callable[[int, Any], T], processes: int) -> list[T]:
    """What a function makes of each part, in their order.

    Several processes import the program that asks for this once more, as those of ``multiprocessing`` do: it must not
    begin anything when it is imported.

    Args:
        parts: what to make something of; they can be pickled.
        make: takes the number of a part, from 1, and the part; it and its results can be pickled.
        processes: the most that may be at work at once; few parts are made in this process.
    """
    numbers = range(1, len(parts) + 1)
    if processes < 2 or len(parts) < _MANY:
        return list(map(make, numbers, parts))
    # Not forked: what draws charts has threads of its own, whose locks a fork would take along.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), end_with_parent, (os.getpid(),))
    try:
        with interrupts_blocked():
            results: Iterable[T] = pool.map(make, numbers, parts)
        return list(results)
    finally:
        pool.shutdown(cancel_futures=True)
