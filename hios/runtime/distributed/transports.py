"""What moves tensors between ranks: messages with tags, sent and received without blocking."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Request(Protocol):
    """A message on its way."""

    def wait(self, deadline: float) -> None:
        """Return when the memory of the message may be read (received) or written again (sent).

        Args:
            deadline: by ``time.monotonic``.

        Raises:
            TimeoutError: the deadline passed.
            ConnectionError: the other rank is not there any more.
        """
        ...


class Channel(Protocol):
    """What values of a schedule travel on.

    Attributes:
        ordered: whether messages from one rank to another are told apart by their order alone, not by tags. A receive
            may then keep the sender's later messages waiting, so it is posted when its value is waited for, and after
            those of all values that the sender makes before.
    """

    ordered: bool

    def send(self, memory: Tensor, destination: int, tag: int) -> Request:
        """Start to send bytes; they must stay as they are until the request was waited for."""
        ...

    def receive(self, memory: Tensor, source: int, tag: int) -> Request:
        """Have the bytes of one message put into memory when they arrive."""
        ...


class Transport(Protocol):
    """The ranks that were started together, seen from one of them.

    Attributes:
        name: gloo, nccl or mpi.
        rank: number of this rank.
        size: how many ranks there are.
        tags: how many tags there are, from 0.
    """

    name: str
    rank: int
    size: int
    tags: int

    def channel(self, deadline: float) -> Channel:
        """For values between devices; everything else goes by the transport itself, from the host's memory.

        All ranks call it at once, and once, when their devices are ready.

        Args:
            deadline: by ``time.monotonic``.

        Raises:
            PlatformError: devices cannot reach each other.
            TimeoutError: the deadline passed.
        """
        ...

    def gather(self, value: Any) -> list[Any]:
        """What every rank gave, on every rank; blocks, and is for the start only."""
        ...

    def send(self, memory: Tensor, destination: int, tag: int) -> Request:
        """Start to send bytes; they must stay as they are until the request was waited for."""
        ...

    def receive(self, memory: Tensor, source: int, tag: int) -> Request:
        """Have the bytes of one message put into memory when they arrive."""
        ...

    def progress(self) -> None:
        """Give messages on their way a moment, where the transport has no thread of its own for that."""
        ...

    def versions(self) -> dict[str, str]:
        """Versions of the software behind it."""
        ...

    def close(self) -> None:
        """Leave; all ranks do so."""
        ...
