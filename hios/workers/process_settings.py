"""Settings of a worker process: its name, ending with its parent, leaving Ctrl-C to it, and keeping freed memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def end_with_parent(parent: int | None = None, number: signal.Signals = signal.SIGKILL) -> None:
    """Make Linux send this process a signal when its parent (for Linux, the thread that started it) ends.

    If the process ID of the parent is known, this process ends at once if the parent has ended already.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if parent is not None and os.getppid() != parent:
        os._exit(1)  # it died before the line above


def set_name(text: str) -> None:
    """Name this process, in at most 15 characters, for ``ps`` and ``top``."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, text.encode())


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Keep Ctrl-C from processes started within, from their first instruction on: they inherit the blocked signal.

    A terminal sends Ctrl-C to all of them at once. Only the controller handles it, by stopping the workers; a signal
    that arrives while it is blocked is delivered right after.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# Parameters of mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: The largest threshold that glibc takes; larger tensors are still mapped one by one.
_LARGEST_MMAP_THRESHOLD = 32 << 20
_NEVER = 2**31 - 1


def keep_memory() -> None:
    """Make malloc keep freed memory, as GPU allocators do.

    By default glibc returns large blocks to the system; then the output of nearly every operator is made of fresh
    pages, which the kernel zeroes one page fault at a time. All streams share one malloc arena, so that one reuses
    memory that another freed; with an arena each, threads would each keep their own. No effect if malloc is not
    glibc's.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
        mallopt(_M_ARENA_MAX, 1)
