"""Memory shared by processes."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

import pytest
import torch

from hios.errors import PlatformError
from hios.workers.arena import Arena, Layout, memory_file


def test_tensors_are_views_of_one_memory() -> None:
    """Two mappings of one arena see each other's tensors and flags; buffers do not overlap flags or each other."""
    layout = Layout()
    first, second = layout.add(40), layout.add(24)
    one = Arena(4, layout.size)
    other = Arena(4, layout.size, one.descriptor)
    for flag in range(4):
        one.write(flag, -flag - 1)
    one.tensor(first, (2, 5), torch.float32).fill_(1.5)
    one.tensor(second, (3,), torch.int64).copy_(torch.tensor([1, -2, 2**40]))
    assert torch.equal(other.tensor(first, (2, 5), torch.float32), torch.full((2, 5), 1.5))
    assert other.tensor(second, (3,), torch.int64).tolist() == [1, -2, 2**40]
    assert [other.read(flag) for flag in range(4)] == [-1, -2, -3, -4]


def test_memory_without_the_function_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds of Python for old C libraries lack os.memfd_create; the C library at hand has it."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    made = Arena(2, 64)
    made.tensor(0, (2,), torch.float32).fill_(1.5)
    assert Arena(2, 64, made.descriptor).tensor(0, (2,), torch.float32).tolist() == [1.5, 1.5]
    assert not os.get_inheritable(made.descriptor)
    with memory_file(b"contents") as path:
        assert Path(path).read_bytes() == b"contents"


def test_flags_are_64_bit() -> None:
    """A flag holds a time in nanoseconds; a setter writes its own flag only."""
    arena = Arena(3, 0)
    arena.setter(2)(2**62)
    assert [arena.read(flag) for flag in range(3)] == [0, 0, 2**62]


def test_empty_tensors() -> None:
    """A tensor without elements needs no memory."""
    assert Arena(1, 0).tensor(0, (0, 3), torch.float32).shape == (0, 3)


def test_layout_is_aligned() -> None:
    """Buffers start at multiples of 64 bytes, one behind the other."""
    layout = Layout()
    assert [layout.add(size) for size in (1, 64, 65, 0, 8)] == [0, 64, 128, 256, 256]
    assert layout.size == 320


def test_wait_sees_a_flag_of_another_thread() -> None:
    """A wait ends when the flag has the value, however long that takes to come."""
    arena = Arena(2, 64)
    thread = threading.Timer(0.05, arena.write, (1, 5))
    thread.start()
    arena.wait(1, 5, 60.0, "the flag")
    thread.join()
    assert arena.read(1) == 5


def test_wait_in_vain_names_what_it_waited_for() -> None:
    """A flag that never comes is an error after the time-out."""
    with pytest.raises(PlatformError, match=r"waited 0\.01 s for the output of operator conv1"):
        Arena(2, 0).wait(1, 5, 0.01, "the output of operator conv1")


def test_time_for_which_a_process_was_stopped_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait goes on after a look that comes far too late, for as long as was left; looks in time are all counted."""
    looks = iter([0.0, 0.5, 100.5, 101.5, 104.0, 106.5, 108.5, 109.5])
    monkeypatch.setattr(time, "monotonic", lambda: next(looks))
    with pytest.raises(PlatformError, match=r"waited 10 s for the flag"):
        Arena(2, 0, shares_cores=True).wait(1, 5, 10.0, "the flag")
    assert list(looks) == []


def test_waiting_gives_shared_cores_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where workers share cores, a wait yields between looks, and whoever raises the flag can run; else it spins."""
    shared = Arena(2, 0, shares_cores=True)
    monkeypatch.setattr("hios.workers.arena.os.sched_yield", lambda: shared.write(1, 5))
    shared.wait(1, 5, 60.0, "the flag")
    own = Arena(2, 0)
    own.write(0, 1)
    monkeypatch.delattr("hios.workers.arena.os.sched_yield")
    with pytest.raises(PlatformError, match="aborted"):
        own.wait(1, 5, 60.0, "the flag")


def test_abort_ends_a_wait() -> None:
    """The abort flag ends a wait long before its time-out."""
    arena = Arena(2, 0)
    arena.write(0, 1)
    with pytest.raises(PlatformError, match="aborted"):
        arena.wait(1, 5, 600.0, "nothing")


def test_arenas_leave_nothing_behind() -> None:
    """An arena that is gone has given its memory and descriptors back."""
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        arena = Arena(4, 1 << 20)
        assert os.fstat(arena.descriptor).st_size >= 1 << 20
        arena.tensor(0, (8,), torch.float32).fill_(1.0)
        del arena
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
