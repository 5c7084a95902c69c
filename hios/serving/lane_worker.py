"""Inside a lane: every model loaded once, programs bound to compiled operators, and runs as they are asked for.

Every function here is called through the worker pool; `serve` then takes its orders from a ring in shared memory.
"""

from __future__ import annotations

import functools
import os
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hios.core.graph import Graph
from hios.errors import PlatformError
from hios.kernels import CompiledOperator, compile_operator
from hios.kernels.compiled_operator import External
from hios.kernels.merged import torch_dtype
from hios.platforms.cpu.runners import Departure, OperatorCall, ValueSlots, dead_after
from hios.platforms.workloads import deliver, load_weights
from hios.serving.lane_program import LaneProgram, LaneStep, Slots
from hios.workers.arena import Arena
from hios.workers.process_settings import keep_memory
from hios.workers.ring import Bell, Ring
from hios.workers.worker import Worker, reason

#: Makes of a program and its graph what runs it as a whole, in place of its operators.
Whole = Callable[[str, Graph], Callable[[Sequence[Tensor]], list[Tensor]]]
#: In place of a program: the lane is to end, what it does once it has; it is to be given more programs.
STOP, MORE = -1, -2
#: Of a run on a lane: it went well as far as this lane knows, or it was given up as another lane ended.
DONE, ABORTED = 0, 1
#: Looks at the ring before a lane sleeps, some 50 microseconds, in which it gives its core away after every few.
_LOOKS, _LOOKS_AT_ONCE = 200, 20
#: Numbers in an answer at most: run, state, parts that failed, begin, end, and the reason.
ANSWER_WORDS = 48
_REASON_BYTES = (ANSWER_WORDS - 6) * 8


@dataclass(frozen=True, slots=True)
class LaneWiring:
    """Shared memory of a lane and the server.

    The arena by descriptor, number of flags and size; the rings of orders and answers, each by offset, numbers of a
    message, head and tail; the bells of lane and server by descriptor.
    """

    descriptor: int
    flags: int
    size: int
    orders: tuple[int, int, int, int]
    answers: tuple[int, int, int, int]
    own: int
    server: int


class _Model:
    """A model as operators that are ready to run."""

    def __init__(self, graph: Graph, weights: Mapping[str, Tensor], first_mark: int) -> None:
        self.graph, self.first_mark = graph, first_mark
        self.operators: dict[str, CompiledOperator] = {
            operator.id: compile_operator(operator, weights, packed=True) for operator in graph.operators
        }

    def warm_up(self) -> None:
        """Run all operators once, on zeros: filters are packed at the first run."""
        values: dict[External, Tensor] = {
            ("input", entry.name, 0): torch.zeros(tuple(entry.shape), dtype=torch_dtype(entry.dtype))
            for entry in self.graph.inputs
        }
        for place in self.graph.order:
            compiled = self.operators[self.graph.operators[place].id]
            made = compiled.run(*[values[value] for value in compiled.externals])
            parts = made if isinstance(made, tuple | list) else (made,)
            values.update({("operator", compiled.id, item): part for item, part in enumerate(parts)})


class _WholeModel:
    """A model that something else runs as a whole."""

    def __init__(self, graph: Graph, run: Callable[[Sequence[Tensor]], list[Tensor]], first_mark: int) -> None:
        self.graph, self.run, self.first_mark = graph, run, first_mark

    def warm_up(self) -> None:
        """Run it once, on zeros."""
        self.run([torch.zeros(tuple(entry.shape), dtype=torch_dtype(entry.dtype)) for entry in self.graph.inputs])


def load(
    worker: Worker,
    wiring: LaneWiring,
    models: Sequence[tuple[str, str, str]],
    timeout_s: float,
    whole: Whole | None,
) -> None:
    """Map the shared memory, and make all operators ready; marks count them in the order of ``models``.

    Models are files of graph, weights and program.
    """
    keep_memory()
    arena = Arena(wiring.flags, wiring.size, wiring.descriptor, shares_cores=True)
    worker.state["arena"], worker.state["timeout_s"] = arena, timeout_s
    worker.state["orders"], worker.state["answers"] = Ring(arena, *wiring.orders), Ring(arena, *wiring.answers)
    worker.state["own"], worker.state["server"] = Bell(wiring.own), Bell(wiring.server)
    worker.state["models"] = []
    first = 1
    for graph_path, weights_path, program in models:
        graph = Graph.read(graph_path)
        worker.state["models"].append(
            _Model(graph, load_weights(weights_path, graph), first)
            if whole is None
            else _WholeModel(graph, whole(program, graph), first)
        )
        first += len(graph.operators)


