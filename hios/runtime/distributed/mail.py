"""Values of a program as messages between ranks.

A rank's memory is laid out as the memory that devices of one node share (``hios.platforms.arena``), but it is its own:
raising the flag of a value sends it to the ranks that need it, and waiting for a flag waits for the message. So the
same runner runs a stage here and there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hios.errors import PlatformError
from hios.kernels.tensors import nbytes
from hios.platforms.arena import Arena
from hios.runtime.distributed.position import Position
from hios.runtime.distributed.transports import Request, Transport
from hios.runtime.program import FIRST_READY, Handover, StagedProgram

#: Numbers of messages that are no values: barriers, clocks, expected outputs.
RESERVED = 64


@dataclass(frozen=True, slots=True)
class Tags:
    """Tags of messages: a number of its own for every message of an epoch.

    No more than two epochs are under way at once, so that numbers may come again after ``limit``.

    Args:
        stride: messages of an epoch at most.
        limit: how many tags the transport has.

    Raises:
        PlatformError: the transport has too few.
    """

    stride: int
    limit: int

    def __post_init__(self) -> None:
        if 2 * self.stride > self.limit:
            raise PlatformError(
                f"the schedule hands {self.stride} values over; allowed: {self.limit // 2} with the tags of this MPI"
            )

    def of(self, epoch: int, number: int) -> int:
        """Tag of a message."""
        return (epoch * self.stride + number) % (self.limit - self.limit % self.stride)


class Memory(Arena):
    """A rank's memory. ``mail`` is that of the program that is being prepared or run."""

    mail: Mail

    def setter(self, flag: int) -> Callable[[int], None]:
        """Sends the value of a flag."""
        mail = self.mail

        def send(_: int) -> None:
            mail.send(flag)

        return send

    def wait(self, flag: int, value: int, timeout_s: float, what: str) -> None:
        """Wait for the message of a flag."""
        self.mail.wait(flag, what)


class Mail:
    """Messages of one rank in a program.

    Args:
        programs: of all ranks that take part.
        memory: of this rank.
        transport: to the others.
        tags: of messages.
        position: of this rank.
    """

    def __init__(
        self, programs: Sequence[StagedProgram], memory: Memory, transport: Transport, tags: Tags, position: Position
    ) -> None:
        self._transport, self._tags, self._position = transport, tags, position
        self._destinations: dict[int, list[int]] = defaultdict(list)
        self._sources: dict[int, int] = {}
        self._memory: dict[int, Tensor] = {}
        for program in programs:
            for stage in program.stages:
                for handover in stage.departures:
                    self._bind(handover, memory, program.device)
                for handover in stage.arrivals:
                    self._destinations[handover.flag].append(program.device)
        self._arrivals = [flag for flag, ranks in self._destinations.items() if transport.rank in ranks]
        self._epoch = 0
        self._deadline = 0.0
        self._received: dict[int, Request] = {}
        self._sent: list[tuple[int, Request]] = []

    def _bind(self, handover: Handover, memory: Memory, device: int) -> None:
        self._sources[handover.flag] = device
        size = nbytes(handover.buffer.shape, handover.buffer.dtype)
        # A value without elements is a message too: others wait for it.
        self._memory[handover.flag] = (
            memory.tensor(handover.buffer.offset, (size,), torch.uint8) if size else torch.zeros(1, dtype=torch.uint8)
        )

    def open(self, epoch: int, deadline: float) -> None:
        """Post the receives of a run, ahead of everything that could be sent."""
        self._epoch, self._deadline = epoch, deadline
        self._received = {
            flag: self._transport.receive(self._memory[flag], self._sources[flag], self._tag(flag))
            for flag in self._arrivals
        }

    def send(self, flag: int) -> None:
        """Start to send a value to all ranks that need it."""
        for rank in self._destinations[flag]:
            self._sent.append((rank, self._transport.send(self._memory[flag], rank, self._tag(flag))))

    def wait(self, flag: int, what: str) -> None:
        """Wait until a value is there.

        Raises:
            TimeoutError: the deadline of the run passed.
            ConnectionError: the rank that makes it is not there any more.
        """
        with self._position.wait(what, self._sources[flag]):
            self._received.pop(flag).wait(self._deadline)

    def close(self) -> None:
        """Wait until everything sent has left, so that its memory may be written again."""
        for rank, request in self._sent:
            with self._position.wait("its messages to be taken", rank):
                request.wait(self._deadline)
        self._sent.clear()

    def _tag(self, flag: int) -> int:
        return self._tags.of(self._epoch, RESERVED + flag - FIRST_READY)
