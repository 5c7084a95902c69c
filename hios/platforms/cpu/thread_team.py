"""Threads of a worker on the cores of several devices, for operators that take them all at once.

OpenMP gives every thread that runs operators a team of helpers. Those of the first device of an operator are pinned to
the cores of its other devices, whose workers meanwhile only look at a flag and give their core away after every look
(`Arena.wait`). So a helper that sleeps is woken on a core that is awake, which takes microseconds, where a core that
idles takes ten times as long, more in virtual machines. After its work a helper spins for the next loop, for less than
0.1 ms: as long as it spins, the worker whose core that is cannot go on.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

#: Numbers in a loop for every thread of a team: torch divides no smaller ones.
_GRAIN = 1 << 15
#: How long helpers spin, for the OpenMP of GNU (looks at a flag, of some 20 to 50 ns each) and that of LLVM and Intel
#: (milliseconds).
_SPINNING = {"GOMP_SPINCOUNT": "1500", "KMP_BLOCKTIME": "0"}


def environment() -> dict[str, str]:
    """Environment variables of workers that have such teams; what the user set stays."""
    return {name: value for name, value in _SPINNING.items() if name not in os.environ}


class ThreadTeam:
    """The threads inside operators of a worker's main thread.

    Args:
        cores: of every device, by its number.
        device: the worker's own.
    """

    def __init__(self, cores: Mapping[int, Sequence[int]], device: int) -> None:
        self._cores, self._device = cores, device
        self._others = _threads()
        self._helpers: list[int] = []
        #: Threads of the team that OpenMP keeps, and the devices that they are pinned to.
        self._size = 0
        self._pinned: tuple[int, ...] = ()
        self._current: tuple[int, ...] = (device,)

    def take(self, devices: tuple[int, ...]) -> None:
        """Have operators use the cores of some devices, the worker's own among them."""
        if devices == self._current:
            return
        own = devices == (self._device,)
        size = sum(len(self._cores[device]) for device in devices)
        torch.set_num_threads(size)
        if size > 1 and size != self._size:  # a team of another size has other threads
            torch.zeros(size * _GRAIN, dtype=torch.uint8).fill_(1)
            names = {thread.native_id for thread in threading.enumerate()}
            self._helpers = sorted(_threads() - self._others - names)
            self._size, self._pinned = size, ()
        if not own and devices != self._pinned:
            self._pin(devices)
        self._current = devices

    def _pin(self, devices: tuple[int, ...]) -> None:
        """A core for every helper; the main thread keeps those of its device, and needs one of them."""
        cores = [*self._cores[self._device][1:], *(core for device in devices[1:] for core in self._cores[device])]
        for helper, core in zip(self._helpers, cores, strict=False):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(helper, {core})
        self._pinned = devices


def _threads() -> set[int]:
    """Numbers of this process's threads."""
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}
