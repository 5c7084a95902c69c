"""The main function of a worker process: pins itself to its cores and serves calls."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import torch

from hios.errors import ArtifactError, first_line
from hios.workers import channel
from hios.workers.arena import Arena
from hios.workers.ring import Bell
from hios.workers.stream_threads import Streams


@dataclass(eq=False)
class Worker:
    """What functions called inside a worker receive: its number, the shared memory, and a place for their state.

    ``mark`` records a number that the controller reads if the worker dies or hangs, in a fraction of a microsecond;
    ``clock`` is the time in nanoseconds of the monotonic clock; ``state`` is whatever functions keep for later calls.
    """

    number: int
    arena: Arena
    streams: Streams
    mark: Callable[[int], None] = lambda _: None
    clock: Callable[[], Any] = time.perf_counter_ns
    state: dict[str, Any] = field(default_factory=dict)


def main(arguments: list[str]) -> NoReturn:
    """Serve calls until the controller closes the pipe.

    ``arguments`` are NUMBER PIPE ARENA FLAGS SIZE MARKERS WORKERS SHARED BELL POOL CORES, where SHARED is 1 if devices
    share cores, else 0, and BELL and POOL are what wakes the worker and its pool.
    """
    number, pipe, descriptor, flags, size, markers, workers, shared, own, pool = map(int, arguments[:10])
    cores = [int(core) for core in arguments[10].split(",")]  # may hold a core more than once, for virtual devices
    if "OMP_PLACES" not in os.environ:  # given by hios, to pin a team of threads; OpenMP has bound this one
        os.sched_setaffinity(0, cores)
    gc.enable()
    torch.set_num_threads(len(cores))
    memory = channel.shared(workers, markers)
    mark, arena = memory.setter(number), Arena(flags, size, descriptor, shares_cores=bool(shared))
    worker = Worker(number, arena, Streams(len(cores)), mark)
    messages = channel.WorkerChannel(Connection(pipe), *channel.rings(memory, number, workers), Bell(own), Bell(pool))
    # End of file: the controller is gone.
    with torch.inference_mode(), contextlib.suppress(EOFError, OSError):
        messages.send((True, None))
        while True:
            name, keywords = messages.receive()
            messages.send(_answer(worker, name, keywords))
    os._exit(0)  # stream threads wait for work for ever


def _answer(worker: Worker, name: str, keywords: Mapping[str, Any]) -> tuple[bool, Any]:
    module, _, function = name.partition(":")
    try:
        return True, getattr(importlib.import_module(module), function)(worker, **keywords)
    except ArtifactError as error:  # of a file: not this worker's
        return False, error
    except Exception as error:  # reported to the user by the controller
        said = reason(error)
        return False, said if str(error).strip() else f"{said} ({function})"


def reason(error: Exception) -> str:
    """What went wrong, in one line."""
    return "out of memory" if isinstance(error, MemoryError) else first_line(error)
