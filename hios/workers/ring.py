"""Messages from one process to another through shared memory, and a bell that wakes whoever waits for them.

A ring takes a microsecond or two where a pipe takes tens: who writes copies some numbers and raises a flag. Who has
nothing to do looks at the flag for a moment, then sleeps at its bell, so that others have the core.
"""

from __future__ import annotations

import os
import select
import weakref
from array import array
from collections.abc import Sequence

from hios.errors import PlatformError
from hios.workers.arena import Arena

#: Messages that a ring holds.
ENTRIES = 64


class Ring:
    """Messages of whole numbers of 64 bits; one process writes them, another reads them in order.

    Args:
        arena: shared by the two.
        offset: of the ring's memory in the arena, of `Ring.nbytes` bytes.
        words: numbers of a message at most.
        head: flag that counts the messages written.
        tail: flag that counts the messages read.
    """

    def __init__(self, arena: Arena, offset: int, words: int, head: int, tail: int) -> None:
        self._arena, self._width = arena, words + 1  # the first number says how many follow
        self._words = arena.words(offset, ENTRIES * self._width)
        self._head, self._tail = head, tail

    @staticmethod
    def nbytes(words: int) -> int:
        """Bytes of a ring with messages of so many numbers."""
        return ENTRIES * (words + 1) * 8

    def put(self, message: Sequence[int]) -> None:
        """Write a message.

        Raises:
            PlatformError: it is too long, or the reader is a whole ring behind.
        """
        head = self._arena.read(self._head)
        if len(message) >= self._width or head - self._arena.read(self._tail) >= ENTRIES:
            raise PlatformError(f"a ring of {ENTRIES} messages of {self._width - 1} numbers is full")
        base = head % ENTRIES * self._width
        self._words[base : base + 1 + len(message)] = array("q", (len(message), *message))
        self._arena.write(self._head, head + 1)  # after the message: whoever sees the flag sees the message

    def get(self) -> list[int] | None:
        """The next message; None if there is none."""
        tail = self._arena.read(self._tail)
        if self._arena.read(self._head) == tail:
            return None
        base = tail % ENTRIES * self._width
        message = self._words[base + 1 : base + 1 + self._words[base]].tolist()
        self._arena.write(self._tail, tail + 1)
        return message

    def clear(self) -> None:
        """Forget what was not read, where the reader is gone."""
        self._arena.write(self._tail, self._arena.read(self._head))


class Bell:
    """Wakes a process or thread; a ring while it is awake is not lost.

    It is an eventfd, not a futex: a counter in the kernel cannot miss a ring between the last look and the sleep.

    Args:
        descriptor: an inherited one, or None to make the bell.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            weakref.finalize(self, os.close, descriptor)
        self.descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)

    def ring(self) -> None:
        """Wake whoever sleeps, or goes to sleep next."""
        os.eventfd_write(self.descriptor, 1)

    def sleep(self, limit_s: float) -> None:
        """Sleep until it rings, but no longer than ``limit_s`` seconds."""
        if self._poll.poll(max(0.0, limit_s) * 1000):
            os.eventfd_read(self.descriptor)
