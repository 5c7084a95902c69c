"""Running the segments of a device's program, each in the fastest runtime that gives equal outputs.

The functions without underscore are called through the worker pool: the program runs once by its operators and is
recorded, then every runtime is compared with what was recorded, and timed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from hios.core.graph import RECURRENT, Graph, Operator, Value
from hios.errors import ArtifactError, FailedCallError, HiosError, UnsupportedError, first_line
from hios.files import option_defaults
from hios.files.folder_cache import FolderCache
from hios.files.json_cache import JsonCache
from hios.files.versions import versions
from hios.formats.run import SegmentResult
from hios.frontends.known_differences import known, through_onnx
from hios.frontends.tolerances import beyond
from hios.kernels import CompiledOperator
from hios.kernels.compiled_operator import External
from hios.kernels.segment_module import exported
from hios.machine.description import BUSY, OtherWork, processor, variables
from hios.machine.statistics import spread
from hios.platforms.cpu.runners import BoundStep, RunRow, StepRunner, operator_rows
from hios.platforms.program import Row
from hios.platforms.segments import Boundary, boundary, members
from hios.platforms.workloads import deliver, load_weights
from hios.workers.pool import give_back
from hios.workers.worker import Worker, reason

#: Today's kernels, operator by operator, and the runtimes that a segment may run in, by the package of each.
PACKED = "packed"
_PACKAGES = {"onnxruntime": ("onnxruntime", "onnx", "onnxscript"), "openvino": ("openvino",)}
#: Seconds after which a device starts no further conversion of a program's segments.
BUDGET_S = 60.0
#: Longest time of `choose`, as a conversion that has begun is not stopped.
TIMEOUT_S = BUDGET_S + 600.0
#: Why a segment is not converted when that time is over.
_LATE = "not converted within the time for it"
#: Runs that are not timed; timed ones of each runtime, at least and at most, and seconds for all of them.
_WARMUP, _LEAST, _MOST, _SECONDS = 2, 5, 100, 0.1
#: Code that makes converted segments what they are.
_CODE = (
    "kernels/**/*.py",
    "frontends/openvino.py",
    "frontends/onnx_export.py",
    "frontends/known_differences.*",
    "frontends/tolerances.py",
    "formats/onnx_session.py",
    "platforms/cpu/segment_runtimes.py",
)


@dataclass(frozen=True, slots=True)
class Choosing:
    """How an engine chooses: on an example, converting for some seconds; the folder, if any, keeps what was made.

    ``kinds`` are the values for which a runtime must not be known to differ (`hios.frontends.known_differences`).
    """

    example: Sequence[Tensor]
    folder: Path | None
    seconds: float = BUDGET_S
    kinds: tuple[str, ...] = ("finite",)


#: A segment in a runtime: an OnnxSession or OpenVinoSession.
_Session = Any


@dataclass
class Segment:
    """Operators that run one after another, and what they read and made when they were recorded."""

    operators: Sequence[Operator]
    compiled: Sequence[CompiledOperator]
    boundary: Boundary
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    #: Nanoseconds of each operator; empty where they were not timed.
    taken: list[int] = field(default_factory=list)

    def packed(self, outputs: Sequence[Tensor]) -> Callable[[], object]:
        """What runs it by its operators, from what it read to the given tensors."""

        def run() -> None:
            values: dict[External, Any] = dict(zip(self.boundary.inputs, self.inputs, strict=True))
            for operator in self.compiled:
                operator.run_on(values)
            for value, output in zip(self.boundary.outputs, outputs, strict=True):
                deliver(values[value], output)

        return run


class _Step(Segment):
    """A segment that is a step of a program."""

    def __init__(self, worker: Worker, runner: StepRunner, step: BoundStep) -> None:
        own = members(step.program, worker.state["graph"])
        compiled = [worker.state["operators"][operator.id] for operator in own]
        super().__init__(own, compiled, boundary(step.program, worker.state["graph"]))
        self.runner, self.step = runner, step

    def slots(self, values: Sequence[External]) -> list[int]:
        """Of values."""
        return [self.runner.values.slot(value) for value in values]

    def record(self, rows: list[RunRow]) -> None:
        """Run it by its operators."""
        tensors = self.runner.values.tensors
        self.inputs = [tensors[slot].clone() for slot in self.slots(self.boundary.inputs)]
        own: list[RunRow] = []
        self.runner.run_group(self.step.groups[0], self.step, own)
        self.outputs = [tensors[slot].clone() for slot in self.slots(self.boundary.outputs)]
        self.taken = [end - start for *_, start, end in operator_rows(own)]
        rows += own

    def runs(
        self, compute: Callable[[], object], outputs: Sequence[Tensor], name: str
    ) -> Callable[[list[RunRow]], None]:
        """What runs it in a runtime, with the time of its operators in proportion to that when it was recorded."""
        calls, slots, tensors = self.step.groups[0], self.slots(self.boundary.outputs), self.runner.values.tensors
        total = max(sum(self.taken), 1)
        spans = pairwise(part / total for part in accumulate(self.taken, initial=0))
        mark, marker, clock = self.runner.values.mark, calls[0].marker, time.perf_counter_ns
        rows_of = [(*call.places[0], *span) for call, span in zip(calls, spans, strict=True)]

        def run(rows: list[RunRow]) -> None:
            mark(marker)
            start = clock()
            try:
                compute()
            except Exception as error:  # runtimes raise many types
                raise FailedCallError(f"segment of {calls[0].name} in {name}: {reason(error)}") from error
            taken = clock() - start
            for slot, output in zip(slots, outputs, strict=True):
                tensors[slot] = output
            rows.append(partial(spread_over, start, taken))

        def spread_over(start: int, taken: int) -> list[Row]:
            return [
                (operator, stream, stage, start + int(begin * taken), start + int(end * taken))
                for operator, stream, stage, begin, end in rows_of
            ]

        return run


def record(worker: Worker, name: str) -> None:
    """Have the next run of a prepared program recorded."""
    runner = worker.state["programs"][name][2]
    segments = []
    for step in runner.steps if isinstance(runner, StepRunner) else ():
        if isinstance(step, BoundStep) and step.program.places:
            segments.append(_Step(worker, runner, step))
            step.runs = segments[-1].record
    worker.state.setdefault("segments", {})[name] = segments


def choose(
    worker: Worker,
    name: str,
    weights: str,
    folder: Path | None,
    seconds: float = BUDGET_S,
    kinds: tuple[str, ...] = ("finite",),
    copies: bool = False,
) -> list[SegmentResult]:
    """Choose what runs each segment of the program that was recorded, as `Choosing` says.

    ``copies`` says whether other devices run copies of it at the same time.
    """
    device, _, runner = worker.state["programs"][name]
    segments: list[_Step] = worker.state["segments"].pop(name)
    if not segments:
        return []
    graph: Graph = worker.state["graph"]
    converter = Converter(worker, load_weights(weights, graph), folder, time.monotonic() + seconds, kinds)
    chosen: dict[int, tuple[str, _Session]] = {}
    results: dict[int, SegmentResult] = {}
    for number in sorted(range(len(segments)), key=lambda number: -sum(segments[number].taken)):
        segment = segments[number]
        known_ms, why, sessions = converter.compared(segment)
        runtime = fastest(known_ms)
        operators = tuple(operator.id for operator in segment.operators)
        results[number] = SegmentResult(device, operators, runtime, known_ms, why)  # type: ignore[arg-type]
        segment.step.runs = None
        if runtime != PACKED:
            chosen[number] = runtime, sessions[runtime]
    _bind(runner, {number: (segments[number], *own) for number, own in chosen.items()}, copies=copies)
    return [results[number] for number in sorted(results)]


def release(worker: Worker) -> None:
    """Release segments in runtimes that no program runs, with their weights and threads, once all has been chosen."""
    sessions: dict[tuple[str, str], _Session] = worker.state.get("sessions", {})
    used: weakref.WeakValueDictionary[tuple[str, str], _Session] = weakref.WeakValueDictionary(sessions)
    sessions.clear()
    give_back(worker)
    sessions.update(used)


def _bind(runner: StepRunner, chosen: Mapping[int, tuple[_Step, str, _Session]], *, copies: bool) -> None:
    """Bind segments to the buffers of their values; operators then copy what such a segment reads to its buffer.

    Copies of a program have the buffers of the network's outputs in common, so each makes these in one of its own.
    """
    values = runner.values
    steps = [step for step in runner.steps if isinstance(step, BoundStep)]
    made_by = {slot: step for step in steps for group in step.groups for call in group for slot in call.outputs}
    buffers = {slot: tensor for slot, tensor in enumerate(values.tensors) if slot not in made_by}
    for step in steps:
        for slot, buffer in (
            *((slot, buffer) for slot, buffer, _ in step.departures),
            *(() if copies else step.results),
        ):
            buffers.setdefault(slot, buffer)
    inside = {id(segment.step) for segment, *_ in chosen.values()}
    for segment, name, session in chosen.values():
        for slot, value in zip(segment.slots(segment.boundary.inputs), segment.inputs, strict=True):
            maker = made_by.get(slot)
            buffers.setdefault(slot, torch.empty(value.shape, dtype=value.dtype))
            if maker is not None and id(maker) not in inside:
                results = () if copies else maker.results
                delivered = {place for place, *_ in (*maker.departures, *results, *maker.kept)}
                maker.kept += () if slot in delivered else ((slot, buffers[slot]),)
        made = segment.slots(segment.boundary.outputs)
        for slot, value in zip(made, segment.outputs, strict=True):
            buffers.setdefault(slot, torch.empty(value.shape, dtype=value.dtype))
        outputs = [buffers[slot] for slot in made]
        read = [buffers[slot] for slot in segment.slots(segment.boundary.inputs)]
        segment.step.runs = segment.runs(session.bound(read, outputs), outputs, name)


@dataclass
class Converter:
    """Converts segments for runtimes, until a moment of ``time.monotonic``, and compares them."""

    worker: Worker
    weights: Mapping[str, Tensor]
    folder: Path | None
    deadline: float
    kinds: tuple[str, ...]

    def __post_init__(self) -> None:
        self._weight = cache(lambda name: _content_of(self.weights[name]))
        #: Of segments that other programs of this worker have too, by runtime and content.
        self._sessions: dict[tuple[str, str], _Session] = self.worker.state.setdefault("sessions", {})
        files = [file for pattern in _CODE for file in sorted(Path(__file__).parents[2].glob(pattern))]
        code = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
        self._key = {"versions": versions(), "code": code, "kinds": self.kinds}
        self._choices: JsonCache | None = None
        with contextlib.suppress(ArtifactError):  # not writable: nothing is kept
            self._choices = JsonCache(self.folder / "choices", "set HIOS_CACHE") if self.folder else None
        self._files = FolderCache(self.folder / "models" if self.folder and self._choices else None)

    def compared(self, segment: Segment) -> tuple[dict[str, float], dict[str, str], dict[str, _Session]]:
        """Milliseconds by runtime, why others cannot run it, and it in the runtimes that are not ruled out.

        These are kept, unless other work took the cores while they were found.
        """
        content = self._content(segment)
        key = {
            **self._key,
            "content": content,
            "threads": torch.get_num_threads(),
            "processor": processor(),
            "shared": self.worker.arena.shares_cores,
            # Not the numbers of the cores, which hios itself states for the threads of a worker.
            "environment": {name: value for name, value in variables().items() if name != "OMP_PLACES"},
        }
        kept: tuple[dict[str, float], dict[str, str]] | None = None
        if self._choices is not None:
            kept = self._choices.get(key, _choice)
        if kept is not None:
            best = fastest(kept[0])
            sessions, computing, _, _ = self._tried([kind for kind in _PACKAGES if kind == best], segment, content)
            if computing or best == PACKED:
                return *kept, sessions
        sessions, computing, why, passing = self._tried(list(_PACKAGES), segment, content)
        others = OtherWork(os.sched_getaffinity(0))
        known_ms = self._timed(segment, computing)
        # Where workers share cores, which is part of the key, others of them work there all the time.
        busy = bool(computing) and not self.worker.arena.shares_cores and others.share() > BUSY
        if self._choices is not None and not passing and not busy:
            with contextlib.suppress(ArtifactError):  # a full disk: nothing is kept
                self._choices.put(key, {"latency_ms": known_ms, "why": why})
        return known_ms, why, sessions

    def _tried(
        self, kinds: Sequence[str], segment: Segment, content: str
    ) -> tuple[dict[str, _Session], dict[str, Callable[[], object]], dict[str, str], bool]:
        """A segment in runtimes, what computes it where outputs are equal, why not elsewhere, and if that may pass."""
        sessions: dict[str, _Session] = {}
        computing: dict[str, Callable[[], object]] = {}
        why: dict[str, str] = {}
        passing = False
        for kind in kinds:
            try:
                sessions[kind] = self._session(kind, segment, content)
                computing[kind] = self._equal(sessions[kind], segment)
            except Exception as error:  # runtimes raise many types
                why[kind] = str(error) if isinstance(error, HiosError) else first_line(error)
                passing = passing or why[kind] == _LATE or isinstance(error, OSError | MemoryError | ArtifactError)
        return sessions, computing, why, passing

    def _timed(self, segment: Segment, computing: Mapping[str, Callable[[], object]]) -> dict[str, float]:
        """Milliseconds by runtime, taking turns; alone the packed kernels are not timed again where they have been."""
        if not computing and segment.taken:
            return {PACKED: sum(segment.taken) / 1e6}
        samples: dict[str, list[float]] = {PACKED: [], **{kind: [] for kind in computing}}
        packed = segment.packed([torch.empty(value.shape, dtype=value.dtype) for value in segment.outputs])
        until = time.monotonic() + _SECONDS
        for number in range(_WARMUP + _MOST):
            if number >= _WARMUP + _LEAST and time.monotonic() > until:
                break
            for kind, run in {PACKED: packed, **computing}.items():
                began = time.perf_counter_ns()
                run()
                if number >= _WARMUP:
                    samples[kind].append((time.perf_counter_ns() - began) / 1e6)
        return {kind: spread(own)[1] for kind, own in samples.items()}

    def _equal(self, session: _Session, segment: Segment) -> Callable[[], object]:
        """What computes the segment on tensors of its own, whose outputs equal those recorded."""
        outputs = [torch.zeros(value.shape, dtype=value.dtype) for value in segment.outputs]
        compute = session.bound([value.contiguous() for value in segment.inputs], outputs)
        compute()
        for (_, operator, _), output, right in zip(segment.boundary.outputs, outputs, segment.outputs, strict=True):
            if (off := beyond([output], [right], option_defaults.TOLERANCE)) is not None:
                raise UnsupportedError(
                    f"its output of operator {operator} differs by {off:.3g} of its largest value; allowed: "
                    f"{option_defaults.TOLERANCE:g}"
                )
        return compute

    def _session(self, kind: str, segment: Segment, content: str) -> _Session:
        """The segment in a runtime; an `UnsupportedError` if it cannot be converted, or is known to differ."""
        if (kind, content) not in self._sessions:
            for package in _PACKAGES[kind]:
                if importlib.util.find_spec(package) is None:
                    raise UnsupportedError(f"needs {package}, which is not installed")
            folder = self._files.find({**self._key, "runtime": kind}, content)
            if folder is not None:
                self._sessions[kind, content] = _loaded(kind, folder)
            else:
                with self._files.workspace() as workspace:
                    self._convert(kind, segment, workspace)
                    self._sessions[kind, content] = _loaded(kind, workspace)
                    self._files.keep({**self._key, "runtime": kind}, content, workspace)
        return self._sessions[kind, content]

    def _convert(self, kind: str, segment: Segment, folder: Path) -> None:
        if time.monotonic() > self.deadline:
            raise UnsupportedError(_LATE)
        inputs = dict(zip(segment.boundary.inputs, segment.inputs, strict=True))
        made = exported(segment.operators, inputs, segment.boundary.outputs, self.weights)
        recurrent = any(call.function in RECURRENT for own in segment.operators for call in own.calls)
        if kind == "openvino" and recurrent and not through_onnx(made.graph):
            raise UnsupportedError("it would run recurrent layers step by step")
        if operators := known(made.graph, kind, *self.kinds):
            raise UnsupportedError(f"it is known to give other outputs: {', '.join(operators)}")
        with torch.inference_mode(False), torch.no_grad():
            if kind == "openvino":
                from hios.frontends import openvino

                openvino.save(openvino.converted(made, "a segment"), folder / "model.xml")
            else:
                from hios.frontends.onnx_export import to_onnx

                (folder / "model.onnx").write_bytes(to_onnx(made))

    def _content(self, segment: Segment) -> str:
        """Hash of all that its outputs follow from but the values of its inputs: calls, types and weights."""
        operators = segment.operators
        numbers = {value: number for number, value in enumerate(segment.boundary.inputs)}
        places = {operator.id: place for place, operator in enumerate(operators)}

        def named(argument: Value) -> list[Any]:
            if (value := argument.external) is not None:
                return ["input", numbers[value]] if value in numbers else ["made", places[value[1]], value[2]]
            return [argument.weight and self._weight(argument.weight), argument.call, argument.constant]

        calls = [
            [[[call.function, call.attributes, *map(named, call.arguments)] for call in own.calls], own.output_types]
            for own in operators
        ]
        types = [[list(value.shape), str(value.dtype)] for value in segment.inputs]
        made = [[places[name], item] for _, name, item in segment.boundary.outputs]
        return hashlib.sha256(msgspec.json.encode([calls, types, made], order="sorted")).hexdigest()


def fastest(known_ms: Mapping[str, float]) -> str:
    """The runtime of the least time."""
    return min(known_ms, key=known_ms.__getitem__)


def _loaded(kind: str, folder: Path) -> _Session:
    """A converted segment, with as many threads as the device has cores."""
    threads = torch.get_num_threads()
    if kind == "openvino":
        from hios.frontends import openvino

        return openvino.OpenVinoSession(openvino.load(folder / "model.xml"), threads=threads)
    from hios.formats.onnx_session import OnnxSession

    return OnnxSession("a segment", (folder / "model.onnx").read_bytes(), threads=threads)


def content_digest(tensor: Tensor) -> str:
    """Hash of the contents of a tensor."""
    return hashlib.sha256(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data).hexdigest()


def _content_of(tensor: Tensor) -> list[Any]:
    return [content_digest(tensor), list(tensor.shape), str(tensor.dtype)]


def _choice(entry: Any) -> tuple[dict[str, float], dict[str, str]]:
    return msgspec.convert((entry["latency_ms"], entry["why"]), tuple[dict[str, float], dict[str, str]])
