"""A model to be optimized, and preparing its candidates within the budget: other runtimes, and schedules."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, fx

from hios.core.feedback import CLOSE
from hios.core.schedule import Placement
from hios.errors import ExampleInputsError, HiosError, first_line, missing_extra
from hios.frontends.known_differences import known, through_onnx
from hios.frontends.models import RUNTIMES
from hios.machine.description import private_bytes, usable_cores
from hios.optimizing import runtimes
from hios.optimizing.candidates import EAGER, OTHERS, SCHEDULE, Candidate, distinct, in_runtime, itself
from hios.optimizing.module import torch_threads, warn
from hios.optimizing.options import Options
from hios.optimizing.report import Budget, RaceOutcome, WayReport
from hios.optimizing.runtimes import Conversion
from hios.optimizing.schedules import ScheduleProposals, tasks
from hios.optimizing.tracing import Exported, ModelInputs, ModelOutputs, Traced, export, extract
from hios.platforms.cpu.engine import Engine
from hios.platforms.program import is_wide

#: Runtimes converted in a separate process, the quicker one first: conversion takes long, and can be stopped there.
_APART = ("onnxruntime", "compile")
#: Seconds that stopping a conversion may take, so that what follows still fits.
_STOPPING_S = 1.0
#: Calls of the model in whose time a way is tried: some calls of its own, and others of both on other inputs.
_TRYING_CALLS = 7
#: Share of the time before the race in which segments of schedules may be converted for other runtimes.
_SEGMENTS_SHARE = 0.5
#: How often costs that a schedule measured may give another schedule, and seconds without which none is tried.
_ROUNDS, _ROUND_S = 3, 2.0
#: Runs that measure costs, after those that do not.
_WARMUP, _TIMED = 2, 9


#: In the names of ATen operators that divide.
_DIVISIONS = ("div", "rem", "fmod", "gcd", "lcm")


def _divides(node: fx.Node) -> bool:
    """Whether an operator divides whole numbers."""
    made = node.meta.get("val")
    is_whole = isinstance(made, Tensor) and not (made.is_floating_point() or made.is_complex())
    return is_whole and any(name in str(node.target) for name in _DIVISIONS)


@dataclass
class Subject:
    """A model that is optimized, with its example inputs and what the user asks for.

    It may run as often as needed once it is known to have no side effects. Divisions hold the cores of every device,
    for each way to divide the machine that is considered.

    Raises:
        HiosError: the model does not take these inputs, or they are not plain tensors.
    """

    model: torch.nn.Module
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: Options
    divisions: list[list[list[int]]]

    def __post_init__(self) -> None:
        self.name = type(self.model).__name__
        self.threads = torch.get_num_threads()
        #: Cores of one device that has them all: those of the devices, or as many as torch uses.
        self.everything = usable_cores()[: max(*(sum(map(len, own)) for own in self.divisions), self.threads)]
        self.inputs = ModelInputs(self.args, self.kwargs, self.model)
        self.tensors = self.inputs.required(self.args, self.kwargs)
        if len(set(map(id, self.tensors))) < len(self.tensors):  # an output might be any of them
            self.tensors = [tensor.detach().clone() for tensor in self.tensors]
            self.args, self.kwargs = self.inputs.rebuilt(self.tensors)

    def run_once(self) -> list[Tensor]:
        """Run the model once; returns its tensors and records the structure of its outputs.

        Raises:
            ExampleInputsError: it cannot run on them.
            UnsupportedError: none of its outputs is computed.
        """
        try:
            with torch.no_grad():
                given = self.model(*self.args, **self.kwargs)
        except Exception as error:  # whatever the model raises
            raise ExampleInputsError(
                f"example inputs: {self.name} cannot run on them: {type(error).__name__}: {first_line(error)}"
            ) from error
        self.outputs = ModelOutputs(given, self.tensors)
        expected = self.outputs.tensors
        self.outputs.forget()
        if not expected:
            raise self.outputs.refusal(self.name)
        return expected

    def run_model(self, threads: int, tensors: list[Tensor]) -> list[Tensor]:
        """Run the model itself with a number of threads, after `run_once`; its tensors."""
        args, kwargs = (self.args, self.kwargs) if tensors is self.tensors else self.inputs.rebuilt(tensors)
        with torch_threads(threads), torch.no_grad():
            outputs = self.model(*args, **kwargs)
        return self.outputs.flat(outputs)


@dataclass
class ReadyCandidate:
    """A candidate that is ready to run.

    Preparing it took ``prepare_s`` seconds, exporting included, until ``ready_s`` seconds after the beginning; the last
    ``load_s`` of these loaded it. It takes ``memory_mb`` in addition to the model itself; None if that is not known.
    """

    candidate: Candidate
    run: runtimes.Run
    prepare_s: float
    ready_s: float
    memory_mb: float | None = None
    load_s: float = 0.0


@dataclass
class Preparation:
    """Everything prepared for one model, which has run once; closing it stops the workers and releases the rest.

    Files of runtimes go to the folder; ``final_s`` seconds of the budget are for the last rounds of the race, and
    ``most_s`` at most for all of it. ``early`` is called when another of the ways that are quick to prepare is ready,
    with those that are still to come.
    """

    subject: Subject
    budget: Budget
    folder: Path
    final_s: float
    early: Callable[[Sequence[str]], object] = lambda coming: None
    most_s: float = math.inf
    ready: dict[str, ReadyCandidate] = field(default_factory=dict, init=False)
    #: Rows of the report for ways that are not ready.
    absent: list[WayReport] = field(default_factory=list, init=False)
    engine: Engine | None = field(default=None, init=False)
    traced: Traced | None = field(default=None, init=False)
    exported: Exported | None = field(default=None, init=False)
    #: Conversions in separate processes, by runtime and file.
    _conversions: dict[str, Conversion] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.options, self.everything = self.subject.options, self.subject.everything

    def prepare(self) -> None:
        """Prepare all candidates that the user asks for, and the model as it runs now, which always takes part.

        Raises:
            HiosError: the model cannot be exported, or a way that is asked for by name cannot be prepared.
        """
        today = self.subject.threads
        counts = sorted({today, 1, len(self.everything)} - {today}) if EAGER in self.options.ways else []
        for candidate in map(itself, [today, *counts]):
            self._add(candidate, functools.partial(self.subject.run_model, candidate.threads), 0.0, 0.0)
        others = [kind for kind in OTHERS if kind in self.options.ways and self._usable(kind)]
        schedules = [SCHEDULE] if SCHEDULE in self.options.ways else []
        with contextlib.ExitStack() as conversions:
            if _APART[0] in others:
                self._launch(_APART[0], conversions)
            conversions.enter_context(runtimes.rare_collections())
            if (others or schedules) and self._export([*others, *schedules]):
                self._prepare([kind for kind in others if not self._differs(kind)], schedules, conversions)
        if self.traced is not None:
            self._attempt(SCHEDULE, self._start_engine, "costs", "engine")

    def _prepare(self, others: Sequence[str], schedules: Sequence[str], conversions: contextlib.ExitStack) -> None:
        """Prepare other runtimes of what was exported, and extract the graph if there are to be schedules."""
        coming = [*others, *schedules]
        # What is quick to prepare comes first, and has the cores for itself if there are few: a short budget is then
        # enough for most of the gain.
        at_once = _APART if len(usable_cores()) > len(_APART) else _APART[:1]
        self._start([kind for kind in at_once if kind in others], conversions)
        if "openvino" in others:
            self._in_process("openvino")
            self.early(coming[1:])
        if took := self._await("onnxruntime"):
            if "openvino" in others and not through_onnx(self._program().graph):  # which has it already
                self._load_onnx(took)
            self.early(coming[coming.index("onnxruntime") + 1 :])
        self._load_alone()
        self._start([kind for kind in _APART if kind in others and kind not in at_once], conversions)
        if schedules:
            self._attempt(SCHEDULE, self._extract, "extract", "costs", "engine")
        self._await("compile")

    def _usable(self, kind: str) -> bool:
        """Whether a runtime is installed."""
        if lacking := runtimes.missing(kind):
            self._note(kind, "not started", lacking)
        return not lacking

    def _differs(self, kind: str) -> bool:
        """Whether a runtime is known to answer differently."""
        if operators := self.known(kind, *self.options.different):
            self._note(kind, "different", f"it is known to give other outputs: {', '.join(operators)}")
        return bool(operators)

    def known(self, runtime: str, *kinds: str) -> list[str]:
        """Operators of the model for which a runtime is known to differ on values of these kinds."""
        return [] if self.exported is None else known(self.exported.program.graph, runtime, *kinds)

    def divides(self) -> bool:
        """Whether the model may divide whole numbers."""
        return self.exported is None or any(map(_divides, self.exported.program.graph.nodes))

    def known_of(self, candidate: Candidate, kind: str) -> list[str]:
        """Operators for which the runtime of a candidate, or that for which it was converted, is known to differ."""
        both = (candidate.kind, candidate.converted_for)
        return list(dict.fromkeys(name for runtime in both for name in self.known(runtime, kind)))

    def _note(
        self,
        kind: str,
        outcome: RaceOutcome,
        why: str,
        prepare_s: float | None = None,
        *,
        threads: int = 0,
        from_onnx: bool = False,
    ) -> None:
        """Say why a way takes no part, with so many threads or all; an error if the user chose it."""
        if self.options.asks_for(kind) and not threads:
            raise HiosError(f"way {kind}: {why}")
        threads = threads or len(self.everything)
        label = "schedules" if kind == SCHEDULE else in_runtime(kind, threads, from_onnx=from_onnx).label
        self.absent.append(WayReport(label, kind, outcome, why, prepare_s=prepare_s))

    def _export(self, kinds: Sequence[str]) -> bool:
        """Export the model; returns whether the budget allowed it, a `HiosError` if it cannot be exported."""
        if why := self.budget.too_short_for("export", keep_s=self._kept_s):
            for kind in kinds:
                self._note(kind, "not started", why)
            return False
        began = time.monotonic()
        with self.budget.step("export", "exporting"):
            self.exported = export(self.subject.model, self.subject.args, self.subject.kwargs, self.subject.outputs)
        operators = sum(node.op == "call_function" for node in self._program().graph.nodes)
        self.budget.operators = self.budget.graph_operators = operators
        self._export_s = time.monotonic() - began
        return True

    @property
    def reserve_s(self) -> float:
        """Seconds of the budget that are for the race, in which each way is tried before some run in turns."""
        return min(self.final_s + _TRYING_CALLS * len(self.ready) * self.budget.call_s, self.most_s)

    @property
    def _kept_s(self) -> float:
        """Seconds reserved for the race; none if the user chose a candidate, which is prepared in any case."""
        return self.reserve_s if self.options.is_auto else -float("inf")

    @property
    def concurrent(self) -> int:
        """How many conversions run in separate processes."""
        return sum(conversion.runs for conversion in self._conversions.values())

    def _start(self, kinds: Sequence[str], conversions: contextlib.ExitStack) -> None:
        """Start conversions in separate processes, which run while other candidates are prepared."""
        program = self.folder / "program.pt2"
        for kind in kinds:
            if why := self.budget.too_short_for(kind, keep_s=self._kept_s, concurrent=1 + self.concurrent):
                self._note(kind, "not started", why)
                continue
            if not program.exists() and (why := self._write(program)):
                self._note(kind, "refused", why)
                continue
            if kind not in self._conversions:
                self._launch(kind, conversions)
            self._conversions[kind].begin(program)

    def _launch(self, kind: str, conversions: contextlib.ExitStack) -> None:
        """Launch the process of a conversion, which loads what it needs."""
        threads = len(self.everything)
        self._conversions[kind] = Conversion(kind, runtimes.file(kind, self.folder, threads), threads)
        conversions.callback(self._conversions[kind].end)

    def _write(self, path: Path) -> str:
        """Write the program for other processes; returns why that failed, or an empty text."""
        from hios.frontends import program as programs

        self.budget.show("writing the program")
        try:
            programs.save(self._program(), path)
        except Exception as error:  # torch raises many types of errors for programs it cannot save
            return f"torch.export cannot save the model: {first_line(error)}"
        return ""

    def _program(self) -> torch.export.ExportedProgram:
        assert self.exported is not None  # noqa: S101 - nothing that needs it runs before
        return self.exported.program

    def _await(self, kind: str) -> float:
        """Wait for a conversion, if it was started, as long as the budget goes, and load what it made.

        Returns the seconds that it took, 0 if there is none.
        """
        if (conversion := self._conversions.pop(kind, None)) is None or not conversion.begun:
            return 0.0
        self.budget.show(f"converting for {in_runtime(kind, 1).label.partition(',')[0]}")
        until = float("inf")
        if self.options.is_auto:
            schedules_s = sum(map(self.budget.predicted_s, ("costs", "engine"))) if self.traced is not None else 0.0
            until = self.budget.deadline - self.reserve_s - schedules_s - _STOPPING_S
        why, took = conversion.finish(until), conversion.took_s
        if why:
            self._note(kind, "refused", why, took)
            return 0.0
        self.budget.took(kind, took, 1 + self.concurrent)
        self._attempt(kind, functools.partial(self._load, kind, self._export_s + took))
        return took

    def _in_process(self, kind: str) -> None:
        def convert() -> None:
            began = time.monotonic()
            with self.budget.step(kind, f"converting for {RUNTIMES[kind]}", self.concurrent):
                runtimes.convert(kind, self._program(), runtimes.file(kind, self.folder, 0), 0)
                self._load(kind, self._export_s + time.monotonic() - began)

        self._attempt(kind, convert, kind)

    def _load_onnx(self, took: float) -> None:
        """Have OpenVINO read the file for ONNX Runtime, which took so long, as the two conversions differ in speed."""

        def load() -> None:
            with self.budget.step("load", "loading OpenVINO from ONNX", self.concurrent):
                self._load("openvino", self._export_s + took, from_onnx=True)

        self._attempt("openvino", load, "load", from_onnx=True)

    def _load_alone(self) -> None:
        """Load the runtimes that are quick to load with one thread too."""
        for ready in self.quick[1:]:
            if ready.threads > 1 and not ready.from_onnx:
                load = functools.partial(self._load_with_one, self.ready[ready.label])
                self._attempt(ready.kind, load, "load", threads=1)

    def _load_with_one(self, ready: ReadyCandidate) -> None:
        """Load what is ready with all threads with one thread too."""
        kind = ready.candidate.kind
        with self.budget.step("load", f"loading {in_runtime(kind, 1).label}", self.concurrent):
            self._load(kind, ready.prepare_s - ready.load_s, 1)

    def _load(self, kind: str, took: float, threads: int = 0, *, from_onnx: bool = False) -> None:
        """Load what was converted in so many seconds, export included, with so many threads or all."""
        tensors, began, before = self.subject.tensors, time.monotonic(), private_bytes(os.getpid())
        candidate = in_runtime(kind, threads or len(self.everything), from_onnx=from_onnx)
        path = runtimes.file(candidate.converted_for, self.folder, candidate.threads)
        run = runtimes.load(kind, path, candidate.threads, [tensor.stride() for tensor in tensors])
        run(tensors)  # allocates what it needs
        memory_mb, load_s = max(0, private_bytes(os.getpid()) - before) / 1e6, time.monotonic() - began
        self._add(candidate, run, took + load_s, memory_mb, load_s)

    def _add(
        self, candidate: Candidate, run: runtimes.Run, prepare_s: float, memory_mb: float, load_s: float = 0.0
    ) -> None:
        self.ready[candidate.label] = ReadyCandidate(candidate, run, prepare_s, self.budget.spent_s, memory_mb, load_s)

    def _attempt(
        self, kind: str, action: Callable[[], object], *steps: str, threads: int = 0, from_onnx: bool = False
    ) -> None:
        """Prepare a candidate in steps that the budget has to allow, which may fail; the report then says why."""
        if steps and (why := self.budget.too_short_for(*steps, keep_s=self._kept_s, concurrent=self.concurrent)):
            self._note(kind, "not started", why, threads=threads, from_onnx=from_onnx)
            return
        began = time.monotonic()
        try:
            action()
        except Exception as error:  # runtimes and importers raise many types
            missing = missing_extra("it", error) if isinstance(error, ModuleNotFoundError) else None
            why = str(missing or error) if missing or isinstance(error, HiosError) else first_line(error)
            self._note(kind, "refused", why, time.monotonic() - began, threads=threads, from_onnx=from_onnx)
            if kind == SCHEDULE:
                warn(f"{self.subject.name} is not scheduled: {why}")

    def _extract(self) -> None:
        assert self.exported is not None  # noqa: S101 - nothing that needs it runs before
        began = time.monotonic()
        with self.budget.step("extract", "extracting the graph", self.concurrent):
            self.traced = extract(self.exported, self.subject.name, self.options.units)
        self.budget.graph_operators = len(self.traced.graph.operators)
        self._extract_s = time.monotonic() - began

    def _start_engine(self) -> None:
        """Schedule the graph and start workers for all schedules."""
        assert self.traced is not None  # noqa: S101 - nothing that needs it runs before
        began, graph, divisions = time.monotonic(), self.traced.graph, self.subject.divisions
        keep_s = self.reserve_s + self.budget.predicted_s("engine")
        proposals = ScheduleProposals(graph, self.options, divisions, self.everything, self.budget, keep_s)
        candidates = distinct(proposals.candidates(), graph)
        self.absent += proposals.absent
        if why := self.budget.too_short_for("engine", keep_s=self._kept_s):
            self._note(SCHEDULE, "not started", why)
            return
        with self.budget.step("engine", "starting workers"):
            racing, workers = tasks(graph, candidates, divisions, self.everything)
            seconds = _SEGMENTS_SHARE * max(self.budget.left_s - self.reserve_s, 0.0)
            choosing = self.options.choosing(self.subject.tensors, seconds)
            engine = Engine(graph, self.traced.weights, racing, workers, self.options.timeout_s, choosing)
        self.engine = engine
        began -= self._export_s + self._extract_s
        self._run_on(engine, candidates, began)
        self._run_on(engine, self._by_segments(engine, candidates, proposals), began)

    def _run_on(self, engine: Engine, candidates: Sequence[Candidate], began: float) -> None:
        for candidate in candidates:
            run, memory_mb = functools.partial(engine.run, candidate.label), engine.memory_bytes(candidate.label) / 1e6
            self._add(candidate, run, time.monotonic() - began, memory_mb)

    def _by_segments(
        self, engine: Engine, candidates: Sequence[Candidate], proposals: ScheduleProposals
    ) -> list[Candidate]:
        """Schedules by the costs that others measured as they ran, in segments; each the last of its algorithm.

        The next one follows from the runs of the last, until it is the same, or was predicted as it runs. One that
        fails leaves the last.

        Raises:
            HiosError: the engine is closed, and its candidates are no longer ready.
        """
        assert self.traced is not None  # noqa: S101 - nothing that needs it runs before
        made = list[Candidate]()
        for first in candidates:
            if first.schedule is None or first.schedule.devices == 1 or is_wide(first.schedule.plan(self.traced.graph)):
                continue
            known = [first]
            try:
                while len(known) <= _ROUNDS and (again := self._round(engine, candidates, known, proposals)):
                    known.append(again)
            except HiosError as error:
                if engine.closed:
                    for candidate in candidates:
                        self.ready.pop(candidate.label, None)
                    raise
                self.absent.append(WayReport(f"{first.label}, by segments", SCHEDULE, "refused", str(error)))
            made += known[1:][-1:]
        return made

    def _round(
        self, engine: Engine, candidates: Sequence[Candidate], known: Sequence[Candidate], proposals: ScheduleProposals
    ) -> Candidate | None:
        """The schedule that follows from runs of the last known one, which it replaces unless that is the first."""
        assert self.traced is not None  # noqa: S101 - nothing that needs it runs before
        (first, *_), last, graph, runs = known, known[-1], self.traced.graph, list[list[Placement]]()
        assert last.schedule is not None  # noqa: S101 - as that of the first
        self.budget.show(f"{first.label}: scheduling by its segments")
        run_s = last.schedule.latency_ms / 1e3
        for left in range(_WARMUP + _TIMED, 0, -1):
            if self.budget.left_s - self.reserve_s <= _ROUND_S + left * run_s:
                return None
            began = time.monotonic()
            runs.append(engine.timeline(last.label, self.subject.tensors))
            run_s = time.monotonic() - began
        latency_ms = median(max(row.finish_ms for row in run) for run in runs[_WARMUP:])
        if last is not first and abs(last.schedule.latency_ms - latency_ms) <= CLOSE * latency_ms:
            return None
        again = proposals.again(last, runs[_WARMUP:], f"{first.label}, by segments, round {len(known)}")
        if len(distinct([*known, again], graph)) == len(known):
            return None
        seconds = _SEGMENTS_SHARE * max(self.budget.left_s - self.reserve_s, 0.0)
        known_tasks, _ = tasks(graph, [*candidates, again], self.subject.divisions, self.everything)
        choosing = self.options.choosing(self.subject.tensors, seconds)
        engine.add(again.label, known_tasks[again.label], self.traced.weights, choosing)
        if last is not first:
            engine.forget(last.label)
        return again

    @property
    def quick(self) -> list[Candidate]:
        """The model as it runs today, and runtimes with all threads; fewer are hardly faster, and may wait."""
        today, *others = (entry.candidate for entry in self.ready.values())
        return [today, *(own for own in others if own.kind != EAGER and own.threads == len(self.everything))]

    @property
    def process_ids(self) -> list[int]:
        """Process IDs of the workers of this process."""
        return [] if self.engine is None else self.engine.process_ids

    def close(self) -> None:
        """Stop the workers and release the runtimes."""
        self.ready.clear()
        engine, self.engine = self.engine, None
        if engine is not None:
            engine.close()