def prepare(worker: Worker, slots: Sequence[Slots], programs: Mapping[int, LaneProgram]) -> None:
    """Bind programs to operators and memory, and run every operator once."""
    for model in worker.state["models"]:
        model.warm_up()
    worker.state["tables"] = {own.number: _table(worker.state["arena"], own) for own in slots}
    worker.state["programs"] = {}
    prepare_more(worker, programs)


def prepare_more(worker: Worker, programs: Mapping[int, LaneProgram]) -> None:
    """Bind more programs, of operators that have run once."""
    tables = worker.state["tables"]
    for number, program in programs.items():
        whole = isinstance(worker.state["models"][program.models[0]], _WholeModel)
        worker.state["programs"][number] = (_WholeRunner if whole else _Runner)(worker, program, tables)


def _table(arena: Arena, slots: Slots) -> list[Tensor]:
    """A tensor over every slot."""
    dtype = torch_dtype(slots.dtype)
    return [
        arena.tensor(offset, slots.shape, dtype, channels_last=slots.inside and arena.channels_last)
        for offset in slots.offsets
    ]


@dataclass(slots=True)
class _BlockStep:
    """A step with its values bound to slots of tensors."""

    call: OperatorCall
    bit: int
    waits: tuple[int, ...]
    departures: tuple[Departure, ...]
    #: Slots of values, tensors of the slots in the arena, and where a run states which.
    stores: tuple[tuple[int, list[Tensor], int], ...]
    #: Slots of values that nothing on this lane reads afterwards.
    dead: tuple[int, ...] = ()


class _Runner:
    """A program bound to operators and shared memory."""

    def __init__(self, worker: Worker, program: LaneProgram, tables: Mapping[int, list[Tensor]]) -> None:
        self._timeout_s: float = worker.state["timeout_s"]
        self._values = values = ValueSlots(worker.state["arena"], worker.mark)
        self._reads = [
            (values.slot(read.value, part=read.part), tables[read.slots], read.place) for read in program.reads
        ]
        for part, handover in program.arrivals:
            values.arrive(handover, part)
        models = [worker.state["models"][model] for model in program.models]
        self._steps = [self._bound(step, models[step.part], tables) for step in program.steps]
        for own, dead in zip(self._steps, dead_after([[own.call] for own in self._steps]), strict=True):
            own.dead = dead

    def _bound(self, step: LaneStep, model: _Model, tables: Mapping[int, list[Tensor]]) -> _BlockStep:
        compiled, number = model.operators[step.operator], model.graph.index[step.operator]
        slot = functools.partial(self._values.slot, part=step.part)
        outputs = len(model.graph.operators[number].output_types)
        call = OperatorCall(
            step.operator,
            None,
            0,
            compiled.run,
            tuple(map(slot, compiled.externals)),
            tuple(slot(("operator", step.operator, item)) for item in range(outputs)),
            model.first_mark + number,
        )
        return _BlockStep(
            call,
            1 << step.part,
            step.waits,
            tuple(self._values.departure(handover, step.part) for handover in step.departures),
            tuple((slot(placed.value), tables[placed.slots], placed.place) for placed in step.stores),
        )

    def run(self, number: int, slots: Sequence[int]) -> tuple[int, str]:
        """Run all operators, with the slots of the values that the program reads and makes.

        An operator that raises fails its sub-block: what follows of that is skipped, though other lanes that wait for
        its values are told that they are there, and whatever they make of them is dropped. Flags with the number of the
        run belong to it.

        Returns:
            A bit for each sub-block that failed, and why the first of them did.

        Raises:
            PlatformError: the server gave the run up.
        """
        arena, tensors = self._values.arena, self._values.tensors
        failed, why = 0, ""
        for place, table, stated in self._reads:
            tensors[place] = table[slots[stated]]
        for step in self._steps:
            for flag in step.waits:
                arena.wait(flag, number, self._timeout_s, f"a value of operator {step.call.operator}")
            if not failed & step.bit:
                try:
                    self._run(step, slots)
                except Exception as error:  # whatever an operator raises: its task fails, the lane goes on
                    failed |= step.bit
                    why = why or f"operator {step.call.operator}: {reason(error)}"
            for _, _, signal in step.departures:
                signal(number)
            for place in step.dead:
                tensors[place] = None
        return failed, why

    def _run(self, step: _BlockStep, slots: Sequence[int]) -> None:
        tensors = self._values.tensors
        self._values.run(step.call)
        for slot, buffer, _ in step.departures:
            deliver(tensors[slot], buffer)
        for slot, table, stated in step.stores:
            deliver(tensors[slot], table[slots[stated]])


