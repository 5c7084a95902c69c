"""Executing schedules in worker processes: interleaved, checked against the model itself, and timed.

``auto`` is the fastest schedule of a session, by measurement; sequential unless another is significantly faster. The
runs that choose are not the runs that are reported: the fastest of many candidates is partly the luckiest, and its own
runs would flatter it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from safetensors.torch import save
from torch import Tensor

from hios import platforms
from hios.core.graph import Graph
from hios.core.schedule import Placement, Schedule, merged_rows
from hios.errors import HiosError, PlatformError, warn
from hios.files.artifacts import write_whole
from hios.files.base import Platform
from hios.files.versions import versions
from hios.formats.run import Chosen, Run, RunPlatform
from hios.formats.settings import Settings
from hios.frontends.example_inputs import example_inputs
from hios.frontends.models import RUNTIMES
from hios.frontends.program import Program
from hios.frontends.tolerances import OutputCheck, allows_rounding, explained, scaled
from hios.kernels.executable import require_executable
from hios.kernels.merged import torch_dtype
from hios.machine.statistics import LEAST_ROUNDS, best
from hios.machine.terminal import bar
from hios.platforms.competitor import Competitor
from hios.platforms.probe_schedule import ProbeSchedule
from hios.platforms.program import ArenaPlan, Buffer
from hios.platforms.reference import Attempt, Reference, attempt
from hios.platforms.reference import peak_memory_bytes as reference_peak_bytes
from hios.platforms.reference import rounding as reference_rounding
from hios.platforms.reference import run as run_reference
from hios.platforms.reference import runtime as runtime_of
from hios.platforms.workloads import require_weights
from hios.runtime.competitors import (
    BASELINE,
    ScheduleEntry,
    competitors,
    entries_of,
    other_hardware,
    require,
    use_engine,
)
from hios.runtime.rounds import Competition, TurnOutcome, gained, measured, run_file
from hios.workers.arena import Arena, memory_file
from hios.workers.pool import WorkerPool, peak_bytes

if TYPE_CHECKING:
    from hios.platforms.protocol import Workers

#: Largest difference of timed runs of two schedules in reduced precision, as a share of an output's largest value.
_SAME = 1e-4
#: Runs of the sequential schedule that show whether its own outputs differ.
_REPEATED = 3
#: Rounds that choose, and rounds that are reported.
_CHOOSING, _REPORTED = slice(0, None, 2), slice(1, None, 2)
#: With fewer runs, the ones that choose have no interval.
LEAST_RUNS = 2 * LEAST_ROUNDS


@dataclass(frozen=True, slots=True)
class AutoChoice:
    """The chosen schedule, among a number of candidates, and the runs of the baseline.

    The label is that of the schedule file, or the name of the competitor if it has no file.
    """

    label: str
    competitor: Competitor
    entry: ScheduleEntry | None
    candidates: int
    baseline: Sequence[float]

    @property
    def cores(self) -> int:
        """The number of cores that it uses in total."""
        return self.competitor.cores * (1 if self.entry is None else self.entry.schedule.devices)

    def result(self) -> Chosen:
        """``chosen`` of run.json."""
        runs = self.competitor.latencies_ms[_REPORTED]
        speedup, interval = gained(self.baseline[_REPORTED], runs)
        return Chosen(
            label=self.label,
            algorithm="sequential" if self.entry is None else self.entry.schedule.algorithm,
            devices=1 if self.entry is None else self.entry.schedule.devices,
            cores=self.cores,
            candidates=self.candidates,
            latency_ms=measured(runs),
            speedup=speedup,
            speedup_interval=interval,
        )

    def schedule(self, graph: Graph, platform: Platform) -> Schedule:
        """The schedule with a note on how it was chosen, and if it has no file, with measured times and the devices."""
        result = self.result()
        chosen = f"the fastest of {self.candidates} in every other run: {self.label}"
        if (self.label if self.entry is None else self.entry.competitor) == BASELINE:
            chosen = f"in every other run none of {self.candidates} was significantly faster than {BASELINE}"
        note = (
            f"{chosen}; in the other runs {result.latency_ms.median:.4g} ms, "
            f"{result.speedup:.2f} times as fast as {BASELINE}"
        )
        if self.competitor.worker is not None:
            note += f"; it ran on one device of {self.cores} cores, with a thread on each inside every operator"
        if self.entry is not None:
            return replace(self.entry.schedule, notes={**self.entry.schedule.notes, "auto": note})
        rows, times = tuple(self.competitor.typical()), "measured; no cost model predicted them"
        if not rows:
            each = result.latency_ms.median / len(graph.order)
            times = "equal shares of the measured latency, as those of operators could not be recorded"
            rows = tuple(
                Placement(graph.operators[operator].id, 0, 0, stage, stage * each, (stage + 1) * each)
                for stage, operator in enumerate(graph.order)
            )
        notes = {"auto": note, "times": times}
        end = max(row.finish_ms for row in rows)
        return Schedule(
            "sequential",
            {},
            1,
            end,
            0.0,
            0.0,
            rows,
            graph.name,
            notes=notes,
            graph_fingerprint=graph.fingerprint,
            cores_per_device=None if platform.cores_per_device is None else self.cores,
            hardware=platform.hardware,
        )


def choose(competitors: Mapping[str, Competitor], entries: Sequence[ScheduleEntry]) -> AutoChoice:
    """Choose among all schedules, the sequential one on one device, and the sequential one with all cores.

    It is the sequential one on one device unless the interval of the speedup over it lies above 1. Among candidates
    that are statistically tied with the fastest, it is the one with the smallest 80th percentile
    (`hios.machine.statistics`).
    Every competitor needs at least ``LEAST_RUNS`` runs.
    """
    candidates = {name: competitor for name, competitor in competitors.items() if not competitor.copies}
    chosen = best({name: competitor.latencies_ms[_CHOOSING] for name, competitor in candidates.items()}, BASELINE)
    entry = next((entry for entry in entries if entry.competitor == chosen), None)
    label = chosen if entry is None else entry.label
    return AutoChoice(label, candidates[chosen], entry, len(candidates), competitors[BASELINE].latencies_ms)


#: Longest time for a runtime to compile a model.
_COMPILE_TIMEOUT_S = 1800.0


class Execution(NamedTuple):
    """The contents of run.json, and the schedule of the fastest competitor; None if it was not requested."""

    run: Run
    chosen: Schedule | None


def execute(
    graph: Graph,
    weights: str | Path | Mapping[str, Tensor],
    schedules: Iterable[tuple[str, Schedule]],
    settings: Settings,
    *,
    program: str | Path | Program | None = None,
    trusted: bool = False,
    auto: bool = False,
) -> Execution:
    """Run schedules on devices and measure them.

    Competitors take turns in random order, so that drift of the machine affects all alike: every schedule, the
    sequential schedule on one device, on cores also with those of all devices, independent copies of it on several
    devices (the machine's ceiling), and, with ``program``, the model itself in other runtimes: on cores with one thread
    and with as many as there are devices, on GPUs on the first one.

    Schedules come with the labels that name them in the report. The program is the reference for outputs, the engine's
    sequential schedule where it is absent. ``trusted`` says that the user trusts a program file that can run code when
    it is loaded; with ``auto``, the fastest of all is chosen, which the run then names.

    Raises:
        HiosError: inconsistent files or objects, a wrong output, or a worker that died or hung.
    """
    require_executable(graph)
    schedules = list(schedules)
    cores_per_device = _cores_per_device(settings, (schedule for _, schedule in schedules))
    entries = entries_of(schedules, graph, settings.devices, cores_per_device)
    runtime = None
    if program is not None:
        runtime = "eager" if isinstance(program, Program) else runtime_of(program)
    baselines = require(settings.baselines, runtime, settings.platform)
    if auto and settings.runs < LEAST_RUNS:
        raise PlatformError(
            f"--runs: found {settings.runs}; allowed with --auto: at least {LEAST_RUNS}, as every other run chooses"
        )
    executing = platforms.executing(settings.platform)
    platform = platforms.describe(
        settings.platform, settings.devices, virtual=settings.virtual, cores_per_device=cores_per_device
    )
    profiled_on = other_hardware((schedule for _, schedule in schedules), platform, forced=settings.other_hardware)
    began = datetime.now(UTC)
    plan = ArenaPlan(graph, settings.devices)
    taking_part = competitors(
        graph, plan, entries, settings.devices, executing.most_threads(platform), cores_per_device or 1
    )
    use_engine(settings.engine, graph, taking_part.values())
    taking_turns = [] if runtime is None else executing.references(platform, runtime, baselines)
    workers = executing.workers(graph, plan, taking_part, platform, settings.timeout_s)
    arena = Arena(plan.flags, plan.size, shares_cores=bool(platform.virtual))
    names = workers.names + [entry.name for entry in taking_turns]
    cores = workers.cores + [entry.cores for entry in taking_turns]
    with contextlib.ExitStack() as files:
        paths = _paths(files, graph, weights, program)
        pool = files.enter_context(WorkerPool(cores, arena, settings.timeout_s, names, workers.environment))
        workers.join(pool)
        runner = PoolRunner(graph, pool, workers, arena, plan, taking_part, taking_turns, settings)
        runner.load(*paths, trusted or isinstance(program, Program))
        probe = ProbeSchedule(workers.probe_version, workers.probe, settings.devices)
        session = Competition(graph, taking_part, taking_turns, entries, runner, settings, probe)
        session.measure(shown=True)
        probe.warn(f"running {graph.name}")
        try:
            runner.measure_memory()
            workers.finish()
        except HiosError as error:  # what was timed is worth keeping without it
            warn(f"memory and times of operators are incomplete: {error}")
    choice = choose(taking_part, entries) if auto else None
    run = run_file(
        session,
        RunPlatform(**{**msgspec.structs.asdict(platform), **workers.facts}),
        versions(),
        began,
        runtime,
        profiled_on,
        None if choice is None else choice.result(),
        runner.rounding,
    )
    return Execution(run, None if choice is None else choice.schedule(graph, platform))


def _cores_per_device(settings: Settings, schedules: Iterable[Schedule]) -> int | None:
    """Cores of each device: as requested, otherwise as in the costs of the schedules, otherwise 1.

    None if devices are not cores, unless the user set it, which is refused later, as are schedules for other numbers.
    """
    if settings.cores_per_device is not None or not platforms.find(settings.platform).GROUPS_CORES:
        return settings.cores_per_device
    stated = (schedule.cores_per_device for schedule in schedules)
    return next((cores for cores in stated if cores is not None), 1)


def _paths(
    files: contextlib.ExitStack,
    graph: Graph,
    weights: str | Path | Mapping[str, Tensor],
    program: str | Path | Program | None,
) -> tuple[str, str, str | None]:
    """Where workers read graph, weights, which are checked, and program: existing files, otherwise files in memory."""
    if isinstance(weights, Mapping):
        require_weights(weights, graph, "weights")
        weights = files.enter_context(memory_file(save(dict(weights))))
    if isinstance(program, Program):
        program = files.enter_context(memory_file(program.to_bytes()))
    known = files.enter_context(memory_file(graph.to_bytes()))
    return known, str(weights), None if program is None else str(program)


@dataclass
class PoolRunner:
    """The workers of a pool, with all competitors loaded."""

    graph: Graph
    pool: WorkerPool
    workers: Workers
    arena: Arena
    plan: ArenaPlan
    competitors: dict[str, Competitor]
    references: list[Reference]
    settings: Settings
    _expected: list[Tensor] = field(default_factory=list)
    #: What rounding explains of each output; None until a difference is beyond the tolerance.
    _rounding: list[float] | None = None
    #: Outputs of a timed run of the sequential schedule, if timed runs have reduced precision, and what is allowed.
    _timed: list[Tensor] | None = None
    #: The same of schedules with merges or segments, whose launches were waited for one by one.
    _alone: dict[str, tuple[list[Tensor], float]] = field(default_factory=dict)
    _same: float = 0.0

    def load(self, graph: str, weights: str, program: str | None, trusted: bool = False) -> None:
        """Load everything, and compute the expected outputs."""
        buffers = self.plan.inputs.values()
        for buffer, value in zip(buffers, example_inputs(self.graph.inputs, self.settings.seed), strict=True):
            self._tensor(buffer).copy_(value)
        self.workers.load(graph, weights)
        if program is not None:
            self._load_references(program, trusted)
            self.pool.call(self.references[0].worker, run_reference, exact=True)
        else:
            self.workers.check(BASELINE)
        self._expected = [self._tensor(buffer).clone() for buffer in self.plan.outputs]
        # Checked before any schedule runs: if the graph does not match the program, no schedule is to blame. If timed
        # runs have reduced precision, every competitor is checked once in full precision.
        names = list(self.competitors) if self.workers.reduced else [BASELINE] if program is not None else []
        for name in names:
            self._clear_outputs()
            self.workers.check(name)
            self.competitors[name].difference = self._difference(name)
        if self.workers.reduced:
            runs = [self._outputs_of(self.workers.run, BASELINE) for _ in range(_REPEATED)]
            self._timed, self._same = runs[0], _allowed(runs)
            others = [own for own, each in self.competitors.items() if each.plan.merges or each.segments is not None]
            for name in others:
                alone = [self._outputs_of(self.workers.run_alone, name) for _ in range(_REPEATED)]
                self._alone[name] = alone[0], _allowed(alone)
        for entry in self.references[1:]:
            self.run_reference(entry)

    def _load_references(self, program: str, trusted: bool) -> None:
        buffers = {"inputs": list(self.plan.inputs.values()), "outputs": self.plan.outputs}
        given = {"program": program, "trusted": trusted, **buffers}
        with bar(
            len(self.references), f"{self.graph.name}: loading and compiling the model itself", "runtimes"
        ) as shown:
            for entry in list(self.references):  # one after another, as their compile times are reported
                timeout_s = None if entry.kind == "eager" else _COMPILE_TIMEOUT_S
                arguments = {entry.worker: {"called": entry.load, **given, "kind": entry.kind, **entry.options}}
                loaded: Attempt = self.pool.call_each(attempt, arguments, timeout_s)[entry.worker]
                entry.compile_time_s = loaded.result
                if loaded.why_not:
                    self._leave_out(entry, f"{entry.name}: {loaded.why_not}")
                shown.update()

    def _leave_out(self, entry: Reference, why: str) -> None:
        """Go on without a reference; a `PlatformError` if outputs are compared with it, or the workers are gone."""
        if entry is self.references[0] or not self.pool.process_ids:
            raise PlatformError(why)
        warn(f"{why}; it is left out")
        self.references.remove(entry)

    def _tensor(self, buffer: Buffer) -> Tensor:
        return self.arena.tensor(buffer.offset, buffer.shape, torch_dtype(buffer.dtype))

    def run(self, name: str) -> TurnOutcome:
        """Run a competitor once."""
        self._clear_outputs()
        latency = self.workers.run(name)
        self._settle(self.competitors[name].cores)
        off = self._difference(name, timed=True)
        self._require_sequential(name)
        # If timed runs have reduced precision, the difference was computed in full precision.
        return TurnOutcome(latency, off if self.workers.reduced is None else None)

    def run_reference(self, reference: Reference) -> TurnOutcome | None:
        """Run the model itself once; None if that fails or an output is wrong, and it is left out from now on."""
        self._clear_outputs()
        ran: Attempt = self.pool.call(reference.worker, attempt, called=run_reference)
        try:
            if ran.why_not:
                raise PlatformError(f"{reference.name}: {ran.why_not}")
            off = self._difference(reference.name, timed=True)
        except PlatformError as error:
            self._leave_out(reference, str(error))
            return None
        self._settle(reference.threads)
        return TurnOutcome(ran.result / 1e6, off)

    def take_rows(self, name: str) -> None:
        """Keep the rows of the last run."""
        self.workers.take_rows(name)

    def measure_memory(self) -> None:
        """Run every competitor and reference once more, to find the peak of its memory; copies are left out."""
        for name, competitor in self.competitors.items():
            if not competitor.copies:
                competitor.peak_memory_bytes = self.workers.peak_memory_bytes(name)
        for reference in list(self.references):
            counted: int | None = self.pool.call(reference.worker, reference_peak_bytes)
            if counted is None:
                counted = peak_bytes(self.pool, [reference.worker], partial(self.run_reference, reference))
            reference.peak_memory_bytes = counted

    def _settle(self, threads: int) -> None:
        if threads > 1:
            time.sleep(platforms.find(self.settings.platform).SETTLE_S)

    def _clear_outputs(self) -> None:
        """Clear the outputs, so that a competitor that writes nothing fails the comparison."""
        for buffer in self.plan.outputs:
            self._tensor(buffer).zero_()

    def _difference(self, name: str, *, timed: bool = False) -> float:
        """Largest absolute difference of the outputs from the expected ones; timed runs may have reduced precision.

        Raises:
            PlatformError: an output differs by more than the tolerance and than rounding explains, or is NaN.
        """
        check = OutputCheck.of(self.settings.tolerance, self.workers.reduced if timed else None)
        largest = 0.0
        for number, (buffer, expected) in enumerate(zip(self.plan.outputs, self._expected, strict=True)):
            off, within = check.difference(self._tensor(buffer), expected)
            if not within and not off <= self._explained(number):
                raise PlatformError(f"{name}: {check.wrong(number, off)}; {self._cause(name)}")
            largest = max(largest, off)
        return largest

    def _outputs_of(self, run: Callable[[str], object], name: str) -> list[Tensor]:
        run(name)
        return [self._tensor(buffer).clone() for buffer in self.plan.outputs]

    def _require_sequential(self, name: str) -> None:
        """Check that a timed run in reduced precision gave what it must: what the sequential schedule gives in it.

        Both call the same functions of the same libraries in one process, so precision explains no difference. A
        schedule with merges or segments calls others: it is compared with itself, launch by launch. The tolerance is
        for kernels that add in any order, by which runs of one schedule may differ.

        Raises:
            PlatformError: an output differs.
        """
        if self._timed is None:
            return
        other = "those of its launches one by one" if name in self._alone else "that of the sequential schedule"
        known, allowed = self._alone.get(name, (self._timed, self._same))
        for number, (buffer, expected) in enumerate(zip(self.plan.outputs, known, strict=True)):
            off, within = scaled(self._tensor(buffer), expected, allowed)
            if not within:
                raise PlatformError(
                    f"{name}: output {number} differs from {other}, timed alike, by up to "
                    f"{off:.3g}; allowed: {allowed:.3g} of its largest value; the schedule is wrong, or the engine "
                    "in running it"
                )

    def _explained(self, number: int) -> float:
        """The difference of an output that rounding to float32 explains; 0 if the program is not there to tell."""
        if self._rounding is None:
            eager = self.references and self.references[0].kind == "eager"
            known = eager and allows_rounding(self.settings.tolerance)
            errors = self.pool.call(self.references[0].worker, reference_rounding) if known else None
            self._rounding = explained(errors or [0.0] * len(self._expected), self._expected)
        return self._rounding[number]

    @property
    def rounding(self) -> float | None:
        """The largest difference that rounding explains; None if every output was within the tolerance."""
        return None if self._rounding is None else max(self._rounding)

    def _cause(self, name: str) -> str:
        """The likely cause of a difference beyond the tolerance, depending on which competitors show it."""
        for entry in self.references:
            if name == entry.name:
                how = " with another number of threads" if entry.kind == self.references[0].kind else ""
                who = RUNTIMES[entry.kind].removeprefix("eager ")
                return f"{who} itself differs by so much{how}: allow it with --tolerance"
        if name == BASELINE and self.references:
            return (
                "graph, weights and program are not of one extraction: extract again from this program; "
                "else a kernel is wrong"
            )
        return "the schedule is wrong, or the engine in running it"


def _allowed(runs: Sequence[Sequence[Tensor]]) -> float:
    """By what share of the largest value outputs may differ, given those of several runs."""
    apart = (scaled(own, first, 1.0)[0] for run in runs for own, first in zip(run, runs[0], strict=True))
    return max(_SAME, 4 * max(apart, default=0.0))


def write_trace(path: str | Path, title: str, graph: Graph, placements: Sequence[Placement]) -> None:
    """Write a process per device, a thread per stream, and a slice per operator on each of its devices.

    Operators of a stream that ran merged into one have one slice. Times of placements are measured milliseconds from
    the start of the run.
    """
    type_of = {operator.id: operator.type for operator in graph.operators}
    lanes = sorted({(device, row.stream) for row in placements for device in row.held_devices})
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": device, "tid": 0, "args": {"name": f"device {device}"}}
        for device in sorted({device for device, _ in lanes})
    ]
    events += [
        {"ph": "M", "name": "thread_name", "pid": device, "tid": stream, "args": {"name": f"stream {stream}"}}
        for device, stream in lanes
    ]
    events += [
        {
            "ph": "X",
            "name": " + ".join(member.operator for member in group),
            "cat": type_of[row.operator],
            "pid": device,
            "tid": row.stream,
            "ts": row.start_ms * 1e3,
            "dur": (row.finish_ms - row.start_ms) * 1e3,
            "args": {"stage": row.stage, "type": type_of[row.operator], "width": len(row.held_devices)},
        }
        for group in merged_rows(placements)
        for row in group[:1]
        for device in row.held_devices
    ]
    document = {"displayTimeUnit": "ms", "otherData": {"title": title}, "traceEvents": events}
    write_whole(path, json.dumps(document) + "\n")
