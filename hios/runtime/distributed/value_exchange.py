"""Values of a program as messages between ranks.

The memory of a rank has the same layout as the memory that devices of one node share (``hios.workers.arena``), but is
private: setting the flag of a value sends it to the ranks that need it, and waiting for a flag waits for the message.
So stages are run by the same code in both cases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hios.errors import PlatformError
from hios.kernels.tensors import nbytes
from hios.platforms.device_program import FIRST_READY, Handover, StepProgram
from hios.runtime.distributed.progress_state import ProgressState
from hios.runtime.distributed.transports import Channel, Request
from hios.workers.arena import Arena

#: Tag numbers of messages other than values: barriers, clocks, expected outputs.
RESERVED = 64


@dataclass(frozen=True, slots=True)
class Tags:
    """Tags of messages: unique for every message of an epoch, which has at most ``stride`` messages.

    At most two epochs are in progress at once, so numbers may be reused after ``limit``, the tags of the transport.

    Raises:
        PlatformError: the transport has too few.
    """

    stride: int
    limit: int

    def __post_init__(self) -> None:
        if 2 * self.stride > self.limit:
            raise PlatformError(
                f"the schedule transfers {self.stride} values; allowed: {self.limit // 2} with the tags of this MPI"
            )

    def of(self, epoch: int, number: int) -> int:
        """Tag of a message."""
        return (epoch * self.stride + number) % (self.limit - self.limit % self.stride)


class RankMemory(Arena):
    """The memory of a rank, on its host or its GPU; ``exchange`` is that of the program being prepared or run."""

    exchange: ValueExchange

    def __init__(self, flags: int, size: int, place: torch.device) -> None:
        on_host = place.type == "cpu"
        super().__init__(flags, size if on_host else 0)
        self.place = place
        #: Only the host's kernels are prepared for that order.
        self.channels_last = on_host
        self._bytes = None if on_host else torch.empty(size, dtype=torch.uint8, device=place)

    def tensor(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype, *, channels_last: bool = False) -> Tensor:
        """A tensor over the buffers, without copying, also for an empty tensor."""
        return super().tensor(offset, shape, dtype, channels_last=channels_last).to(self.place)

    def _numbers(self, offset: int, count: int, dtype: torch.dtype) -> Tensor:
        if self._bytes is None:
            return super()._numbers(offset, count, dtype)
        return self._bytes[offset : offset + count * dtype.itemsize].view(dtype)

    def setter(self, flag: int) -> Callable[[int], None]:
        """A function that sends the value of a flag."""
        exchange = self.exchange

        def send(_: int) -> None:
            exchange.send(flag)

        return send

    def wait(self, flag: int, value: int, timeout_s: float, what: str, *, yielding: bool = False) -> None:
        """Wait for the message of a flag."""
        self.exchange.wait(flag, what)


class ValueExchange:
    """The messages of one rank in a program that all ranks run together."""

    def __init__(
        self,
        programs: Sequence[StepProgram],
        rank: int,
        memory: RankMemory,
        channel: Channel,
        tags: Tags,
        state: ProgressState,
    ) -> None:
        self._channel, self._tags, self._state = channel, tags, state
        self._destinations: dict[int, list[int]] = defaultdict(list)
        self._sources: dict[int, int] = {}
        self._memory: dict[int, Tensor] = {}
        for program in programs:
            for step in program.steps:
                for handover in step.departures:
                    self._bind(handover, memory, program.device)
                for handover in step.arrivals:
                    self._destinations[handover.flag].append(program.device)
        self._arrivals = [flag for flag in self._sources if rank in self._destinations[flag]]
        self._epoch = 0
        self._deadline = 0.0
        self._received: dict[int, Request] = {}
        #: Values whose receives are not posted yet, in the order in which each rank sends them.
        self._open: list[int] = []
        self._sent: list[tuple[int, Request]] = []

    def _bind(self, handover: Handover, memory: RankMemory, device: int) -> None:
        self._sources[handover.flag] = device
        size = nbytes(handover.buffer.shape, handover.buffer.dtype)
        # A value without elements is a message too: others wait for it.
        self._memory[handover.flag] = (
            memory.tensor(handover.buffer.offset, (size,), torch.uint8)
            if size
            else torch.zeros(1, dtype=torch.uint8, device=memory.place)
        )

    def open(self, epoch: int, deadline: float) -> None:
        """Post the receives of a run before anything can be sent, if messages have tags."""
        self._epoch, self._deadline = epoch, deadline
        self._received = {}
        self._open = list(self._arrivals)
        if not self._channel.ordered:
            self._receive(self._open)

    def _receive(self, flags: Sequence[int]) -> None:
        """Post the receives of values."""
        for flag in flags:
            self._received[flag] = self._channel.receive(self._memory[flag], self._sources[flag], self._tag(flag))
        self._open = [flag for flag in self._open if flag not in self._received]

    def send(self, flag: int) -> None:
        """Start to send a value to all ranks that need it."""
        for rank in self._destinations[flag]:
            self._sent.append((rank, self._channel.send(self._memory[flag], rank, self._tag(flag))))

    def wait(self, flag: int, what: str) -> None:
        """Wait until a value is there.

        Raises:
            TimeoutError: the deadline of the run passed.
            ConnectionError: the rank that computes it is gone.
        """
        source = self._sources[flag]
        if flag in self._open:  # in the order in which the sender makes them, and sends
            same = [other for other in self._open if self._sources[other] == source]
            self._receive(same[: same.index(flag) + 1])
        with self._state.wait(what, source):
            self._received.pop(flag).wait(self._deadline)

    def close(self) -> None:
        """Wait until everything has been sent, so that its memory may be overwritten."""
        for rank, request in self._sent:
            with self._state.wait("its messages to be taken", rank):
                request.wait(self._deadline)
        self._sent.clear()

    def _tag(self, flag: int) -> int:
        return self._tags.of(self._epoch, RESERVED + flag - FIRST_READY)
