"""A barrier of all ranks, and the clock offsets of other hosts."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hios.runtime.distributed.progress_state import ProgressState
from hios.runtime.distributed.transports import Transport
from hios.runtime.distributed.value_exchange import Tags

#: Message numbers: barriers have one a round, up to 2**30 ranks.
_BARRIER, _PING, _PONG = 0, 32, 33
_PINGS = 8


def barrier(transport: Transport, tags: Tags, epoch: int, state: ProgressState, deadline: float) -> None:
    """Wait until all ranks are here: a dissemination barrier (Hensgen, Finkel and Manber 1988), log2(size) rounds.

    Raises:
        TimeoutError: not all ranks arrived before the deadline.
        ConnectionError: a rank is gone.
    """
    rank, size = transport.rank, transport.size
    number, step = 0, 1
    while step < size:
        ahead, behind = (rank + step) % size, (rank - step) % size
        tag = tags.of(epoch, _BARRIER + number)
        received = transport.receive(_message(), behind, tag)
        sent = transport.send(_message(), ahead, tag)
        with state.wait(f"rank {behind} to start", behind):
            received.wait(deadline)
        with state.wait(f"rank {ahead} to start", ahead):
            sent.wait(deadline)
        number, step = number + 1, 2 * step


def offsets(
    transport: Transport,
    tags: Tags,
    epoch: int,
    elsewhere: Sequence[int],
    state: ProgressState,
    deadline: float,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> dict[int, tuple[int, int]]:
    """Offsets of the clocks of other hosts from rank 0's: Cristian's method, with the shortest of several round trips.

    Every rank calls this. Rank 0 queries the ranks with another clock one after another; they answer.

    Args:
        transport: between the ranks.
        tags: of messages.
        epoch: of this run.
        elsewhere: ranks on other hosts than rank 0.
        state: what this rank is doing.
        deadline: by ``time.monotonic``.
        clock: of this rank, nanoseconds.

    Returns:
        On rank 0, for each of them, the offset and its largest error, half of the round trip; nanoseconds.
    """
    if transport.rank in elsewhere:
        for _ in range(_PINGS):
            _receive(transport, 0, tags.of(epoch, _PING), state, deadline)
            _send(transport, 0, tags.of(epoch, _PONG), clock(), state, deadline)
    if transport.rank != 0:
        return {}
    offsets_ns = {}
    for rank in elsewhere:
        trips = []
        for _ in range(_PINGS):
            began = clock()
            _send(transport, rank, tags.of(epoch, _PING), 0, state, deadline)
            theirs = _receive(transport, rank, tags.of(epoch, _PONG), state, deadline)
            ended = clock()
            trips.append((ended - began, theirs - (began + ended) // 2))
        trip, offset = min(trips)
        offsets_ns[rank] = offset, -(-trip // 2)
    return offsets_ns


def hand_round(transport: Transport, memory: Tensor, tag: int, state: ProgressState, deadline: float) -> None:
    """Broadcast bytes from rank 0 to all ranks."""
    if transport.rank != 0:
        with state.wait("the expected outputs", 0):
            transport.receive(memory, 0, tag).wait(deadline)
        return
    for rank in range(1, transport.size):
        with state.wait("the expected outputs to be taken", rank):
            transport.send(memory, rank, tag).wait(deadline)


def _message() -> Tensor:
    return torch.zeros(8, dtype=torch.uint8)


def _send(transport: Transport, rank: int, tag: int, value: int, state: ProgressState, deadline: float) -> None:
    memory = torch.frombuffer(bytearray(struct.pack("<q", value)), dtype=torch.uint8)
    with state.wait(f"rank {rank} to compare clocks", rank):
        transport.send(memory, rank, tag).wait(deadline)


def _receive(transport: Transport, rank: int, tag: int, state: ProgressState, deadline: float) -> int:
    memory = _message()
    with state.wait(f"rank {rank} to compare clocks", rank):
        transport.receive(memory, rank, tag).wait(deadline)
    (value,) = struct.unpack("<q", bytes(memory.tolist()))
    return int(value)
