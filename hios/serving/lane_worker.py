"""Inside a lane: every model loaded once, programs bound to compiled operators, and runs as they are asked for.

Every function here is called through the worker pool; `serve` then takes its orders from a ring in shared memory.
"""

from __future__ import annotations

import functools
import os
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hios.core.graph import Graph
from hios.errors import PlatformError
from hios.files.json_cache import cache_folder
from hios.frontends.example_inputs import example_inputs
from hios.kernels import CompiledOperator, compile_operator
from hios.kernels.compiled_operator import External, externals
from hios.kernels.merged import torch_dtype
from hios.platforms.cpu.runners import Departure, OperatorCall, ValueSlots, dead_after
from hios.platforms.cpu.segment_runtimes import BUDGET_S, PACKED, Converter, Segment, fastest
from hios.platforms.segments import Boundary
from hios.platforms.workloads import deliver, load_weights
from hios.serving.lane_program import LaneProgram, LaneStep, Slots
from hios.workers.arena import Arena
from hios.workers.process_settings import keep_memory
from hios.workers.ring import Bell, Ring, bytes_of, words_of
from hios.workers.worker import Worker, reason

#: Makes of a program and its graph what runs it as a whole, in place of its operators.
Whole = Callable[[str, Graph], Callable[[Sequence[Tensor]], list[Tensor]]]
#: In place of a program: the lane is to end, what it does once it has; it is to be given more programs.
STOP, MORE = -1, -2
#: Of a run on a lane: it went well as far as this lane knows, or it was given up as another lane ended.
DONE, ABORTED = 0, 1
#: Looks at the ring before a lane sleeps, some 50 microseconds.
_LOOKS = 200
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


#: The segment of a model that some steps are, by its operators and the values that are used outside it.
_Key = tuple[tuple[str, ...], tuple[External, ...]]


def _runs_of(steps: Sequence[LaneStep]) -> list[list[LaneStep]]:
    """Steps of a lane by segment: it waits for other lanes at its first step only, and passes on at its last only."""
    runs: list[list[LaneStep]] = []
    for step in steps:
        if runs and not step.waits and not runs[-1][-1].departures and step.part == runs[-1][-1].part:
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs


def _key_of(run: Sequence[LaneStep], program: LaneProgram, operators: Mapping[str, CompiledOperator]) -> _Key:
    """What identifies the segment that some steps of a program are."""
    names = {step.operator for step in run}
    used = {placed.value for step in run for placed in step.stores}
    used |= {handover.value for step in run for handover in step.departures}
    for step in program.steps:
        if step.part == run[0].part and step.operator not in names:
            used.update(operators[step.operator].externals)
    made = (value for step in run for value in operators[step.operator].outputs)
    return tuple(step.operator for step in run), tuple(value for value in made if value in used)


def _chosen(
    worker: Worker, model: _Model, values: Mapping[External, Tensor], keys: Collection[_Key]
) -> dict[_Key, CompiledOperator]:
    """Segments as single operators, where a runtime is faster than the operators one after another.

    ``values`` are all of one inference. No conversion starts after `BUDGET_S`; the longest segments come first.
    """
    graph, deadline = model.graph, time.monotonic() + BUDGET_S
    # Clients send any values: no runtime may answer where an operator would refuse them.
    kinds, folder = ("finite", "masked", "outside"), cache_folder() / "segments"
    converter = Converter(worker, load_weights(model.weights, graph), folder, deadline, kinds)
    recorded: dict[_Key, Segment] = {}
    for names, made in keys:
        own = [model.operators[name] for name in names]
        inside = {value for operator in own for value in operator.outputs}
        read = dict.fromkeys(value for operator in own for value in operator.externals if value not in inside)
        segment = Segment(
            [graph.operators[graph.index[name]] for name in names],
            own,
            Boundary(tuple(read), made),
            [values[value] for value in read],
            [values[value] for value in made],
        )
        recorded[names, made] = segment
    found = {}
    for key, segment in sorted(recorded.items(), key=lambda item: -len(item[1].operators)):
        known_ms, _, sessions = converter.compared(segment)
        runtime = fastest(known_ms)
        if runtime != PACKED:
            found[key] = _segment_operator(segment, sessions[runtime])
    return found


