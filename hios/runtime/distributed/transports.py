"""What moves tensors between ranks: messages with tags, sent and received without blocking."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from hios.errors import PlatformError


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


class Transport(Protocol):
    """The ranks that were started together, seen from one of them.

    Attributes:
        name: ``gloo`` or ``mpi``.
        rank: number of this rank.
        size: how many ranks there are.
        tags: how many tags there are, from 0.
    """

    name: str
    rank: int
    size: int
    tags: int

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


#: Names of transports.
TRANSPORTS = ("gloo", "mpi")


def connect(name: str, timeout_s: float) -> Transport:
    """Meet the other ranks.

    Args:
        name: one of ``TRANSPORTS``.
        timeout_s: longest time to wait for them.

    Raises:
        PlatformError: this process was not started by the launcher of that transport, or the ranks do not meet.
    """
    if name == "gloo":
        from hios.runtime.distributed.gloo import Gloo

        return Gloo(timeout_s)
    if name == "mpi":
        from hios.runtime.distributed.mpi import Mpi

        return Mpi()
    raise PlatformError(f"transport: found {name}; allowed: {', '.join(TRANSPORTS)}")
