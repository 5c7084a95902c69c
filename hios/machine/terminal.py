"""Progress bars of long measurements."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Never

from tqdm import tqdm

_quiet_elsewhere: ContextVar[bool] = ContextVar("quiet_elsewhere", default=False)


@contextlib.contextmanager
def on_terminals_only() -> Iterator[None]:
    """A context without progress bars unless standard error is a terminal: for use inside other programs."""
    before = _quiet_elsewhere.set(True)
    try:
        yield
    finally:
        _quiet_elsewhere.reset(before)


def bar(total: float, what: str, unit: str) -> tqdm[Never]:
    """A progress bar with the estimated time left; redrawn rarely if it goes to a log.

    It says ``what`` is being done, such as ``measuring 42 operators``; ``unit`` is in the plural.
    """
    return tqdm(
        total=total,
        desc=what,
        unit=unit,
        bar_format="{desc} {percentage:3.0f}% |{bar:20}| {n_fmt} of {total_fmt} {unit}, {elapsed} so far, "
        "{remaining} left",
        disable=None if _quiet_elsewhere.get() else False,  # None: unless it is a terminal
        mininterval=0.1 if sys.stderr.isatty() else 2.0,
    )


class Meter:
    """A progress bar of work whose amount becomes known while it is done, and which stops at a deadline.

    ``total`` is the amount as far as is known, of units in the plural. The rest is given up at the deadline, by
    ``time.monotonic``.
    """

    def __init__(self, total: int, what: str, unit: str, deadline: float) -> None:
        self._bar = bar(total, what, unit)
        self._began = time.monotonic()
        self._deadline = deadline

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._bar.total = self._bar.n  # the rest was given up
            self._bar.refresh()
        self._bar.close()

    def advance(self, done: int, left: float) -> None:
        """Record finished units, and how many remain."""
        now = time.monotonic()
        self._bar.n += done
        rate = self._bar.n / max(now - self._began, 1e-9)
        self._bar.total = self._bar.n + round(min(left, rate * max(self._deadline - now, 0.0)))
        self._bar.update(0)