def _segment_operator(segment: Segment, session: Any) -> CompiledOperator:
    """A segment in a runtime; each run overwrites the outputs of the one before."""
    inputs, outputs = (
        [torch.empty(value.shape, dtype=value.dtype) for value in own] for own in (segment.inputs, segment.outputs)
    )
    compute = session.bound(inputs, outputs)

    def run(*values: Tensor) -> Any:
        for own, value in zip(inputs, values, strict=True):
            own.copy_(value)
        compute()
        return outputs if len(outputs) > 1 else outputs[0]

    boundary = segment.boundary
    return CompiledOperator(segment.operators[0].id, boundary.inputs, boundary.outputs, run)


class _Model:
    """A model as operators that are ready to run, of files of graph and weights; or as a ``whole``."""

    def __init__(self, graph: Graph, weights: str, first_mark: int, whole: CompiledOperator | None = None) -> None:
        self.graph, self.weights, self.first_mark, self.whole = graph, weights, first_mark, whole
        self.operators: dict[str, CompiledOperator] = {}
        if whole is None:
            tensors = load_weights(weights, graph)
            self.operators |= {
                operator.id: compile_operator(operator, tensors, packed=True) for operator in graph.operators
            }
        #: Segments that run as one operator.
        self.segments: dict[_Key, CompiledOperator] = {}

    def ways(self, program: LaneProgram, run: Sequence[LaneStep]) -> list[tuple[Sequence[LaneStep], CompiledOperator]]:
        """What runs a segment of a program: as one operator, or one for each step."""
        segment = self.whole
        if self.segments:
            segment = self.segments.get(_key_of(run, program, self.operators))
        return [(run, segment)] if segment else [([step], self.operators[step.operator]) for step in run]

    def warm_up(self) -> dict[External, Tensor]:
        """Run all operators once, as filters are packed at the first run; returns all values."""
        inputs = example_inputs(self.graph.inputs, 0)
        values: dict[External, Tensor] = {
            ("input", entry.name, 0): value for entry, value in zip(self.graph.inputs, inputs, strict=True)
        }
        for place in self.graph.order:
            self.operators[self.graph.operators[place].id].run_on(values)
        return values


def _whole(graph: Graph, run: Callable[[Sequence[Tensor]], list[Tensor]]) -> CompiledOperator:
    """A model that something else runs as a whole, as one operator."""
    inputs: list[External] = [("input", entry.name, 0) for entry in graph.inputs]
    values = {
        value: torch.zeros(tuple(entry.shape), dtype=torch_dtype(entry.dtype))
        for value, entry in zip(inputs, graph.inputs, strict=True)
    }
    run(list(values.values()))  # to warm up
    # What no operator reads has no slot that a run states.
    read = {value for operator in graph.operators for value in externals(operator)}
    given = tuple(value for value in inputs if value in read)
    made = tuple(value.external for value in graph.outputs if value.external is not None)

    def call(*tensors: Tensor) -> Any:
        values.update(zip(given, tensors, strict=True))
        results = run([values[value] for value in inputs])
        return results if len(made) > 1 else results[0]

    return CompiledOperator("", given, made, call)


def load(
    worker: Worker,
    wiring: LaneWiring,
    models: Sequence[tuple[str, str, str]],
    timeout_s: float,
    whole: Whole | None,
    cores: Sequence[int],
    segments: bool,
) -> None:
    """Map the shared memory, and make all operators ready; marks count them in the order of ``models``.

    Models are files of graph, weights and program. With ``segments``, lanes run these, on all of their ``cores``.
    """
    keep_memory()
    arena = Arena(wiring.flags, wiring.size, wiring.descriptor, shares_cores=True)
    arena.channels_last = not segments  # other runtimes take and make images in the default order
    worker.state["cores"] = cores if segments else ()
    worker.state["arena"], worker.state["timeout_s"] = arena, timeout_s
    worker.state["orders"], worker.state["answers"] = Ring(arena, *wiring.orders), Ring(arena, *wiring.answers)
    worker.state["own"], worker.state["server"] = Bell(wiring.own), Bell(wiring.server)
    worker.state["models"] = []
    first = 1
    for graph_path, weights_path, program in models:
        graph = Graph.read(graph_path)
        worker.state["models"].append(
            _Model(graph, weights_path, first, None if whole is None else _whole(graph, whole(program, graph)))
        )
        first += len(graph.operators)


