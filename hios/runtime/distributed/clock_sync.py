"""What ranks tell each other besides values: a barrier, the clock offsets of other hosts, the expected outputs."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hios.runtime.distributed.progress_state import ProgressState
from hios.runtime.distributed.transports import Transport
from hios.runtime.distributed.value_exchange import Tags

#: Message numbers: barriers have one a round, up to 2**30 ranks.
_BARRIER, _PING, _PONG = 0, 32, 33
_PINGS = 8


@dataclass(frozen=True, slots=True)
class Peers:
    """All ranks, as one of them reaches them; every rank calls the same methods in the same order.

    Deadlines are by ``time.monotonic``. Every method raises TimeoutError where a deadline passes, and ConnectionError
    where a rank is gone.
    """

    transport: Transport
    tags: Tags
    state: ProgressState

    def barrier(self, epoch: int, deadline: float) -> None:
        """Wait until all ranks are here.

        A dissemination barrier (Hensgen, Finkel and Manber 1988), log2(size) rounds.
        """
        rank, size = self.transport.rank, self.transport.size
        number, step = 0, 1
        while step < size:
            ahead, behind = (rank + step) % size, (rank - step) % size
            tag = self.tags.of(epoch, _BARRIER + number)
            received = self.transport.receive(_message(), behind, tag)
            sent = self.transport.send(_message(), ahead, tag)
            with self.state.wait(f"rank {behind} to start", behind):
                received.wait(deadline)
            with self.state.wait(f"rank {ahead} to start", ahead):
                sent.wait(deadline)
            number, step = number + 1, 2 * step

    def offsets(
        self, epoch: int, elsewhere: Sequence[int], deadline: float, clock: Callable[[], int] = time.perf_counter_ns
    ) -> dict[int, tuple[int, int]]:
        """Offsets of the clocks of other hosts from rank 0's.

        Cristian's method, with the shortest of several round trips. Rank 0 queries the ranks with another clock one
        after another; they answer.

        Returns:
            On rank 0, for each rank elsewhere, the offset and its largest error, half of the round trip; nanoseconds.
        """
        ping, pong = self.tags.of(epoch, _PING), self.tags.of(epoch, _PONG)
        if self.transport.rank in elsewhere:
            for _ in range(_PINGS):
                self._receive(0, ping, deadline)
                self._send(0, pong, clock(), deadline)
        if self.transport.rank != 0:
            return {}
        offsets_ns = {}
        for rank in elsewhere:
            trips = []
            for _ in range(_PINGS):
                began = clock()
                self._send(rank, ping, 0, deadline)
                theirs = self._receive(rank, pong, deadline)
                ended = clock()
                trips.append((ended - began, theirs - (began + ended) // 2))
            trip, offset = min(trips)
            offsets_ns[rank] = offset, -(-trip // 2)
        return offsets_ns

    def hand_round(self, memory: Tensor, tag: int, deadline: float) -> None:
        """Broadcast bytes from rank 0 to all ranks."""
        if self.transport.rank != 0:
            with self.state.wait("the expected outputs", 0):
                self.transport.receive(memory, 0, tag).wait(deadline)
            return
        for rank in range(1, self.transport.size):
            with self.state.wait("the expected outputs to be taken", rank):
                self.transport.send(memory, rank, tag).wait(deadline)

    def _send(self, rank: int, tag: int, value: int, deadline: float) -> None:
        memory = torch.frombuffer(bytearray(struct.pack("<q", value)), dtype=torch.uint8)
        with self.state.wait(f"rank {rank} to compare clocks", rank):
            self.transport.send(memory, rank, tag).wait(deadline)

    def _receive(self, rank: int, tag: int, deadline: float) -> int:
        memory = _message()
        with self.state.wait(f"rank {rank} to compare clocks", rank):
            self.transport.receive(memory, rank, tag).wait(deadline)
        (value,) = struct.unpack("<q", bytes(memory.tolist()))
        return int(value)


def _message() -> Tensor:
    return torch.zeros(8, dtype=torch.uint8)
