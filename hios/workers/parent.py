"""Processes that end with the one that started them, whatever ends that."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int | None = None, number: signal.Signals = signal.SIGKILL) -> None:
    """Have Linux send this process a signal when its parent ends, to Linux the thread that started it.

    Args:
        parent: number of the parent, if it is known: this process ends at once if that has ended already.
        number: the signal.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if parent is not None and os.getppid() != parent:
        os._exit(1)  # it died before the line above
