"""Peak memory of worker processes during a run, as Linux counts it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Collection
from pathlib import Path

from hios.machine import private_bytes
from hios.workers.pool import WorkerPool
from hios.workers.worker import Worker

#: Written to /proc/PID/clear_refs, it makes the peak of a process what it has now (proc_pid_clear_refs(5)).
_RESET = "5"


def give_back(worker: Worker) -> None:
    """Give freed memory back to the system, which malloc keeps otherwise; called inside a worker."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_bytes(pool: WorkerPool, workers: Collection[int], run: Callable[[], object]) -> int | None:
    """Private memory of workers before a run plus their largest growth during it, in bytes.

    Weights and compiled operators are included; memory released by earlier runs is not. None if the system does not
    report it.

    Args:
        pool: with the workers.
        workers: that take part.
        run: runs once.
    """
    pool.call_each(give_back, {worker: {} for worker in workers})
    ids = [pool.process_ids[worker] for worker in workers]
    own = [private_bytes(process) for process in ids]
    before = [_status(process, "VmRSS") for process in ids]
    if not all(own) or not all(map(_reset, ids)):
        return None
    run()
    peaks = [_status(process, "VmHWM") for process in ids]
    return sum(bytes_ + max(0, peak - now) for bytes_, peak, now in zip(own, peaks, before, strict=True))


def _reset(process: int) -> bool:
    try:
        Path(f"/proc/{process}/clear_refs").write_text(_RESET, encoding="ascii")
    except OSError:
        return False
    return True


def _status(process: int, field: str) -> int:
    """A field of /proc/PID/status in bytes."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)
