"""Values between GPUs by NCCL; all other messages go through Gloo. Started by torchrun.

NCCL has no tags, and a message occupies the stream of its communicator until the other side takes it. So every ordered
pair of ranks has a communicator of its own, on which values travel in the order in which the sender makes them.
"""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import permutations
from typing import Any

import torch
import torch.distributed as torch_distributed
from torch import Tensor

from hios.errors import PlatformError, first_line
from hios.runtime.distributed.gloo import Gloo, GlooRequest
from hios.runtime.distributed.transports import Channel, Request


class _StreamRequest:
    """A pending NCCL message: waiting blocks the current stream, not the host."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def wait(self, deadline: float) -> None:
        """Let later launches wait for the message."""
        self._work.wait()


class Pairs:
    """A process group for every ordered pair of ranks.

    Args:
        rank: number of this rank.
        size: how many ranks there are.
        deadline: for a first message on every pair, by ``time.monotonic``.
        backend: of torch.distributed, ``nccl``; another one only in tests.

    Raises:
        PlatformError: ranks cannot reach each other, such as those that share a GPU.
    """

    ordered = True

    def __init__(self, rank: int, size: int, deadline: float, backend: str = "nccl") -> None:
        self._rank = rank
        self._request = _StreamRequest if backend == "nccl" else GlooRequest
        pairs = list(permutations(range(size), 2))
        # NCCL ends a process whose message takes longer, and says less than hios does.
        timeout = timedelta(seconds=2 * max(deadline - time.monotonic(), 1.0))
        self._groups = {
            pair: torch_distributed.new_group(list(pair), timeout=timeout, backend=backend) for pair in pairs
        }
        place = torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")
        try:
            self._connect(place, deadline)
        except RuntimeError as error:
            raise PlatformError(
                f"transport {backend}: rank {rank} cannot reach another one ({first_line(error)}); NCCL needs a GPU "
                "for every rank"
            ) from error

    def _connect(self, place: torch.device, deadline: float) -> None:
        """A first message on every pair, in one order on all ranks, as both sides block to create a communicator."""
        byte = torch.zeros(1, dtype=torch.uint8, device=place)
        for source, destination in self._groups:
            if self._rank == source:
                self.send(byte, destination, 0).wait(deadline)
            elif self._rank == destination:
                self.receive(byte, source, 0).wait(deadline)
        if place.type == "cuda":
            torch.cuda.synchronize(place)

    def send(self, memory: Tensor, destination: int, tag: int) -> Request:
        """Start sending bytes, after earlier work on the current stream."""
        group = self._groups[self._rank, destination]
        return self._request(torch_distributed.isend(memory, destination, group))

    def receive(self, memory: Tensor, source: int, tag: int) -> Request:
        """Receive the bytes of the next message into memory."""
        group = self._groups[source, self._rank]
        return self._request(torch_distributed.irecv(memory, source, group))


class Nccl(Gloo):
    """The ranks of one torchrun, with a GPU each."""

    name = "nccl"

    def channel(self, deadline: float) -> Channel:
        """A group for every pair; the GPU of this rank becomes the current one."""
        if not torch_distributed.is_nccl_available():
            raise PlatformError(
                "transport nccl: this build of torch has no NCCL; use --transport mpi, or another build"
            )
        return Pairs(self.rank, self.size, deadline)

    def versions(self) -> dict[str, str]:
        """Version of NCCL."""
        return {"nccl": ".".join(map(str, torch.cuda.nccl.version()))}
