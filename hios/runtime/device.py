"""Running a device's program inside its worker. Every function here is called through the worker pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from hios.errors import PlatformError
from hios.graph import Graph
from hios.kernels import CompiledOperator, compile_operator
from hios.kernels.merged import compile_merged
from hios.kernels.tensors import torch_dtype
from hios.kernels.unit import External
from hios.merging import convolutions
from hios.platforms.arena import Arena
from hios.platforms.memory import keep_memory
from hios.platforms.worker import Worker
from hios.runtime.program import (
    FIRST_READY,
    START,
    START_TIME,
    Buffer,
    DeviceProgram,
    StageProgram,
)
from hios.runtime.weights import load_weights

#: One operator's run: id, stream, stage, start and finish in nanoseconds of the monotonic clock.
Row = tuple[str, int, int, int, int]
#: Function, slots of its arguments, slots of its outputs, operator id.
_Step = tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], str]
#: Function, slot of its argument, and output slots and ids of the operators that it merges.
_Merge = tuple[Callable[[Any], tuple[Tensor, ...]], int, tuple[int, ...], tuple[str, ...]]


def load(worker: Worker, graph: str, weights: str, inputs: dict[str, Buffer], timeout_s: float) -> None:
    """Read graph and weights and compile every operator."""
    keep_memory()
    known = Graph.read(graph)
    tensors = load_weights(weights, known)
    operators = known.operators
    worker.state["operators"] = {operator.id: compile_operator(operator, tensors) for operator in operators}
    worker.state["graph"], worker.state["weights"] = known, tensors
    worker.state["outputs"] = {
        operator.id: [("operator", operator.id, item) for item in range(len(operator.details["shapes"]["outputs"]))]
        for operator in operators
    }
    worker.state["inputs"] = {("input", name, 0): _tensor(worker.arena, buffer) for name, buffer in inputs.items()}
    worker.state["timeout_s"] = timeout_s
    worker.state["programs"] = {}


def prepare(worker: Worker, name: str, program: DeviceProgram) -> None:
    """Make a program ready to run under a name."""
    worker.state["programs"][name] = _Runner(worker, program)


def run(worker: Worker, name: str, epoch: int) -> tuple[int, int, list[Row]]:
    """Run a prepared program together with the other devices that take part.

    Args:
        worker: where it runs.
        name: which program.
        epoch: a number that no run had before; flags with this value belong to this run.

    Returns:
        Start of the run and finish of this device (nanoseconds of the monotonic clock), and its operators' rows.
    """
    return worker.state["programs"][name].run(epoch)


def _tensor(arena: Arena, buffer: Buffer) -> Tensor:
    return arena.tensor(buffer.offset, buffer.shape, torch_dtype(buffer.dtype))


def deliver(value: Tensor, buffer: Tensor) -> None:
    """Copy a value into its buffer; ``copy_`` alone would broadcast and convert what does not fit.

    Raises:
        PlatformError: shape or dtype are not those that the graph states.
    """
    if value.shape != buffer.shape or value.dtype != buffer.dtype:
        raise PlatformError(
            f"found a value of shape {tuple(value.shape)} and {value.dtype}; the graph states "
            f"{tuple(buffer.shape)} and {buffer.dtype}"
        )
    buffer.copy_(value)


class _Stage:
    """A stage with its values bound to slots."""

    def __init__(self, stage: StageProgram) -> None:
        self.number = stage.number
        self.arrivals = tuple((handover.flag, handover.value[1]) for handover in stage.arrivals)
        self.groups: list[tuple[_Step, ...]] = []
        #: What runs instead of the groups.
        self.merge: _Merge | None = None
        self.departures: list[tuple[int, Tensor, Callable[[int], None]]] = []
        self.results: list[tuple[int, Tensor]] = []
        #: Slots that nothing reads after this stage.
        self.dead: tuple[int, ...] = ()


class _Runner:
    """A device's program bound to compiled operators and shared memory."""

    def __init__(self, worker: Worker, program: DeviceProgram) -> None:
        self._arena = worker.arena
        self._streams = worker.streams
        self._device = program.device
        self._devices = program.devices
        self._timeout_s: float = worker.state["timeout_s"]
        self._slots: dict[External, int] = {}
        self._values: list[Any] = []
        for value, tensor in worker.state["inputs"].items():
            self._slot(value, tensor)
        self._graph: Graph = worker.state["graph"]
        self._weights: dict[str, Tensor] = worker.state["weights"]
        operators: dict[str, CompiledOperator] = worker.state["operators"]
        self._outputs: dict[str, list[External]] = worker.state["outputs"]
        self._stages = [self._bound(stage, operators) for stage in program.stages]
        self._mark_dead(program, operators)

    def _slot(self, value: External, tensor: Tensor | None = None) -> int:
        if value not in self._slots:
            self._slots[value] = len(self._values)
            self._values.append(tensor)
        return self._slots[value]

    def _bound(self, program: StageProgram, operators: dict[str, CompiledOperator]) -> _Stage:
        stage = _Stage(program)
        for handover in program.arrivals:
            self._slot(handover.value, _tensor(self._arena, handover.buffer))
        for group in program.groups:
            steps = []
            for operator in group:
                compiled = operators[operator]
                arguments = tuple(self._slot(value) for value in compiled.externals)
                outputs = tuple(self._slot(value) for value in self._outputs[operator])
                steps.append((compiled.run, arguments, outputs, operator))
            stage.groups.append(tuple(steps))
        if program.merged:
            stage.merge = self._merge([step for (step,) in stage.groups])
        for handover in program.departures:
            buffer = _tensor(self._arena, handover.buffer)
            stage.departures.append((self._slot(handover.value), buffer, self._arena.setter(handover.flag)))
        for value, buffer_of in program.results:
            stage.results.append((self._slot(value), _tensor(self._arena, buffer_of)))
        return stage

    def _merge(self, steps: Sequence[_Step]) -> _Merge:
        """Operators as one; all of them read the same value and make one."""
        names = tuple(operator for _, _, _, operator in steps)
        known = convolutions(self._graph)
        places = [self._graph.index[name] for name in names]
        function = compile_merged(
            [self._graph.operators[place] for place in places], [known[place] for place in places], self._weights
        )
        return function, steps[0][1][0], tuple(outputs[0] for _, _, outputs, _ in steps), names

    def _mark_dead(self, program: DeviceProgram, operators: dict[str, CompiledOperator]) -> None:
        """Values are let go where they are read last, so that their memory is used again while it is cached."""
        made_here = {operator for stage in program.stages for group in stage.groups for operator in group}
        last: dict[int, int] = {}
        for number, stage in enumerate(program.stages):
            for group in stage.groups:
                for operator in group:
                    last.update(dict.fromkeys(map(self._slot, self._outputs[operator]), number))
                    for value in operators[operator].externals:
                        if value[0] == "operator" and value[1] in made_here:
                            last[self._slot(value)] = number
        for number, bound in enumerate(self._stages):
            bound.dead = tuple(slot for slot, at in last.items() if at == number)

    def run(self, epoch: int) -> tuple[int, int, list[Row]]:
        """See the module's ``run``."""
        arena, values = self._arena, self._values
        rows: list[Row] = []
        began = self._start_together(epoch)
        for stage in self._stages:
            for flag, producer in stage.arrivals:
                arena.wait(flag, epoch, self._timeout_s, f"the output of operator {producer}, stage {stage.number}")
            if stage.merge is not None:
                self._run_merge(stage.merge, stage.number, rows)
            elif len(stage.groups) == 1:
                self._run_group(stage.groups[0], 0, stage.number, rows)
            else:
                self._streams.run(
                    [
                        partial(self._run_group, group, stream, stage.number, rows)
                        for stream, group in enumerate(stage.groups)
                    ]
                )
            for slot, buffer, signal in stage.departures:
                deliver(values[slot], buffer)
                signal(epoch)
            for slot, buffer in stage.results:
                deliver(values[slot], buffer)
            for slot in stage.dead:
                values[slot] = None
        return began, time.perf_counter_ns(), rows

    def _run_group(self, group: Sequence[_Step], stream: int, stage: int, rows: list[Row]) -> None:
        values, clock = self._values, time.perf_counter_ns
        for function, arguments, outputs, operator in group:
            start = clock()
            result = function(*[values[argument] for argument in arguments])
            if len(outputs) == 1:
                values[outputs[0]] = result
            else:
                for output, part in zip(outputs, result, strict=True):
                    values[output] = part
            del result  # else the last result of the group would outlive its slot
            rows.append((operator, stream, stage, start, clock()))

    def _run_merge(self, merge: _Merge, stage: int, rows: list[Row]) -> None:
        function, argument, outputs, operators = merge
        start = time.perf_counter_ns()
        for output, part in zip(outputs, function(self._values[argument]), strict=True):
            self._values[output] = part
        end = time.perf_counter_ns()
        rows += [(operator, stream, stage, start, end) for stream, operator in enumerate(operators)]

    def _start_together(self, epoch: int) -> int:
        """Wait until all devices are here; the first of them takes the time and gives the signal."""
        arena = self._arena
        if self._device != self._devices[0]:
            arena.write(FIRST_READY + self._device, epoch)
            arena.wait(START, epoch, self._timeout_s, "the start signal")
            return arena.read(START_TIME)
        for device in self._devices[1:]:
            arena.wait(FIRST_READY + device, epoch, self._timeout_s, f"device {device} to start")
        began = time.perf_counter_ns()
        arena.write(START_TIME, began)
        arena.write(START, epoch)
        return began
