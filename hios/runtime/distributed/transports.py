"""The interface of transports between ranks: messages with tags, sent and received without blocking."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Request(Protocol):
    """A pending message."""

    def wait(self, deadline: float) -> None:
        """Wait until the memory of the message may be read (received) or overwritten (sent).

        Args:
            deadline: by ``time.monotonic``.

        Raises:
            TimeoutError: the deadline passed.
            ConnectionError: the other rank is gone.
        """
        ...


class Channel(Protocol):
    """How values of a schedule are sent.

    Attributes:
        ordered: whether messages from one rank to another are identified by their order alone, not by tags. A pending
            receive may then block the sender's later messages, so it is posted only when its value is waited for, and
            after the receives of all values that the sender makes before.
    """

    ordered: bool

    def send(self, memory: Tensor, destination: int, tag: int) -> Request:
        """Start sending bytes, which must not change until the request is waited for."""
        ...

    def receive(self, memory: Tensor, source: int, tag: int) -> Request:
        """Receive the bytes of one message into memory."""
        ...


class Transport(Channel, Protocol):
    """The ranks that were started together, seen from one of them, with a channel for what is in host memory.

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
        """The channel for values between devices; everything else is sent by the transport itself from host memory.

        All ranks call it at once, and once, when their devices are ready.

        Args:
            deadline: by ``time.monotonic``.

        Raises:
            PlatformError: devices cannot reach each other.
            TimeoutError: the deadline passed.
        """
        ...

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, on every rank. Blocks; only used at the start."""
        ...

    def progress(self) -> None:
        """Let pending messages advance, if the transport has no thread of its own."""
        ...

    def versions(self) -> dict[str, str]:
        """Versions of the underlying software."""
        ...

    def close(self) -> None:
        """Leave; called by all ranks."""
        ...
