"""What tests call inside workers."""

from __future__ import annotations

import gc
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch

from hios.errors import PlatformError
from hios.workers.worker import Worker


def who(worker: Worker) -> dict[str, Any]:
    """What a worker is: process, cores, threads inside an operator, and whether it looks for garbage."""
    return {
        "number": worker.number,
        "pid": os.getpid(),
        "parent": os.getppid(),
        "cores": sorted(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "omp": os.environ["OMP_NUM_THREADS"],
        "inference": torch.is_inference_mode_enabled(),
        "garbage": gc.isenabled(),
    }


def say_where(worker: Worker) -> None:
    """Write the current folder to standard output."""
    os.write(1, f"{Path.cwd()}\n".encode())


def meet(worker: Worker, flag: int, other: int) -> str:
    """Raise one flag and wait for another; returns only if the other worker runs at the same time."""
    worker.arena.write(flag, 1)
    worker.arena.wait(other, 1, 300.0, "the other worker")
    return f"worker {worker.number}"


def late(worker: Worker, late: bool) -> int:
    """Return the number of the worker; a late worker first lets the other one answer."""
    if late:
        worker.arena.wait(1, 1, 300.0, "the quick worker")
        time.sleep(0.2)
    worker.arena.write(1, 1)
    return worker.number


def fill(worker: Worker, offset: int, value: float) -> None:
    """Write a tensor of 10 numbers into the arena, then raise flag 1."""
    worker.arena.tensor(offset, (10,), torch.float32).fill_(value)
    worker.arena.write(1, 7)


def remember(worker: Worker, name: str, value: Any) -> Any:
    """Put something into the worker's state and return what was there."""
    before = worker.state.get(name)
    worker.state[name] = value
    return before


def echo(worker: Worker, value: Any) -> Any:
    """Return the argument."""
    return value


def fail(worker: Worker, message: str) -> None:
    """Raise an error in worker 0; the others wait for it in vain."""
    if worker.number == 0:
        raise ValueError(message)
    worker.arena.wait(5, 1, 600.0, "a flag that nobody raises")


def run_out_of_memory(worker: Worker) -> None:
    """Raise what Python raises without memory."""
    raise MemoryError


def refuse(worker: Worker) -> None:
    """Raise an error of hios."""
    raise PlatformError("refused on purpose")


def die(worker: Worker, how: str) -> None:
    """End worker 0 in one of several ways; the others wait for it."""
    if worker.number == 0:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "real-time signal":
            os.kill(os.getpid(), 40)
        else:
            os._exit(3)
    worker.arena.wait(5, 1, 600.0, "a flag that nobody raises")


def hang(worker: Worker) -> None:
    """Never answer in worker 0."""
    while worker.number == 0:
        time.sleep(60)


def hang_up(worker: Worker) -> None:
    """Close all connections in worker 0, and go on."""
    if worker.number == 0:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        hang(worker)


def wait_in_vain(worker: Worker) -> None:
    """Wait for a flag that nobody raises."""
    worker.arena.wait(3, 1, 0.2, "the output of operator conv1")


def streams(worker: Worker) -> list[tuple[str, int]]:
    """Three functions on streams that each wait for the next; (name, threads inside an operator) of each."""
    calls: list[tuple[str, int]] = []

    def step(name: str, flag: int, other: int | None) -> None:
        if other is not None:
            worker.arena.wait(other, 1, 300.0, "the other stream")
        calls.append((name, torch.get_num_threads()))
        worker.arena.write(flag, 1)

    worker.streams.run([lambda: step("first", 1, 2), lambda: step("second", 2, 3), lambda: step("third", 3, None)])
    return calls


def hold_briefly(worker: Worker, size: int) -> None:
    """Allocate some bytes, write to every page of them, and free them."""
    torch.ones(size, dtype=torch.uint8)
