"""A deadline for algorithms, which slow ones check."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from hios.errors import HiosError

_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


class OutOfTimeError(HiosError):
    """The deadline has passed."""


@contextmanager
def until(moment: float) -> Iterator[None]:
    """A context that sets a deadline, by `time.perf_counter`, for the algorithms inside."""
    token = _deadline.set(moment)
    try:
        yield
    finally:
        _deadline.reset(token)


def check_deadline() -> None:
    """Give up, by an `OutOfTimeError`, if the deadline has passed."""
    if time.perf_counter() > _deadline.get():
        raise OutOfTimeError("no time is left")
