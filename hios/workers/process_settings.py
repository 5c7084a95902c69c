"""Settings of a worker process: it ends with its parent, and it keeps freed memory."""

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


# Parameters of mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: The largest threshold that glibc takes; larger tensors are still mapped one by one.
_LARGEST_MMAP_THRESHOLD = 32 << 20
_NEVER = 2**31 - 1


def keep_memory() -> None:
    """Have malloc keep freed memory, as GPU allocators do.

    By default glibc returns large blocks to the system; then the output of nearly every operator is made of fresh
    pages, which the kernel zeroes one page fault at a time. All streams share one arena, so that one uses what another
    let go; threads with arenas of their own would each keep fresh pages. No effect where malloc is not glibc's.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
        mallopt(_M_ARENA_MAX, 1)
