"""Messages between a worker and its pool: short ones through shared memory, longer ones through a pipe.

A short message takes some microseconds while both ends are awake. Each end has a bell, which the other one rings.
"""

from __future__ import annotations

import pickle
import platform
import select
from multiprocessing.connection import Connection
from typing import Any

from hios.workers import pipe_messages
from hios.workers.arena import Arena
from hios.workers.ring import ONCE, Bell, Ring, bytes_of, words_of

#: Numbers in a short message at most: how many bytes it has, and these.
_WORDS = 64
#: Bytes of one at most; none is short where a flag may be seen before what was written ahead of it (`Arena`).
SHORT = (_WORDS - 1) * 8 if platform.machine() == "x86_64" else -1
#: Looks at the ring before a worker sleeps, some 100 microseconds.
_LOOKS = 400
#: Flags of a worker's two rings.
_FLAGS = 4


def shared(workers: int, descriptor: int | None = None) -> Arena:
    """The memory for messages of so many workers, whose first flags are their marks; or that which is there."""
    return Arena(workers * (1 + _FLAGS), 2 * workers * Ring.nbytes(_WORDS), descriptor)


def rings(arena: Arena, number: int, workers: int) -> tuple[Ring, Ring]:
    """Those of a worker: of what it is asked, and of what it answers."""
    head, offset, size = workers + _FLAGS * number, 2 * number * Ring.nbytes(_WORDS), Ring.nbytes(_WORDS)
    return Ring(arena, offset, _WORDS, head, head + 1), Ring(arena, offset + size, _WORDS, head + 2, head + 3)


class WorkerChannel:
    """The end of a worker, which blocks as long as needed."""

    def __init__(self, connection: Connection, asked: Ring, answers: Ring, own: Bell, pool: Bell) -> None:
        self._connection, self._asked, self._answers, self._own, self._pool = connection, asked, answers, own, pool
        self._arrived = select.poll()
        for descriptor in (connection.fileno(), own.descriptor):
            self._arrived.register(descriptor, select.POLLIN)

    def send(self, message: Any) -> None:
        """Send a message."""
        text = pickle.dumps(message)
        if len(text) <= SHORT:
            self._answers.put(words_of(text))
            self._pool.ring()
            return
        for part in pipe_messages.parts(text):
            self._connection.send_bytes(part)

    def receive(self) -> Any:
        """The next message; EOFError if the pool is gone.

        Awake for a moment at first, as to wake a core takes longer than most pauses between calls one after another.
        """
        looks = _LOOKS
        while (words := self._asked.look(looks)) is None:
            if any(descriptor == self._connection.fileno() for descriptor, _ in self._arrived.poll()):
                inbox = pipe_messages.Inbox()
                while not inbox.add(self._connection.recv_bytes()):
                    pass
                return inbox.message()
            self._own.sleep(0.0)
            looks = ONCE  # the bell may have rung for a message that was found awake
        return pickle.loads(bytes_of(words))  # noqa: S301 - from our own processes
