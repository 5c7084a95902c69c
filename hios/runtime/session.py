"""Executing schedules side by side in one session: interleaved, checked against the model itself, timed."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
from torch import Tensor

from hios import artifacts, defaults
from hios.errors import PlatformError
from hios.formats.run_file import Checked, Run, RunPlatform
from hios.frontends.examples import example_inputs
from hios.graph import Graph
from hios.kernels.executable import require_executable
from hios.kernels.tensors import torch_dtype
from hios.models import RUNTIMES
from hios.platforms import find
from hios.platforms.competitor import Competitor
from hios.platforms.cpu import platform as cpu
from hios.platforms.cpu.executing import CpuWorkers, Workers
from hios.platforms.cpu.platform import all_cores
from hios.platforms.cuda.executing import CudaWorkers
from hios.platforms.device_program import ArenaPlan, Buffer
from hios.platforms.probe_schedule import ProbeSchedule
from hios.progress import bar
from hios.runtime import reference
from hios.runtime.auto import LEAST_RUNS, choose
from hios.runtime.baselines import Reference, gpu_references, references, require
from hios.runtime.competitors import BASELINE, Entry, competitors, read_entries
from hios.runtime.results import results
from hios.runtime.trace import write_trace
from hios.tolerances import TF32_TOLERANCE, compared, scaled
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool

#: Longest time in which a runtime compiles a model.
_COMPILE_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure.

    Args:
        devices: devices of the session; schedules may use fewer.
        runs: measured runs of every competitor.
        warmup: runs of every competitor before.
        tolerance: allowed difference from the reference, absolute plus relative.
        seed: seed of the input and of the order of the competitors.
        timeout_s: longest time of one run.
        baselines: what else runs the model itself, by names of ``RUNTIMES``; eager PyTorch always does where there
            is a program, as outputs are compared with it, and ONNX Runtime where that is an ONNX file.
        platform: one of ``PLATFORMS``.
        virtual: whether devices may share cores or GPUs.
    """

    devices: int
    runs: int = defaults.RUNS
    warmup: int = defaults.WARMUP
    tolerance: float = defaults.TOLERANCE
    seed: int = defaults.SEED
    timeout_s: float = defaults.TIMEOUT_S
    baselines: tuple[str, ...] = ("eager",)
    platform: str = "cpu"
    virtual: bool = False


def execute(
    graph: str | Path,
    weights: str | Path,
    schedules: Sequence[str | Path],
    output: str | Path,
    settings: Settings,
    *,
    program: str | Path | None = None,
    trusted: bool = False,
    traces: str | Path | None = None,
    chosen: str | Path | None = None,
) -> Run:
    """Run schedules on devices and write run.json, and a trace for each; returns what run.json holds.

    Competitors take turns in random order, so that drift of the machine hits all alike: every schedule, the
    sequential schedule on one device, on cores also with those of all devices, independent copies of it on several
    devices (the machine's ceiling), and, with ``program``, the model itself in other runtimes: on cores with one thread
    and with as many as there are devices, on GPUs on the first one.

    Args:
        graph: graph.json.
        weights: weights.safetensors.
        schedules: schedule.json files; their stems name them in the report.
        output: run.json to write.
        settings: how to measure.
        program: program.pt2 or program.onnx, the reference for outputs; the engine's sequential schedule where absent.
        trusted: whether the user trusts a program that can run code when it is loaded.
        traces: folder for Chrome traces.
        chosen: schedule.json to write of the fastest of all, which run.json then names.

    Raises:
        HiosError: bad files, a schedule that does not fit, a wrong output, or a worker that died or hung.
    """
    known = Graph.read(graph)
    require_executable(known)
    entries = read_entries(schedules, known, settings.devices)
    runtime = None if program is None else reference.runtime(program)
    require(settings.baselines, runtime, settings.platform)
    if chosen is not None:
        _require_runs(settings)
        artifacts.require_writable(chosen)
    artifacts.require_writable(output)
    if traces is not None:
        for entry in entries:
            artifacts.require_writable(_trace_path(traces, entry.label))
    platform = find(settings.platform).describe(settings.devices, virtual=settings.virtual)
    began = datetime.now(UTC)
    arena_plan = ArenaPlan(known, settings.devices)
    taking_part, taking_turns, workers = _parties(known, arena_plan, entries, platform, runtime, settings)
    arena = Arena(arena_plan.flags, arena_plan.size, shares_cores="cores" in platform and "virtual" in platform)
    names = workers.names + [entry.name for entry in taking_turns]
    cores = workers.cores + [entry.cores for entry in taking_turns]
    with WorkerPool(cores, arena, settings.timeout_s, names) as pool:
        workers.join(pool)
        session = _Session(known, pool, workers, arena, arena_plan, taking_part, taking_turns, settings)
        session.load(str(graph), str(weights), None if program is None else str(program), trusted)
        session.measure()
        session.probe.warn(f"running {known.name}")
        workers.finish()
    if settings.platform == "cuda":
        platform["tf32"] = workers.tf32
    choice = None if chosen is None else choose(taking_part, entries)
    run = Run(
        graph=known.name,
        platform=msgspec.convert(platform, RunPlatform),
        versions=cpu.versions(),
        measured_at=f"{began:%Y-%m-%dT%H:%M:%SZ}",
        seed=settings.seed,
        runs=settings.runs,
        warmup=settings.warmup,
        tolerance=settings.tolerance,
        checked_against=cast("Checked", runtime or "sequential"),
        chosen=None if choice is None else choice.result(),
        **results(taking_part, taking_turns, entries, session.probe)._asdict(),
        probe=session.probe.record(),
    )
    if chosen is not None and choice is not None:
        choice.schedule(known).write(chosen)
    if traces is not None:
        where = ", virtual devices: times say little" if platform.get("virtual") else ""
        for entry in entries:
            title, rows = f"{known.name} {entry.label}{where}", taking_part[entry.competitor].typical()
            write_trace(_trace_path(traces, entry.label), title, known, rows)
    artifacts.write(output, "run", run)
    return run


