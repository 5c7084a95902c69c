"""How a rank runs its part of a competitor and checks the outputs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hios.errors import PlatformError
from hios.frontends.example_inputs import example_inputs
from hios.graph import Graph
from hios.kernels.tensors import nbytes, torch_dtype
from hios.platforms.competitor import Competitor
from hios.platforms.cpu import cpu_worker
from hios.platforms.device_program import ArenaPlan, Buffer, Row, StepProgram
from hios.platforms.protocol import RankDevice
from hios.runtime.distributed.clock_sync import barrier, hand_round, offsets
from hios.runtime.distributed.progress_state import ProgressState
from hios.runtime.distributed.transports import Channel, Transport
from hios.runtime.distributed.value_exchange import RESERVED, Memory, Tags, ValueExchange
from hios.schedule import Placement
from hios.tolerances import compared


@dataclass(frozen=True, slots=True)
class Turn:
    """Measurements of a rank in a run: nanoseconds of its own clock, rows of operators, largest output difference."""

    began: int
    finished: int
    rows: list[Row]
    difference: float


class Turns:
    """A rank with all competitors loaded.

    Attributes:
        memory: of this rank.
        offsets: how far other hosts' clocks were ahead before the last run (``clock_sync.offsets``), on rank 0.

    Args:
        graph: what is run.
        plan: where its values lie, all competitors' programs made.
        competitors: by name.
        transport: to the other ranks.
        channel: for values.
        hardware: of this rank.
        state: what this rank is doing.
        elsewhere: ranks on other hosts than rank 0.
        tolerance: allowed difference of outputs, absolute plus relative.
        timeout_s: longest time of one run.
    """

    def __init__(
        self,
        graph: Graph,
        plan: ArenaPlan,
        competitors: Mapping[str, Competitor],
        transport: Transport,
        channel: Channel,
        hardware: RankDevice,
        state: ProgressState,
        elsewhere: Sequence[int],
        tolerance: float,
        timeout_s: float,
    ) -> None:
        self._graph, self._plan, self._competitors = graph, plan, competitors
        self._transport, self._state, self._elsewhere = transport, state, elsewhere
        self._channel, self._hardware = channel, hardware
        self._tolerance, self._timeout_s = tolerance, timeout_s
        self._tags = Tags(RESERVED + plan.flags + len(plan.outputs), transport.tags)
        self.memory = Memory(plan.flags, plan.size, hardware.place)
        self._worker = hardware.worker(transport.rank, self.memory)
        self._exchanges: dict[str, ValueExchange] = {}
        self._stages: dict[str, dict[str, int | None]] = {}
        self._makes: dict[str, list[int]] = {}
        self._expected: list[Tensor] = []
        self._epoch = 0
        self.offsets: dict[int, tuple[int, int]] = {}

    def load(self, graph: str, weights: str, seed: int) -> None:
        """Compile operators, bind the programs of this rank, and create the inputs.

        Args:
            graph: graph.json.
            weights: weights.safetensors.
            seed: of the input.
        """
        worker, state = self._worker, self._state
        self._hardware.load(worker, graph, weights, self._plan.inputs, self._timeout_s)
        operators = worker.state["operators"]
        for name, operator in operators.items():
            operators[name] = state.watched(operator, self._transport.progress)
        for name, competitor in self._competitors.items():
            programs = [program for program in competitor.programs if isinstance(program, StepProgram)]
            self.memory.exchange = ValueExchange(
                programs, self._transport.rank, self.memory, self._channel, self._tags, state
            )
            self._exchanges[name] = self.memory.exchange
            for program in programs:
                if program.device == self._transport.rank:
                    cpu_worker.prepare(worker, name, program)
                    self._bind(name, program)
        buffers = self._plan.inputs.values()
        for buffer, value in zip(buffers, example_inputs(self._graph.inputs, seed), strict=True):
            self.tensor(buffer).copy_(value)

    def _bind(self, name: str, program: StepProgram) -> None:
        self._stages[name] = {
            operator: step.stage for step in program.steps for group in step.groups for operator in group
        }
        values = [reference.external for reference in self._graph.outputs]
        own = {value for step in program.steps for value, _ in step.results}
        self._makes[name] = [number for number, value in enumerate(values) if value in own]

    def tensor(self, buffer: Buffer) -> Tensor:
        """A buffer as a tensor."""
        return self.memory.tensor(buffer.offset, buffer.shape, torch_dtype(buffer.dtype))

    def expect(self) -> None:
        """Broadcast the outputs in memory of rank 0 as the expected ones."""
        self._state.enter("handing the expected outputs round")
        self._epoch += 1
        transport, state, deadline = self._transport, self._state, time.monotonic() + self._timeout_s
        barrier(transport, self._tags, self._epoch, state, deadline)
        for number, buffer in enumerate(self._plan.outputs):
            if size := nbytes(buffer.shape, buffer.dtype):
                memory = self.memory.tensor(buffer.offset, (size,), torch.uint8)
                tag = self._tags.of(self._epoch, RESERVED + self._plan.flags + number)
                on_host = memory.cpu()
                hand_round(transport, on_host, tag, state, deadline)
                memory.copy_(on_host)
            self._expected.append(self.tensor(buffer).clone())

    def run(self, name: str) -> Turn | None:
        """Run a competitor together with the other ranks; None if this rank takes no part.

        Raises:
            TimeoutError: it took too long.
            ConnectionError: another rank is gone.
            PlatformError: an operator failed, or an output is wrong.
        """
        transport, state = self._transport, self._state
        state.enter(name, self._stages.get(name))
        deadline = time.monotonic() + self._timeout_s
        for buffer in self._plan.outputs:  # so that a competitor that writes nothing fails
            self.tensor(buffer).zero_()
        self._epoch += 1
        exchange = self.memory.exchange = self._exchanges[name]
        exchange.open(self._epoch, deadline)  # before the barrier, so that every message that arrives is expected
        self.offsets = offsets(transport, self._tags, self._epoch, self._elsewhere, state, deadline)
        barrier(transport, self._tags, self._epoch, state, deadline)
        _, _, runner = self._worker.state["programs"].get(name, (0, (), None))
        if runner is None:
            return None
        began = self._hardware.begin()
        rows = runner.run(self._epoch)
        finished, rows = self._hardware.finish(rows, deadline)
        exchange.close()
        return Turn(began, finished, rows, self._difference(name) if self._expected else 0.0)

    def _difference(self, name: str) -> float:
        """Largest absolute difference of the outputs of this rank from the expected ones."""
        largest = 0.0
        for number in self._makes[name]:
            off, within = compared(self.tensor(self._plan.outputs[number]), self._expected[number], self._tolerance)
            if not within:
                raise PlatformError(
                    f"output {number} differs from the reference by up to {off:.3g}; allowed: "
                    f"{self._tolerance:g} absolute plus relative"
                )
            largest = max(largest, off)
        return largest


def joined(
    turns: Mapping[int, Mapping[str, Any]], offsets: Mapping[int, tuple[int, int]], copies: bool
) -> tuple[float, list[Placement]]:
    """Latency and rows of a run from the measurements of its ranks, in the clock of rank 0.

    A run begins when the first rank leaves the barrier and ends when the last one has finished; of copies the latency
    is the harmonic mean.

    Args:
        turns: a ``Turn`` as a dictionary, by rank.
        offsets: of other hosts' clocks (``clock_sync.offsets``).
        copies: whether the ranks ran independent copies.
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
