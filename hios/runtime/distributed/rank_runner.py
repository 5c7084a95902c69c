"""How a rank runs its part of a competitor and checks the outputs.

The memory of a rank has the same layout as the memory that devices of one node share (``hios.workers.arena``), but is
private: setting the flag of a value sends it to the ranks that need it, and waiting for a flag waits for the message.
So stages are run by the same code in both cases. Besides values, ranks tell each other that they are at a barrier, the
clock offsets of other hosts, and the expected outputs.
"""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hios.core.graph import Graph
from hios.core.schedule import Placement
from hios.errors import PlatformError
from hios.files.json_cache import cache_folder
from hios.formats.run import SegmentResult
from hios.formats.settings import Settings
from hios.frontends.example_inputs import example_inputs
from hios.frontends.tolerances import OutputCheck, ReducedPrecision
from hios.kernels.merged import nbytes
from hios.platforms.competitor import Competitor
from hios.platforms.cpu import segment_runtimes
from hios.platforms.cpu import worker as cpu_worker
from hios.platforms.program import FIRST_READY, ArenaPlan, Handover, Row, StepProgram
from hios.platforms.protocol import RankDevice
from hios.platforms.workloads import arena_tensor
from hios.runtime.distributed.control_channel import ProgressState
from hios.runtime.distributed.transports import Channel, Request, Transport
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

    def wait(
        self, flag: int, value: int, timeout_s: float, what: str, *, yielding: bool = False, sleeping: bool = False
    ) -> None:
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
        after another; they answer. Returns, on rank 0, for each rank elsewhere, the offset and its largest error, half
        of the round trip; nanoseconds.
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


@dataclass(frozen=True, slots=True)
class Turn:
    """Measurements of a rank in a run: nanoseconds of its own clock, rows of operators, largest output difference.

    ``beyond`` has the outputs that differ by more than the tolerance, and by how much. Rank 0 judges them, as it alone
    has the program that says what rounding explains.
    """

    began: int
    finished: int
    rows: list[Row]
    difference: float
    beyond: list[tuple[int, float]]


