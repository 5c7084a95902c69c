"""Messages through pipes, in parts: a part fits wherever a pipe takes anything, so that no one waits in the middle."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

#: Bytes of every part but the last, which is shorter. Linux lets a socket that can be written to take a multiple.
PART = 1 << 14


def parts(message: Any) -> Iterator[bytes]:
    """A message, in parts."""
    text = memoryview(ForkingPickler.dumps(message))
    for begin in range(0, len(text) + 1, PART):
        yield bytes(text[begin : begin + PART])


def send(connection: Connection, message: Any) -> None:
    """Send a message, however long that takes."""
    for part in parts(message):
        connection.send_bytes(part)


def receive(connection: Connection) -> Any:
    """The next message, however long that takes.

    Raises:
        EOFError: the other end is closed.
    """
    inbox = Inbox()
    while not inbox.add(connection.recv_bytes()):
        pass
    return inbox.message()


class Inbox:
    """The parts of a message, as they come."""

    def __init__(self) -> None:
        self._text = bytearray()

    def add(self, part: bytes) -> bool:
        """Take the next part; returns whether it is the last."""
        self._text += part
        return len(part) < PART

    def message(self) -> Any:
        """The message, once it is whole."""
        return pickle.loads(self._text)  # noqa: S301 - from our own processes
