"""Messages through pipes, sent in parts small enough to fit a pipe, so that no writer blocks in the middle."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

#: Bytes of every part but the last, which is shorter. Linux lets a socket that can be written to take a multiple.
PART = 1 << 14


def parts(message: Any) -> Iterator[bytes]:
    """A message, in parts."""
    text = memoryview(pickle.dumps(message))
    for begin in range(0, len(text) + 1, PART):
        yield bytes(text[begin : begin + PART])


def send(connection: Connection, message: Any) -> None:
    """Send a message, blocking as long as needed."""
    for part in parts(message):
        connection.send_bytes(part)


def receive(connection: Connection) -> Any:
    """Receive the next message, blocking as long as needed; EOFError if the other end is closed."""
    inbox = Inbox()
    while not inbox.add(connection.recv_bytes()):
        pass
    return inbox.message()


class Inbox:
    """Assembles a message from its parts."""

    def __init__(self) -> None:
        self._text = bytearray()

    def add(self, part: bytes) -> bool:
        """Add the next part; returns whether it was the last."""
        self._text += part
        return len(part) < PART

    def message(self) -> Any:
        """The complete message."""
        return pickle.loads(self._text)  # noqa: S301 - from our own processes