def _parties(
    graph: Graph,
    arena: ArenaPlan,
    entries: Sequence[Entry],
    platform: Mapping[str, Any],
    runtime: str | None,
    settings: Settings,
) -> tuple[dict[str, Competitor], list[Reference], Workers]:
    """Who takes part on a platform, and the workers that run the schedules."""
    workers: Workers
    if platform["name"] == "cuda":
        taking_part = competitors(graph, arena, entries, settings.devices, cores=1)
        taking_turns = [] if runtime is None else gpu_references(runtime, settings.baselines)
        workers = CudaWorkers(graph, arena, taking_part, platform["gpu_indices"])
    else:
        everything = all_cores(platform["cores"])
        taking_part = competitors(graph, arena, entries, settings.devices, len(everything))
        taking_turns = [] if runtime is None else references(platform["cores"], runtime, settings.baselines)
        workers = CpuWorkers(graph, arena, taking_part, platform["cores"], settings.timeout_s)
    return taking_part, taking_turns, workers


def _require_runs(settings: Settings) -> None:
    if settings.runs < LEAST_RUNS:
        raise PlatformError(
            f"--runs: found {settings.runs}; allowed with --auto: at least {LEAST_RUNS}, as every other run chooses"
        )


def _trace_path(traces: str | Path, label: str) -> Path:
    return Path(traces) / f"{label}.json"


def _settle(threads: int) -> None:
    if threads > 1:
        time.sleep(cpu.SETTLE_S)


