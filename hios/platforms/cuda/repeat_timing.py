"""Timing short kernels by repetition: a chain of K runs and one of 2K; the difference is the time of K runs.

A CUDA graph takes some microseconds to start, as much as many an operator takes to run. So a chain of K runs is timed
and one of 2K; what the second takes longer is K runs and nothing else.
"""

from __future__ import annotations

import math

#: Milliseconds that the shorter chain should take at least: events tell times to about half a microsecond.
TARGET_MS = 0.2
#: Runs of the trial chain that determines the length, and the maximum length of the shorter chain.
TRIAL, MOST = 4, 512
#: What a run takes at least, in milliseconds: a view launches nothing, and ratios need numbers above 0.
_LEAST_MS = 1e-6
#: Share of the free memory that copies of operators may take together.
_MEMORY = 0.5


def runs_of_chain(each_ms: float) -> int:
    """K, the length of the shorter chain, given the time of one run."""
    return MOST if each_ms * MOST <= TARGET_MS else max(1, math.ceil(TARGET_MS / each_ms))


def time_of_run(short_ms: float, long_ms: float, runs: int) -> float:
    """Milliseconds of one run, from the times of chains of ``runs`` and of twice as many."""
    return max((long_ms - short_ms) / runs, _LEAST_MS)


def copies_of(wanted: int, needed: int, bytes_each: int, limit: int) -> int:
    """How many copies of an operator a chain cycles through.

    Args:
        wanted: runs of the longest chain: with a copy for each, all find weights and inputs as cold.
        needed: copies that there have to be, whatever they take.
        bytes_each: weights and inputs of a copy.
        limit: bytes that the copies may take.
    """
    return max(needed, min(wanted, limit // max(bytes_each, 1)), 1)


def bytes_for_copies(free: int, devices: int, operators: int) -> int:
    """Bytes that the copies of one operator may take on one device.

    Args:
        free: free bytes of the GPU.
        devices: devices that share it.
        operators: operators that are measured.
    """
    return int(_MEMORY * free) // max(devices * operators, 1)
