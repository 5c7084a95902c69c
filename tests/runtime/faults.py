"""Functions that tests run inside workers, to make operators fail and to query them."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from typing import Any

import torch

from hios.platforms.cpu import cpu_worker as device
from hios.platforms.cpu.thread_team import ThreadTeam
from hios.workers.worker import Worker


def load_dying(worker: Worker, **arguments: Any) -> None:
    """What ``device.load`` does, but an operator ends the process as Linux does where memory is short."""
    device.load(worker, **arguments)
    spoil(worker, "fire4.squeeze", "kill")


def load_dying_at_the_end(worker: Worker, **arguments: Any) -> None:
    """What ``device.load`` does, but the last operator ends the process as Linux does where memory is short."""
    device.load(worker, **arguments)
    spoil(worker, worker.state["graph"].operators[-1].id, "kill")


def load_hanging_at_the_end(worker: Worker, **arguments: Any) -> None:
    """What ``device.load`` does, but the last operator hangs."""
    device.load(worker, **arguments)
    spoil(worker, worker.state["graph"].operators[-1].id, "hang")


def spoil(worker: Worker, operator: str, how: str) -> None:
    """Have an operator fail, hang, make nothing, or end its process, in programs that are prepared from now on."""
    operators = worker.state["operators"]

    def run(*_: Any) -> Any:
        if how == "hang":
            time.sleep(600)
        elif how == "die":
            os._exit(3)
        elif how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "memory":
            raise MemoryError
        elif how == "empty":
            return torch.empty(0)
        raise ValueError("no such kernel\nsecond line")

    operators[operator] = dataclasses.replace(operators[operator], run=run)


def team(worker: Worker, own: list[int], cores: list[int]) -> tuple[int, list[list[int]]]:
    """Have operators use some cores; threads inside operators, and the cores of each helper."""
    threads = ThreadTeam.of(worker, own)
    threads.take(tuple(cores))
    return torch.get_num_threads(), [sorted(os.sched_getaffinity(helper)) for helper in threads._helpers]