@dataclass
class _Session:
    """Workers with everything loaded, and the turns they take."""

    graph: Graph
    pool: WorkerPool
    workers: Workers
    arena: Arena
    plan: ArenaPlan
    competitors: dict[str, Competitor]
    references: list[Reference]
    settings: Settings
    _expected: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.probe = ProbeSchedule(self.workers.probe_version, self.workers.probe, self.settings.devices)

    def load(self, graph: str, weights: str, program: str | None, trusted: bool = False) -> None:
        """Load everything, and learn what outputs are to be."""
        self._write_inputs()
        self.workers.load(graph, weights)
        if program is not None:
            self._load_references(program, trusted)
            self.pool.call(self.references[0].worker, reference.run, exact=True)
        else:
            self.workers.check(BASELINE)
        self._expected = [self._tensor(buffer).clone() for buffer in self.plan.outputs]
        # Before any schedule takes its turn: if graph and program do not fit, none is to blame. Where timed runs are
        # less precise, all have to show once that they compute the same.
        names = list(self.competitors) if self.workers.tf32 else [BASELINE] if program is not None else []
        for name in names:
            self._clear_outputs()
            self.workers.check(name)
            self.competitors[name].difference = self._difference(name)

    def _load_references(self, program: str, trusted: bool) -> None:
        buffers = {"inputs": list(self.plan.inputs.values()), "outputs": self.plan.outputs}
        given = {"program": program, "trusted": trusted, **buffers}
        with bar(
            len(self.references), f"{self.graph.name}: loading and compiling the model itself", "runtimes"
        ) as shown:
            for entry in self.references:  # by turns, as what it takes to compile is stated
                timeout_s = None if entry.kind == "eager" else _COMPILE_TIMEOUT_S
                own = {"kind": entry.kind, "parallel": entry.parallel, "gpu": entry.gpu}
                arguments = {entry.worker: {**given, **own}}
                found = self.pool.call_each(reference.load, arguments, timeout_s)
                entry.compile_time_s = found[entry.worker]
                shown.update()

    def _write_inputs(self) -> None:
        buffers = list(self.plan.inputs.values())
        for buffer, value in zip(buffers, example_inputs(self.graph.inputs, self.settings.seed), strict=True):
            self._tensor(buffer).copy_(value)

    def _tensor(self, buffer: Buffer) -> Tensor:
        return self.arena.tensor(buffer.offset, buffer.shape, torch_dtype(buffer.dtype))

    def measure(self) -> None:
        """All rounds; every competitor and reference runs once a round, in random order."""
        turns: list[str | Reference] = [*self.competitors, *self.references]
        shuffle = random.Random(self.settings.seed).shuffle
        rounds = self.settings.warmup + self.settings.runs
        with bar(rounds, f"{self.graph.name}: {len(turns)} competitors take turns", "rounds") as progress:
            self.probe.take_at_end()
            for number in range(rounds):
                self.probe.take_if_due()
                shuffle(turns)
                for turn in turns:
                    self._take_turn(turn, measured=number >= self.settings.warmup)
                progress.update()
            self.probe.take_at_end()

    def _take_turn(self, turn: str | Reference, measured: bool) -> None:
        self._clear_outputs()
        if isinstance(turn, Reference):
            latency = self.pool.call(turn.worker, reference.run) / 1e6
            turn.difference = max(turn.difference, self._difference(turn.name, timed=True))
            _settle(turn.threads)
            if measured:
                turn.latencies_ms.append(latency)
            return
        latency, competitor = self.workers.run(turn), self.competitors[turn]
        _settle(competitor.cores)
        off = self._difference(turn, timed=True)
        if not self.workers.tf32:  # else it was taken in full precision
            competitor.difference = max(competitor.difference, off)
        if measured:
            competitor.latencies_ms.append(latency)
            self.workers.take_rows(turn)

    def _clear_outputs(self) -> None:
        """So that a competitor that writes nothing is not taken for one that is right."""
        for buffer in self.plan.outputs:
            self._tensor(buffer).zero_()

    def _difference(self, name: str, *, timed: bool = False) -> float:
        """Largest absolute difference of the outputs from the expected ones.

        Args:
            name: who made the outputs.
            timed: whether in a timed run, which may be less precise than float32.

        Raises:
            PlatformError: an output is further off than allowed, or not a number.
        """
        largest, coarse = 0.0, timed and self.workers.tf32
        tolerance = max(self.settings.tolerance, TF32_TOLERANCE) if coarse else self.settings.tolerance
        for number, (buffer, expected) in enumerate(zip(self.plan.outputs, self._expected, strict=True)):
            found = self._tensor(buffer)
            off, within = scaled(found, expected, tolerance) if coarse else compared(found, expected, tolerance)
            if not within:
                raise PlatformError(
                    f"{name}: output {number} differs from the reference by up to {off:.3g}; allowed: "
                    f"{tolerance:g} {'of its largest value, in TF32' if coarse else 'absolute plus relative'}; "
                    f"{self._cause(name)}"
                )
            largest = max(largest, off)
        return largest

    def _cause(self, name: str) -> str:
        """What a difference beyond the tolerance says, by who shows it."""
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
