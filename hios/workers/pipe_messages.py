"""Messages through pipes, sent in parts small enough to fit a pipe, so that no writer blocks in the middle."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

#: Bytes of every part but the last, which is shorter. Linux lets a socket that can be written to take a multiple.
PART = 1 << 14


def parts(text: bytes) -> Iterator[bytes]:
    """A message, which is pickled, in parts."""
    for begin in range(0, len(text) + 1, PART):
        yield text[begin : begin + PART]


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
