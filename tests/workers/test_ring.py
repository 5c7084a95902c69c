"""Messages through shared memory, and bells."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from hios.errors import PlatformError
from hios.workers.arena import Arena
from hios.workers.ring import ENTRIES, Bell, Ring


def _ring(words: int = 4) -> Ring:
    return Ring(Arena(3, Ring.nbytes(words)), 0, words, 1, 2)


def test_messages_come_in_order() -> None:
    """Messages of all lengths are read as they were written, also where the ring begins anew."""
    ring = _ring()
    assert ring.get() is None
    for number in range(3 * ENTRIES):
        message = list(range(-number, -number + number % 5))
        ring.put(message)
        assert ring.get() == message
        assert ring.get() is None


def test_a_full_ring_refuses() -> None:
    """A ring takes as many messages as it has room for, and none that is longer than its entries."""
    ring = _ring()
    for number in range(ENTRIES):
        ring.put((number,))
    with pytest.raises(PlatformError, match="full"):
        ring.put((0,))
    assert ring.get() == [0]
    ring.put((ENTRIES,))
    with pytest.raises(PlatformError, match="full"):
        _ring().put(range(5))


def test_what_was_not_read_can_be_forgotten() -> None:
    """After clear the ring is empty, and goes on."""
    ring = _ring()
    ring.put((1,))
    ring.clear()
    assert ring.get() is None
    ring.put((2,))
    assert ring.get() == [2]


def test_a_bell_rings_until_the_process_has_ended() -> None:
    """Its number is not free for other files while threads may still ring; in the life of a process it is freed."""
    program = """
import atexit, os, tempfile

def write():  # called after all that was registered later
    with tempfile.TemporaryFile() as file:
        bell.ring()
        print(os.pread(file.fileno(), 8, 0))

atexit.register(write)
from hios.workers.ring import Bell
bell = Bell()
number = bell.descriptor
del bell
bell = Bell()
assert bell.descriptor == number
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("b''\n", "")


def test_a_bell_wakes() -> None:
    """A bell that rings wakes the sleeper; one that rang before is not lost; one that was heard is silent."""
    bell = Bell()
    began = time.monotonic()
    threading.Timer(0.05, bell.ring).start()
    bell.sleep(60.0)
    bell.ring()
    bell.ring()
    bell.sleep(60.0)
    assert time.monotonic() - began < 60
    bell.sleep(0.0)
    assert not bell._poll.poll(0)