class _WholeRunner:
    """A program of a whole model in another runtime, bound to slots."""

    def __init__(self, worker: Worker, program: LaneProgram, tables: Mapping[int, list[Tensor]]) -> None:
        self._model: _WholeModel = worker.state["models"][program.models[0]]
        self._mark, graph = worker.mark, self._model.graph
        read = {placed.value: (tables[placed.slots], placed.place) for placed in program.reads}
        # What no operator reads has no slot that the run states.
        unread = [([torch.zeros(entry.shape, dtype=torch_dtype(entry.dtype))], -1) for entry in graph.inputs]
        self._inputs = [
            read.get(("input", entry.name, 0), other) for entry, other in zip(graph.inputs, unread, strict=True)
        ]
        stores: dict[External, list[tuple[list[Tensor], int]]] = {}
        for step in program.steps:
            for placed in step.stores:
                stores.setdefault(placed.value, []).append((tables[placed.slots], placed.place))
        made = [value.external for value in graph.outputs]
        self._outputs = [stores[value].pop(0) for value in made if value is not None]

    def run(self, number: int, slots: Sequence[int]) -> tuple[int, str]:
        """Run it once; returns the same as that of `_Runner`."""
        self._mark(self._model.first_mark)
        inputs = [table[slots[place]] if place >= 0 else table[0] for table, place in self._inputs]
        try:
            for value, (table, place) in zip(self._model.run(inputs), self._outputs, strict=True):
                deliver(value, table[slots[place]])
        except Exception as error:  # runtimes raise many types: the task fails, the lane goes on
            return 1, reason(error)
        return 0, ""


def serve(worker: Worker, limit_s: float) -> bool:
    """Run what the ring says; whether the lane is to go on.

    It is, if ``limit_s`` seconds have passed, or it is to be given more programs first.
    """
    orders, answers = worker.state["orders"], worker.state["answers"]
    own, server = worker.state["own"], worker.state["server"]
    programs: dict[int, _Runner | _WholeRunner] = worker.state["programs"]
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        order = _next(orders)
        if order is None:
            worker.mark(0)
            own.sleep(min(1.0, limit_s))
            continue
        number, program, *slots = order
        if program in (STOP, MORE):
            return program == MORE
        began = time.perf_counter_ns()
        state, failed, why = DONE, 0, ""
        try:
            failed, why = programs[program].run(number, slots)
        except PlatformError as error:
            state, why = ABORTED, reason(error)
        answers.put((number, state, failed, began, time.perf_counter_ns(), *_numbers(why)))
        server.ring()
    return True


def _next(orders: Ring) -> list[int] | None:
    """The next order, or None if none arrives while polling."""
    for _ in range(_LOOKS // _LOOKS_AT_ONCE):
        for _ in range(_LOOKS_AT_ONCE):
            if (order := orders.get()) is not None:
                return order
        os.sched_yield()  # the server may need this core
    return None


def _numbers(text: str) -> array[int]:
    """A text as numbers, truncated to the size of a message."""
    encoded = text.encode(errors="replace")[:_REASON_BYTES]
    return array("q", (len(encoded),)) + array("q", encoded + bytes(-len(encoded) % 8))


def text_of(numbers: Sequence[int]) -> str:
    """The text of such numbers; the inverse of `_numbers`."""
    return array("q", numbers[1:]).tobytes()[: numbers[0]].decode(errors="replace")