@dataclass
class Turns:
    """A rank with all competitors loaded.

    The programs of all competitors are made (`plan`). `reduced` is the precision of timed runs where that of any rank
    is reduced, as what other ranks make follows from it. Values travel by `channel`, all else by `transport`.
    `elsewhere` holds the ranks on other hosts than rank 0, `offsets` how far their clocks were ahead before the last
    run (`Peers.offsets`), on rank 0; `expected` the expected outputs, once there are any.
    """

    graph: Graph
    plan: ArenaPlan
    competitors: Mapping[str, Competitor]
    transport: Transport
    channel: Channel
    hardware: RankDevice
    reduced: ReducedPrecision | None
    state: ProgressState
    elsewhere: Sequence[int]
    settings: Settings

    def __post_init__(self) -> None:
        plan = self.plan
        self._tags = Tags(RESERVED + plan.flags + len(plan.outputs), self.transport.tags)
        self._peers = Peers(self.transport, self._tags, self.state)
        self.memory = RankMemory(plan.flags, plan.size, self.hardware.place)
        self._worker = self.hardware.worker(self.transport.rank, self.memory)
        self._exchanges: dict[str, ValueExchange] = {}
        self._stages: dict[str, dict[str, int | None]] = {}
        self._makes: dict[str, list[int]] = {}
        self.expected: list[Tensor] = []
        self._epoch = 0
        self.offsets: dict[int, tuple[int, int]] = {}

    def load(self, graph: str, weights: str) -> None:
        """Compile operators, bind the programs of this rank, and create the inputs."""
        worker, state = self._worker, self.state
        self.hardware.load(worker, graph, weights, self.plan.inputs, self.settings.timeout_s)
        operators = worker.state["operators"]
        for name, operator in operators.items():
            operators[name] = state.watched(operator, self.transport.progress)
        for name, competitor in self.competitors.items():
            programs = [program for program in competitor.programs if isinstance(program, StepProgram)]
            self.memory.exchange = ValueExchange(
                programs, self.transport.rank, self.memory, self.channel, self._tags, state
            )
            self._exchanges[name] = self.memory.exchange
            for program in programs:
                if program.device == self.transport.rank:
                    cpu_worker.prepare(worker, name, program, segments=competitor.segments is not None)
                    self._bind(name, program)
        buffers = self.plan.inputs.values()
        for buffer, value in zip(buffers, example_inputs(self.graph.inputs, self.settings.seed), strict=True):
            arena_tensor(self.memory, buffer).copy_(value)

    def _bind(self, name: str, program: StepProgram) -> None:
        self._stages[name] = {
            operator: step.stage for step in program.steps for group in step.groups for operator in group
        }
        values = [reference.external for reference in self.graph.outputs]
        own = {value for step in program.steps for value, _ in step.results}
        self._makes[name] = [number for number, value in enumerate(values) if value in own]

    def choose(self, names: Sequence[str], weights: str) -> dict[str, list[SegmentResult]]:
        """Choose what runs the segments of this rank in some competitors, after a run of each by its operators."""
        worker = self._worker
        own = [name for name in names if name in worker.state["programs"]]
        for name in names:
            self.run(name)  # weights are packed in the first run
        for name in own:
            segment_runtimes.record(worker, name)
        for name in names:
            self.run(name)
        chosen, folder = {}, cache_folder() / "segments"
        for name in names:
            if name in own:
                self.state.enter(f"{name}: choosing what runs its segments")
                copies = self.competitors[name].copies
                chosen[name] = segment_runtimes.choose(worker, name, weights, folder, copies=copies)
            self._epoch += 1
            self._peers.barrier(self._epoch, time.monotonic() + self.settings.timeout_s + segment_runtimes.TIMEOUT_S)
        return chosen

    def expect(self) -> None:
        """Broadcast the outputs in memory of rank 0 as the expected ones."""
        self.state.enter("handing the expected outputs round")
        self._epoch += 1
        deadline = time.monotonic() + self.settings.timeout_s
        self._peers.barrier(self._epoch, deadline)
        for number, buffer in enumerate(self.plan.outputs):
            if size := nbytes(buffer.shape, buffer.dtype):
                memory = self.memory.tensor(buffer.offset, (size,), torch.uint8)
                tag = self._tags.of(self._epoch, RESERVED + self.plan.flags + number)
                on_host = memory.cpu()
                self._peers.hand_round(on_host, tag, deadline)
                memory.copy_(on_host)
            self.expected.append(arena_tensor(self.memory, buffer).clone())

    def run(self, name: str, *, exact: bool = False, recording: bool = True) -> Turn | None:
        """Run a competitor together with other ranks, in full float32 if ``exact``; None if this rank takes no part.

        The turn has rows of operators if ``recording``.

        Raises:
            TimeoutError: it took too long.
            ConnectionError: another rank is gone.
            PlatformError: an operator failed.
        """
        self.state.enter(name, self._stages.get(name))
        deadline = time.monotonic() + self.settings.timeout_s
        for buffer in self.plan.outputs:  # so that a competitor that writes nothing fails
            arena_tensor(self.memory, buffer).zero_()
        self._epoch += 1
        exchange = self.memory.exchange = self._exchanges[name]
        exchange.open(self._epoch, deadline)  # before the barrier, so that every message that arrives is expected
        self.offsets = self._peers.offsets(self._epoch, self.elsewhere, deadline)
        self._peers.barrier(self._epoch, deadline)
        _, _, runner = self._worker.state["programs"].get(name, (0, (), None))
        if runner is None:
            return None
        with self.hardware.exactly() if exact else nullcontext():
            began = self.hardware.begin(recording)
            rows = runner.run(self._epoch)
            finished, rows = self.hardware.finish(rows, deadline)
        exchange.close()
        difference, beyond = self._differences(name, exact) if self.expected else (0.0, [])
        return Turn(began, finished, rows, difference, beyond)

    def _differences(self, name: str, exact: bool) -> tuple[float, list[tuple[int, float]]]:
        """Largest absolute difference of own outputs from the expected ones, and those beyond the tolerance."""
        largest, beyond = 0.0, []
        check = self._check(exact)
        for number in self._makes[name]:
            output = arena_tensor(self.memory, self.plan.outputs[number])
            off, within = check.difference(output, self.expected[number])
            if not within:
                beyond.append((number, off))
            largest = max(largest, off)
        return largest, beyond

    def _check(self, exact: bool) -> OutputCheck:
        return OutputCheck.of(self.settings.tolerance, None if exact else self.reduced)

    def wrong(self, number: int, off: float, *, exact: bool) -> str:
        """In words, that an output differs by more than is allowed."""
        return self._check(exact).wrong(number, off)


def joined(
    turns: Mapping[int, Mapping[str, Any]], offsets: Mapping[int, tuple[int, int]], copies: bool
) -> tuple[float, list[Placement]]:
    """Latency and rows of a run from the measurements of its ranks, in the clock of rank 0.

    A run begins when the first rank leaves the barrier. Turns are dictionaries of a ``Turn``, by rank, and offsets
    those of other hosts' clocks (`Peers.offsets`).
    """
    shifted: dict[int, tuple[int, int, list[Row]]] = {}
    for rank, turn in turns.items():
        offset = offsets.get(rank, (0, 0))[0]
        rows = [
            (operator, stream, stage, start - offset, finish - offset)
            for operator, stream, stage, start, finish in turn["rows"]
        ]
        shifted[rank] = turn["began"] - offset, turn["finished"] - offset, rows
    return cpu_worker.joined(shifted, copies)
