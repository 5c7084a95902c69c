"""A moment until which an algorithm may work: those that can take long look at it and give up."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from hios.errors import HiosError

_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


class OutOfTimeError(HiosError):
    """The moment has come."""


@contextmanager
def until(moment: float) -> Iterator[None]:
    """Let algorithms inside work until a moment as `time.perf_counter` counts it."""
    token = _deadline.set(moment)
    try:
        yield
    finally:
        _deadline.reset(token)


def check_deadline() -> None:
    """Give up if the moment has come.

    Raises:
        OutOfTimeError: it has.
    """
    if time.perf_counter() > _deadline.get():
        raise OutOfTimeError("no time is left")
