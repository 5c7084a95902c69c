"""How a rank runs its part of a competitor and checks the outputs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hios.errors import PlatformError
from hios.formats.settings import Settings
from hios.frontends.example_inputs import example_inputs
from hios.graph import Graph
from hios.kernels.tensors import nbytes, torch_dtype
from hios.platforms.competitor import Competitor
from hios.platforms.cpu import cpu_worker
from hios.platforms.device_program import ArenaPlan, Buffer, Row, StepProgram
from hios.platforms.protocol import RankDevice
from hios.runtime.distributed.clock_sync import Peers
from hios.runtime.distributed.progress_state import ProgressState
from hios.runtime.distributed.transports import Channel, Transport
from hios.runtime.distributed.value_exchange import RESERVED, RankMemory, Tags, ValueExchange
from hios.schedule import Placement
from hios.tolerances import compared


@dataclass(frozen=True, slots=True)
class Turn:
    """Measurements of a rank in a run: nanoseconds of its own clock, rows of operators, largest output difference."""

    began: int
    finished: int
    rows: list[Row]
    difference: float


@dataclass
class Turns:
    """A rank with all competitors loaded.

    The programs of all competitors are made (`plan`). Values travel by `channel`, all else by `transport`. `elsewhere`
    holds the ranks on other hosts than rank 0, `offsets` how far their clocks were ahead before the last run
    (`Peers.offsets`), on rank 0.
    """

    graph: Graph
    plan: ArenaPlan
    competitors: Mapping[str, Competitor]
    transport: Transport
    channel: Channel
    hardware: RankDevice
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
        self._expected: list[Tensor] = []
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
                    cpu_worker.prepare(worker, name, program)
                    self._bind(name, program)
        buffers = self.plan.inputs.values()
        for buffer, value in zip(buffers, example_inputs(self.graph.inputs, self.settings.seed), strict=True):
            self.tensor(buffer).copy_(value)

    def _bind(self, name: str, program: StepProgram) -> None:
        self._stages[name] = {
            operator: step.stage for step in program.steps for group in step.groups for operator in group
        }
        values = [reference.external for reference in self.graph.outputs]
        own = {value for step in program.steps for value, _ in step.results}
        self._makes[name] = [number for number, value in enumerate(values) if value in own]

    def tensor(self, buffer: Buffer) -> Tensor:
        """A buffer as a tensor."""
        return self.memory.tensor(buffer.offset, buffer.shape, torch_dtype(buffer.dtype))

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
            self._expected.append(self.tensor(buffer).clone())

    def run(self, name: str) -> Turn | None:
        """Run a competitor together with the other ranks; None if this rank takes no part.

        Raises:
            TimeoutError: it took too long.
            ConnectionError: another rank is gone.
            PlatformError: an operator failed, or an output is wrong.
        """
        self.state.enter(name, self._stages.get(name))
        deadline = time.monotonic() + self.settings.timeout_s
        for buffer in self.plan.outputs:  # so that a competitor that writes nothing fails
            self.tensor(buffer).zero_()
        self._epoch += 1
        exchange = self.memory.exchange = self._exchanges[name]
        exchange.open(self._epoch, deadline)  # before the barrier, so that every message that arrives is expected
        self.offsets = self._peers.offsets(self._epoch, self.elsewhere, deadline)
        self._peers.barrier(self._epoch, deadline)
        _, _, runner = self._worker.state["programs"].get(name, (0, (), None))
        if runner is None:
            return None
        began = self.hardware.begin()
        rows = runner.run(self._epoch)
        finished, rows = self.hardware.finish(rows, deadline)
        exchange.close()
        return Turn(began, finished, rows, self._difference(name) if self._expected else 0.0)

    def _difference(self, name: str) -> float:
        """Largest absolute difference of the outputs of this rank from the expected ones."""
        largest = 0.0
        for number in self._makes[name]:
            off, within = compared(
                self.tensor(self.plan.outputs[number]), self._expected[number], self.settings.tolerance
            )
            if not within:
                raise PlatformError(
                    f"output {number} differs from the reference by up to {off:.3g}; allowed: "
                    f"{self.settings.tolerance:g} absolute plus relative"
                )
            largest = max(largest, off)
        return largest


def joined(
    turns: Mapping[int, Mapping[str, Any]], offsets: Mapping[int, tuple[int, int]], copies: bool
) -> tuple[float, list[Placement]]:
    """Latency and rows of a run from the measurements of its ranks, in the clock of rank 0.

    A run begins when the first rank leaves the barrier and ends when the last one has finished; of copies the latency
    is the harmonic mean.
    Turns are dictionaries of a ``Turn``, by rank, and offsets those of other hosts' clocks (`Peers.offsets`).
    """
    offset = {rank: offsets.get(rank, (0, 0))[0] for rank in turns}
    began = min(turn["began"] - offset[rank] for rank, turn in turns.items())
    taken = [(turn["finished"] - offset[rank] - began) / 1e6 for rank, turn in turns.items()]
    latency = len(taken) / sum(1 / part for part in taken) if copies else max(taken)
    rows = [
        Placement(
            operator,
            rank,
            stream,
            stage,
            (start - offset[rank] - began) / 1e6,
            (finish - offset[rank] - began) / 1e6,
        )
        for rank, turn in turns.items()
        for operator, stream, stage, start, finish in turn["rows"]
    ]
    return latency, sorted(rows, key=lambda row: (row.start_ms, row.device))
