"""A GPU as the one lane of a server: a thread of its own launches runs on streams, or replays their CUDA graphs.

A run's sub-blocks are one launch plan, that of `hios.platforms.cuda.plan`. Values between blocks lie in slots on the
GPU. A graph has fixed addresses, so a run copies what it reads into fixed places and what it makes into slots; copies
and launches are ordered by events. The first runs of a set of sub-blocks are launched on streams, as libraries choose
their algorithms then; the next one is captured, as long as memory is left for that. All sets that a policy can run are
so prepared before the first request.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from hios.core.graph import Edge, Graph, Operator
from hios.core.schedule import Plan, StreamPlan
from hios.files.base import Platform
from hios.kernels.merged import torch_dtype
from hios.kernels.onednn import as_made
from hios.platforms.cuda.compiled_network import Network
from hios.platforms.cuda.graph_pool import cause
from hios.platforms.cuda.launch import Backend, LaunchProgram
from hios.platforms.cuda.plan import Flow, Value
from hios.platforms.workloads import load_weights
from hios.serving.lane import ENDING_S, Answer, LaneEvent
from hios.serving.lane_program import LaneProgram, LaneStep, Placed, Slots
from hios.workers.arena import Arena
from hios.workers.ring import Bell
from hios.workers.worker import reason

#: Runs of a set of sub-blocks that are launched on streams before it is captured.
_WARM_UP = 2
#: Share of the memory that is free once all models are loaded that graphs may take.
_GRAPHS_SHARE = 0.5


@dataclass(frozen=True)
class LaneGpu:
    """A GPU to serve on: its streams, where its tensors lie, and what it is.

    ``free_bytes`` gives back what torch keeps of freed tensors, as a capture does, and says how much memory is free.
    """

    backend: Backend
    place: torch.device
    free_bytes: Callable[[], int]
    platform: Platform


def first_gpu() -> GpuLane:
    """A lane that is the first GPU that torch finds; from then on cuDNN tries its algorithms, in the whole process.

    Raises:
        PlatformError: there is none, or torch is built without CUDA.
    """
    from hios.platforms.cuda.backend import CudaBackend
    from hios.platforms.cuda.devices import describe

    def free_bytes() -> int:
        torch.cuda.synchronize(0)
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(0)[0])

    platform = describe(1)
    torch.backends.cudnn.benchmark = True  # as costs were measured
    return GpuLane(LaneGpu(CudaBackend([0]), torch.device("cuda", 0), free_bytes, platform))


class _Joined:
    """The sub-blocks of a run as one network, which `LaunchProgram` compiles; operators are called PART:ID.

    ``parts`` are those of the program's sub-blocks that it has, in order; ``given`` are tensors for what they read.
    """

    def __init__(
        self, program: LaneProgram, parts: Sequence[int], models: Sequence[_LoadedModel], given: Mapping[Placed, Tensor]
    ) -> None:
        self.steps = [step for step in program.steps if step.part in parts]
        self._models = {part: models[program.models[part]] for part in parts}
        self._home = {_named(step): step for step in self.steps}
        reads = {
            name: [self._value(step.part, value) for value in self._models[step.part].network.reads[step.operator]]
            for name, step in self._home.items()
        }
        self.makes = {
            name: [("operator", name, item) for _, _, item in self._models[step.part].network.makes[step.operator]]
            for name, step in self._home.items()
        }
        edges = {(value[1], name) for name, own in reads.items() for value in own if value[0] == "operator"}
        self.graph = Graph(
            "run", tuple(Operator(name, "unit") for name in self._home), tuple(Edge(*pair) for pair in sorted(edges))
        )
        #: What is copied into slots, with the slots of each.
        self.stores = [
            (self._value(placed.part, placed.value), placed) for step in self.steps for placed in step.stores
        ]
        views = {
            self._value(part, value): [self._value(part, other) for other in others]
            for part, model in self._models.items()
            for value, others in model.views.items()
            if f"{part}:{value[1]}" in self._home
        }
        self.flow = Flow(reads, self.makes, [value for value, _ in self.stores], views)
        self._inputs = {self._value(placed.part, placed.value): place for placed, place in given.items()}

    def _value(self, part: int, value: Value) -> Value:
        """A value of a model as one of the run; what another block made is an input."""
        name = f"{part}:{value[1]}"
        if value[0] == "operator" and name in self._home:
            return ("operator", name, value[2])
        return ("input", f"{part}:{':'.join(map(str, value))}", 0)

    def inputs(self, device: int) -> dict[Value, Tensor]:
        """Where what the run reads is copied to."""
        return dict(self._inputs)

    def function(self, device: int, operators: tuple[str, ...]) -> tuple[Callable[..., Any], tuple[Value, ...]]:
        """Operators of one sub-block, several of them merged into one, with the values that they take."""
        steps = [self._home[name] for name in operators]
        part = steps[0].part
        function, arguments = self._models[part].network.function(device, tuple(step.operator for step in steps))
        return function, tuple(self._value(part, value) for value in arguments)


def _named(step: LaneStep) -> str:
    return f"{step.part}:{step.operator}"


class _LoadedModel:
    """A model on the GPU: its operators, and which values may share memory."""

    def __init__(self, graph: Graph, weights: Mapping[str, Tensor], gpu: LaneGpu) -> None:
        self.network = Network(graph, weights, [gpu.place])
        self.views = self.network.flow(lambda _, function, arguments: function(*arguments)).views
        gpu.backend.synchronize(0)


class _Run:
    """Sub-blocks of a run, launched on streams or replayed; ``why`` says why not the latter, where that is known."""

    def __init__(self, joined: _Joined, plan: Plan, gpu: LaneGpu, given: Mapping[Placed, Tensor]) -> None:
        self._gpu, self._backend, self._given = gpu, gpu.backend, given
        self._program = LaunchProgram(joined, joined.flow, plan, lambda _: None)
        self._origin, *self._others = self._program.lanes
        self._stores = joined.stores
        self._events: dict[Any, Any] = {}
        self._runs = 0
        self._replay: Callable[[], None] | None = None
        self._outputs: list[Any] = []
        self.why = ""

    @property
    def wants_capture(self) -> bool:
        """Whether the next run is to be captured first."""
        return self._runs >= _WARM_UP and self._replay is None and not self.why

    def capture(self) -> int:
        """Capture the launches; returns how much memory that took, and notes why it failed."""
        before = self._gpu.free_bytes()
        try:
            replay, launched = self._backend.capture(self._program.lanes, lambda: self._program.launch(self._backend))
        except Exception as error:  # CUDA cannot capture everything, and memory may not suffice; it runs on streams
            self.why = self._backend.why(cause(error))
        else:
            self._replay, self._outputs = replay, launched.outputs
        return max(0, before - self._gpu.free_bytes())

    def run(self, slots: Sequence[int], tables: Mapping[int, list[Tensor]]) -> None:
        """Run once, with the slots of the values that it reads and makes; returns when all of it has finished.

        Raises:
            Exception: whatever an operator or a copy raises.
        """
        backend = self._backend
        for placed, place in self._given.items():
            backend.run(self._origin, _copy, [tables[placed.slots][slots[placed.place]], place], 1)
        self._order("given", [self._origin], self._others)
        if self._replay is not None:
            self._replay()
            outputs = self._outputs
        else:
            again = self._runs > 0
            outputs = self._program.launch(backend, again=again, alone=not again).outputs
        self._order("made", self._others, [self._origin])
        for value, (_, placed) in zip(outputs, self._stores, strict=True):
            backend.run(self._origin, _copy, [value, tables[placed.slots][slots[placed.place]]], 1)
        backend.synchronize(0)
        self._runs += 1

    def _order(self, when: str, earlier: Sequence[Any], later: Sequence[Any]) -> None:
        """Let some streams wait for what was launched on others; events are used again."""
        for lane in earlier:
            event = self._events[when, lane] = self._backend.record(lane, self._events.get((when, lane)))
            for other in later:
                self._backend.wait(other, event)


def _copy(source: Tensor, target: Tensor) -> Tensor:
    if source.shape != target.shape or source.dtype != target.dtype:
        raise ValueError(f"found {list(source.shape)}; the graph states {list(target.shape)}")
    return target.copy_(source, non_blocking=True)


class GpuLane:
    """A GPU in place of a `LaneProcess`, of which it has the methods: the dispatcher of a server sends it runs.

    A run whose launch fails is tried again sub-block by sub-block, so that only those fail that fail alone. After an
    error of the GPU itself nothing can run in this process any more: the lane is lost, as it is if it hangs.

    Attributes:
        platform: what the GPU is.
        streamed: why runs are launched on streams and are no graphs, by models and the operators that they begin with.
    """

    number, cores = 0, ()

    def __init__(self, gpu: LaneGpu) -> None:
        self._gpu, self.platform = gpu, gpu.platform
        #: Bytes that are left for graphs.
        self._budget = 0
        self.pid = os.getpid()
        self._thread: threading.Thread | None = None

    def connect(
        self,
        arena: Arena,
        server: Bell,
        models: Sequence[tuple[str, str, str]],
        programs: Mapping[int, LaneProgram],
        slots: Sequence[Slots],
        **_: Any,
    ) -> None:
        """Note what the thread is given: inputs and outputs lie in the arena, other values on the GPU.

        Nothing is kept of an earlier server, as programs and slots are numbered by server.
        """
        self._arena, self._bell, self._files, self._slots = arena, server, models, slots
        self._programs = programs
        self._orders: SimpleQueue[tuple[int, int, tuple[int, ...]] | None] = SimpleQueue()
        self._answers: deque[Answer] = deque()
        self._models: list[_LoadedModel] = []
        self._runs: dict[tuple[int, tuple[int, ...]], _Run] = {}
        #: Tensors over the slots of every value, and places for what sub-blocks of a run read; by number of the slots.
        self._tables: dict[int, list[Tensor]] = {}
        self._places: dict[int, list[Tensor]] = {}
        self.streamed: dict[str, str] = {}

    def start(self, event: Callable[[LaneEvent], None]) -> None:
        """Load all models; ``event`` is called, from another thread, when they are there, and when the GPU fails."""
        self._event = event
        self._thread = threading.Thread(target=self._serve, name="hios gpu", daemon=True)
        self._thread.start()

    def extend(self, programs: Mapping[int, LaneProgram]) -> None:
        """Add programs, with numbers above those so far, before one of them is sent; from any one thread."""
        self._programs = {**self._programs, **programs}

    def send(self, run: int, program: int, slots: Sequence[int]) -> None:
        """Run a program."""
        self._orders.put((run, program, tuple(slots)))

    def answer(self) -> Answer | None:
        """The next answer; None if there is none yet."""
        return self._answers.popleft() if self._answers else None

    def clear(self) -> None:
        """Nothing: a GPU that fails stays lost."""

    def kill(self) -> None:
        """Give the GPU up, as it hangs: a process cannot stop what runs there."""
        self._event(LaneEvent(self.number, "lost", "the GPU hangs; start the server again"))

    def stop(self) -> None:
        """End the thread after its current run."""
        self._orders.put(None)

    def join(self, limit_s: float = ENDING_S) -> None:
        """Wait until the thread has ended, or for a time limit: then it ends with the process."""
        if self._thread is not None:
            self._thread.join(limit_s)

    def _serve(self) -> None:
        try:
            with torch.inference_mode(), self._gpu.backend.exactly():
                self._load()
                self._event(LaneEvent(self.number, "ready"))
                while (order := self._orders.get()) is not None:
                    self._answers.append(self._answered(*order))
                    self._bell.ring()
                    self._gpu.backend.synchronize(0)  # raises what the GPU itself has failed with
        except Exception as error:  # whatever it is, callers must not wait for ever
            self._event(LaneEvent(self.number, "lost", f"the GPU failed: {self._gpu.backend.why(cause(error))}"))

    def _load(self) -> None:
        graphs = [Graph.read(graph) for graph, _, _ in self._files]
        self._models = [
            _LoadedModel(graph, load_weights(weights, graph), self._gpu)
            for graph, (_, weights, _) in zip(graphs, self._files, strict=True)
        ]
        for own in self._slots:  # inputs and outputs lie in the arena
            self._tables[own.number] = [
                self._zeros(own) if own.inside else self._arena.tensor(offset, own.shape, torch_dtype(own.dtype))
                for offset in own.offsets
            ]
        self._gpu.backend.synchronize(0)
        self._budget = int(_GRAPHS_SHARE * self._gpu.free_bytes())
        self._prepare()

    def _prepare(self) -> None:
        """Warm up and capture every run that has a plan, on zeros, as long as memory for graphs is left."""
        for number, program in self._programs.items():
            placed = [*program.reads, *(store for step in program.steps for store in step.stores)]
            slots = (0,) * (1 + max((own.place for own in placed), default=0))
            for _ in range(_WARM_UP + 1 if program.plan is not None else 0):
                if self._budget <= 0:
                    return
                try:
                    self._run(number, tuple(range(len(program.models))), slots)
                except Exception:  # a request that fails in the same way is told why
                    self._gpu.backend.synchronize(0)  # raises what the GPU itself has failed with
                    break

    def _answered(self, number: int, program: int, slots: tuple[int, ...]) -> Answer:
        """Run a program, and if that fails each of its sub-blocks alone."""
        parts = tuple(range(len(self._programs[program].models)))
        began, failed, why = time.perf_counter_ns(), 0, ""
        try:
            self._run(program, parts, slots)
        except Exception as error:  # whatever an operator raises
            failed, why = (1, reason(error)) if len(parts) == 1 else self._failed_alone(program, parts, slots)
        return Answer(number, False, failed, began, time.perf_counter_ns(), why)

    def _failed_alone(self, program: int, parts: tuple[int, ...], slots: tuple[int, ...]) -> tuple[int, str]:
        """A bit for each sub-block that fails alone too, and why the first of them does."""
        failed, why = 0, ""
        for part in parts:
            try:
                self._gpu.backend.synchronize(0)  # what was launched of the run that failed is over
                self._run(program, (part,), slots)
            except Exception as error:  # its task fails, the others do not
                failed |= 1 << part
                why = why or reason(error)
        return failed, why

    def _run(self, program: int, parts: tuple[int, ...], slots: tuple[int, ...]) -> None:
        run = self._runs.get((program, parts))
        if run is None:
            run = self._runs[program, parts] = self._made(self._programs[program], parts)
        if run.wants_capture:
            if self._budget > 0:
                self._budget -= run.capture()
            else:
                run.why = "the memory for graphs is used up"
            if run.why:
                own = self._programs[program]
                first = {step.part: step.operator for step in reversed(own.steps)}
                blocks = (f"{self._models[own.models[part]].network.graph.name} from {first[part]}" for part in parts)
                self.streamed[" + ".join(blocks)] = run.why
        run.run(slots, self._tables)

    def _made(self, program: LaneProgram, parts: tuple[int, ...]) -> _Run:
        given: dict[Placed, Tensor] = {}
        taken: Counter[int] = Counter()
        for placed in program.reads:
            if placed.part in parts:  # two blocks of a model may read the value, of two tasks
                places = self._places.setdefault(placed.slots, [])
                if taken[placed.slots] == len(places):
                    places.append(self._zeros(self._slots[placed.slots]))
                given[placed] = places[taken[placed.slots]]
                taken[placed.slots] += 1
        joined = _Joined(program, parts, self._models, given)
        plan = program.plan
        if plan is None or len(parts) < len(program.models):
            every = tuple(range(len(joined.steps)))
            plan = StreamPlan(((every,),), every)
        run = _Run(joined, plan, self._gpu, given)
        self._gpu.backend.synchronize(0)  # places and merged weights are filled on another stream than the run's
        return run

    def _zeros(self, own: Slots) -> Tensor:
        zeros = torch.zeros(own.shape, dtype=torch_dtype(own.dtype), device=self._gpu.place)
        return as_made(zeros)  # in the order in which convolutions read and make images
