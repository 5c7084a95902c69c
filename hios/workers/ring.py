"""Messages between processes through shared memory, with a bell that wakes the receiver.

A ring takes a microsecond or two where a pipe takes tens: the writer copies some numbers and sets a flag. An idle
reader polls the flag for a moment, then sleeps until its bell rings, so that others can use the core.
"""

from __future__ import annotations

import os
import select
import weakref
from array import array
from collections.abc import Sequence
from typing import Any

from hios.errors import PlatformError
from hios.workers.arena import Arena

#: Messages that a ring holds.
ENTRIES = 64
#: Looks after which a reader gives its core away, which others may need.
ONCE = 20


def words_of(text: bytes) -> array[int]:
    """Bytes as numbers: how many there are, and then these."""
    return array("q", (len(text),)) + array("q", text + bytes(-len(text) % 8))


def bytes_of(words: Any) -> bytes:
    """The inverse of `words_of`."""
    return array("q", words[1:]).tobytes()[: words[0]]


class Ring:
    """A queue of messages of 64-bit integers, with one writer and one reader.

    ``offset`` is that of its memory in the arena, of `Ring.nbytes` bytes; ``words`` is the maximum number of integers
    in a message; ``head`` and ``tail`` are flags that count the messages written and read.
    """

    def __init__(self, arena: Arena, offset: int, words: int, head: int, tail: int) -> None:
        self._arena, self._width = arena, words + 1  # the first number says how many follow
        self._words = arena.words(offset, ENTRIES * self._width)
        self._head, self._tail = head, tail

    @staticmethod
    def nbytes(words: int) -> int:
        """Bytes of a ring for messages of this many numbers."""
        return ENTRIES * (words + 1) * 8

    def put(self, message: Sequence[int]) -> None:
        """Write a message; an error if it is too long, or the reader is a whole ring behind."""
        head = self._arena.read(self._head)
        if len(message) >= self._width or head - self._arena.read(self._tail) >= ENTRIES:
            raise PlatformError(f"a ring of {ENTRIES} messages of {self._width - 1} numbers is full")
        base = head % ENTRIES * self._width
        self._words[base : base + 1 + len(message)] = array("q", (len(message), *message))
        self._arena.write(self._head, head + 1)  # after the message: a reader that sees the flag sees the message

    def get(self) -> list[int] | None:
        """The next message; None if there is none."""
        tail = self._arena.read(self._tail)
        if self._arena.read(self._head) == tail:
            return None
        base = tail % ENTRIES * self._width
        message = self._words[base + 1 : base + 1 + self._words[base]].tolist()
        self._arena.write(self._tail, tail + 1)
        return message

    def look(self, times: int) -> list[int] | None:
        """The next message, or None if none arrives while its reader looks so many times."""
        for _ in range(times // ONCE):
            for _ in range(ONCE):
                if (message := self.get()) is not None:
                    return message
            os.sched_yield()
        return None

    def clear(self) -> None:
        """Discard unread messages, after the reader is gone."""
        self._arena.write(self._tail, self._arena.read(self._head))


class Bell:
    """Wakes a process or thread; ringing while it is awake is not lost.

    It is an eventfd, inherited or created, not a futex: a counter in the kernel cannot miss a ring between the last
    check and the sleep.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            # Not at the end of the process: a thread that still rings would write into a file opened under this number.
            weakref.finalize(self, os.close, descriptor).atexit = False
        self.descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)

    def ring(self) -> None:
        """Wake the sleeper, or the next one to go to sleep."""
        os.eventfd_write(self.descriptor, 1)

    def sleep(self, limit_s: float) -> None:
        """Sleep until the bell rings, but at most ``limit_s`` seconds."""
        if self._poll.poll(max(0.0, limit_s) * 1000):
            os.eventfd_read(self.descriptor)
