"""Timing transfers between workers of platform cpu. The functions are called through the worker pool."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from hios.workers.worker import Worker

#: Flags of the arena used by ``send`` and ``receive``: sent, received.
SENT, RECEIVED = 1, 2


def send(worker: Worker, sizes: Sequence[int], rounds: int, epoch: int) -> dict[int, list[int]]:
    """Send buffers repeatedly; returns the start time of each transfer (nanoseconds) by size.

    Both sides count hand-overs from ``epoch`` on; calls on one arena take different ones.
    """
    arena = worker.arena
    began: dict[int, list[int]] = {size: [] for size in sizes}
    own = {size: torch.ones(size, dtype=torch.uint8) for size in sizes}
    shared = {size: arena.tensor(0, (size,), torch.uint8) for size in sizes}
    for _ in range(rounds):
        for size in sizes:
            own[size].add_(1)  # freshly written, like the output of an operator
            epoch += 1
            began[size].append(time.perf_counter_ns())
            shared[size].copy_(own[size])
            arena.write(SENT, epoch)
            arena.wait(RECEIVED, epoch, 10.0, "a hand-over to be received")
    return began


def receive(worker: Worker, sizes: Sequence[int], rounds: int, epoch: int) -> dict[int, list[int]]:
    """The receiving side of ``send``: the arrival time of each transfer (nanoseconds) by size."""
    arena = worker.arena
    seen: dict[int, list[int]] = {size: [] for size in sizes}
    for _ in range(rounds):
        for size in sizes:
            epoch += 1
            arena.wait(SENT, epoch, 10.0, "a hand-over")
            seen[size].append(time.perf_counter_ns())
            arena.write(RECEIVED, epoch)
    return seen


def hand_over(worker: Worker, part: str, sizes: Sequence[int], rounds: int, epoch: int) -> dict[int, list[int]]:
    """``send`` or ``receive``, so that one pool call starts both sides."""
    return {"send": send, "receive": receive}[part](worker, sizes, rounds, epoch)


def time_copies(worker: Worker, sizes: Sequence[int], rounds: int) -> dict[int, list[float]]:
    """Milliseconds to copy a buffer into shared memory, by size: a transfer without a second device."""
    samples: dict[int, list[float]] = {}
    for size in sizes:
        own, shared = torch.ones(size, dtype=torch.uint8), worker.arena.tensor(0, (size,), torch.uint8)
        samples[size] = []
        for _ in range(rounds):
            own.add_(1)
            began = time.perf_counter_ns()
            shared.copy_(own)
            samples[size].append((time.perf_counter_ns() - began) / 1e6)
    return samples