def prepare(worker: Worker, slots: Sequence[Slots], programs: Mapping[int, LaneProgram]) -> None:
    """Bind programs to operators and memory, and run every operator once."""
    for model in worker.state["models"]:
        values = model.warm_up() if model.whole is None else {}
        if worker.state["cores"]:
            _choose(worker, model, values, programs.values())
    worker.state["tables"] = {own.number: _table(worker.state["arena"], own) for own in slots}
    worker.state["programs"] = {}
    prepare_more(worker, programs)


def _choose(worker: Worker, model: _Model, values: Mapping[External, Tensor], programs: Iterable[LaneProgram]) -> None:
    """Choose what runs the segments of a model in programs."""
    models = worker.state["models"]
    keys = dict.fromkeys(
        _key_of(run, program, model.operators)
        for program in programs
        for run in _runs_of(program.steps)
        if models[program.models[run[0].part]] is model
    )
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, worker.state["cores"])  # threads of other runtimes inherit it
    try:
        model.segments = _chosen(worker, model, values, keys)
    finally:
        os.sched_setaffinity(0, own)
    worker.state.pop("sessions", None)  # those that were not chosen hold weights too


def prepare_more(worker: Worker, programs: Mapping[int, LaneProgram]) -> None:
    """Bind more programs, of operators that have run once, and of segments whose runtimes have been chosen."""
    tables = worker.state["tables"]
    for number, program in programs.items():
        worker.state["programs"][number] = _Runner(worker, program, tables)


def _table(arena: Arena, slots: Slots) -> list[Tensor]:
    """A tensor over every slot."""
    dtype, channels_last = torch_dtype(slots.dtype), slots.inside and arena.channels_last
    return [arena.tensor(offset, slots.shape, dtype, channels_last=channels_last) for offset in slots.offsets]


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
        models: list[_Model] = [worker.state["models"][model] for model in program.models]
        self._steps = [
            self._bound(steps, compiled, models[run[0].part], tables)
            for run in _runs_of(program.steps)
            for steps, compiled in models[run[0].part].ways(program, run)
        ]
        for own, dead in zip(
            self._steps, dead_after([([own.call], own.departures) for own in self._steps]), strict=True
        ):
            own.dead = dead

    def _bound(
        self, steps: Sequence[LaneStep], compiled: CompiledOperator, model: _Model, tables: Mapping[int, list[Tensor]]
    ) -> _BlockStep:
        """An operator, or several as one: it waits as the first does, and passes on what the last does."""
        part, first = steps[0].part, steps[0].operator
        slot = functools.partial(self._values.slot, part=part)
        what = "segment of operator" if len(steps) > 1 else "operator"  # of a segment any operator may fail
        call = OperatorCall(
            f"{what} {compiled.id}" if compiled.id else "",
            ((first, 0, None),),
            compiled.run,
            tuple(map(slot, compiled.externals)),
            tuple(map(slot, compiled.outputs)),
            model.first_mark + model.graph.index[first],
        )
        return _BlockStep(
            call,
            1 << part,
            steps[0].waits,
            tuple(self._values.departure(handover, part) for handover in steps[-1].departures),
            tuple((slot(placed.value), tables[placed.slots], placed.place) for step in steps for placed in step.stores),
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
                arena.wait(flag, number, self._timeout_s, f"a value for {step.call.name}")
            if not failed & step.bit:
                try:
                    self._run(step, slots)
                except Exception as error:  # whatever an operator raises: its task fails, the lane goes on
                    failed |= step.bit
                    why = why or f"{step.call.name}: " * bool(step.call.name) + reason(error)
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


def serve(worker: Worker, limit_s: float) -> bool:
    """Run what the ring says; whether the lane is to go on.

    It is, if ``limit_s`` seconds have passed, or it is to be given more programs first.
    """
    orders, answers = worker.state["orders"], worker.state["answers"]
    own, server = worker.state["own"], worker.state["server"]
    programs: dict[int, _Runner] = worker.state["programs"]
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        order = orders.look(_LOOKS)
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


def _numbers(text: str) -> array[int]:
    """A text as numbers, truncated to the size of a message."""
    return words_of(text.encode(errors="replace")[:_REASON_BYTES])


def text_of(numbers: Sequence[int]) -> str:
    """The text of such numbers; the inverse of `_numbers`."""
    return bytes_of(numbers).decode(errors="replace")
