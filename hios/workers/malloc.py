"""Memory of a device: kept between operators, not given back to the system and fetched again."""

from __future__ import annotations

import ctypes

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
