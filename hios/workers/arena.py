"""Shared memory of worker processes: flags for signaling, buffers for tensors, and files in memory."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import time
import weakref
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from hios.errors import PlatformError
from hios.workers.deadline import Deadline

#: Bytes between flags: one cache line each, so that spinning on one does not slow writes to another.
_FLAG_STRIDE = 64
#: Spins between checks of the clock and of the abort flag.
_SPINS = 1 << 14
#: Seconds of each sleep of those that may.
_NAP_S = 20e-6
#: MFD_CLOEXEC of Linux.
_CLOSED_ON_EXEC = 1
#: What a wait says that ended because the abort flag was set.
ABORTED = "aborted"


class Arena:
    """An anonymous shared memory file (memfd), mapped by the controller and every worker.

    It has no name in the file system, so nothing stays behind when its processes die.

    Args:
        flags: number of 64-bit flags; flag 0 is the abort flag.
        size: bytes of buffers behind the flags.
        descriptor: an inherited file descriptor, or None to create the memory.
        shares_cores: whether workers that wait for each other share cores, as virtual devices do.
    """

    #: Whether operators produce images in channels-last order, in which they are then transferred.
    channels_last = True

    def __init__(self, flags: int, size: int, descriptor: int | None = None, *, shares_cores: bool = False) -> None:
        self.flags_count = flags
        self.size = size
        self.shares_cores = shares_cores
        self._base = flags * _FLAG_STRIDE
        total = max(self._base + size, mmap.PAGESIZE)
        if descriptor is None:
            descriptor = _memory_descriptor()
            weakref.finalize(self, os.close, descriptor).atexit = False  # as of a bell
            os.ftruncate(descriptor, total)
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, total)
        # Aligned 64-bit loads and stores are single instructions, and the memory model of x86-64
        # keeps a flag from becoming visible before the data that was written ahead of it.
        self._flags = memoryview(self._memory)[: self._base].cast("q")
        self._step = _FLAG_STRIDE // 8

    def tensor(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype, *, channels_last: bool = False) -> Tensor:
        """A tensor that views the buffers at an offset, in bytes, without copying.

        With ``channels_last``, images (N, C, H, W) lie in memory as (N, H, W, C).
        """
        count = math.prod(shape)
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        flat = self._numbers(offset, count, dtype)
        if channels_last and len(shape) == 4:
            batch, channels, height, width = shape
            return flat.reshape(batch, height, width, channels).permute(0, 3, 1, 2)
        return flat.reshape(shape)

    def _numbers(self, offset: int, count: int, dtype: torch.dtype) -> Tensor:
        """A one-dimensional view of the buffers at an offset."""
        return torch.frombuffer(self._memory, dtype=dtype, count=count, offset=self._base + offset)

    def words(self, offset: int, count: int) -> memoryview:
        """A view of 64-bit integers at an offset of the buffers."""
        begin = self._base + offset
        return memoryview(self._memory)[begin : begin + 8 * count].cast("q")

    def read(self, flag: int) -> int:
        """Value of a flag."""
        return self._flags[flag * self._step]

    def write(self, flag: int, value: int) -> None:
        """Set a flag; everything written before is visible to any process that sees the new value."""
        self._flags[flag * self._step] = value

    def setter(self, flag: int) -> Callable[[int], None]:
        """``write`` for one flag, with its lookups done in advance."""
        flags, index = self._flags, flag * self._step

        def write(value: int) -> None:
            flags[index] = value

        return write

    def wait(
        self, flag: int, value: int, timeout_s: float, what: str, *, yielding: bool = False, sleeping: bool = False
    ) -> None:
        """Spin until a flag has a value: a worker owns its core, and sleeping would cost more than the wait.

        If workers share cores, or another one uses this core meanwhile (``yielding``), it yields its core after every
        check, as the process that sets the flag may need it. (Short sleeps took a third of that core's time from the
        processes working on it.) Where being late does no harm, it may sleep after some tens of microseconds.

        Raises:
            PlatformError: ``what`` is awaited takes longer than ``timeout_s``, without the time for which this process
                was stopped, or the controller aborts.
        """
        flags, index = self._flags, flag * self._step
        yielding = yielding or self.shares_cores
        spins = 1 if yielding else _SPINS >> 4 if sleeping else _SPINS
        deadline = None
        while True:
            for _ in range(spins):
                if flags[index] == value:
                    return
            if yielding:
                os.sched_yield()
            elif sleeping:
                time.sleep(_NAP_S)
            deadline = deadline or Deadline(timeout_s)
            if flags[0]:
                raise PlatformError(ABORTED)
            if not deadline.left_s():
                raise PlatformError(f"waited {timeout_s:g} s for {what}")


class Layout:
    """Lays buffers out one after another, aligned for vector instructions."""

    def __init__(self) -> None:
        self.size = 0

    def add(self, size: int) -> int:
        """Reserve ``size`` bytes and return their offset."""
        offset = self.size
        self.size += -(-size // 64) * 64
        return offset


def _memory_descriptor() -> int:
    """A new file in memory, by the C library where Python was built for one that lacks it, as uv's were up to 2026."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("hios", os.MFD_CLOEXEC)
    descriptor = int(ctypes.CDLL(None, use_errno=True).memfd_create(b"hios", _CLOSED_ON_EXEC))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return descriptor


@contextlib.contextmanager
def memory_file(contents: bytes) -> Iterator[str]:
    """A path at which this process and its workers can read bytes; valid until the context or process ends.

    The contents are freed once they are in the file, unless the caller keeps a reference.
    """
    descriptor = _memory_descriptor()
    with os.fdopen(descriptor, "wb") as file:
        file.write(contents)
        del contents
        file.flush()
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
