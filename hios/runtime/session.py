"""Executing schedules side by side in one session: interleaved, checked against the model itself, timed."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from hios import artifacts
from hios.errors import PlatformError
from hios.frontends.examples import example_inputs
from hios.graph import Graph
from hios.kernels.executable import require_executable
from hios.kernels.tensors import torch_dtype
from hios.models import RUNTIMES
from hios.platforms import cpu
from hios.platforms.arena import Arena
from hios.platforms.pool import WorkerPool
from hios.profiling.progress import bar
from hios.runtime import device, markers, reference
from hios.runtime.auto import LEAST_RUNS, choose
from hios.runtime.baselines import Reference, all_cores, references, require
from hios.runtime.competitors import BASELINE, Competitor, competitors, read_entries
from hios.runtime.outputs import compared
from hios.runtime.program import ArenaPlan, Buffer
from hios.runtime.results import results
from hios.runtime.trace import write_trace
from hios.schedule import Placement

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
    runs: int = 36
    warmup: int = 3
    tolerance: float = 1e-4
    seed: int = 0
    timeout_s: float = 120.0
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
) -> dict[str, Any]:
    """Run schedules on cpu devices and write run.json, and a trace for each; returns the contents of run.json.

    Competitors take turns in random order, so that drift of the machine hits all alike: every schedule, the
    sequential schedule on one device, also with the cores of all devices, independent copies of it on several devices
    (the machine's ceiling), and, with ``program``, the model itself in other runtimes with one thread and with as many
    as there are devices.

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
    require(settings.baselines, runtime)
    if chosen is not None:
        _require_runs(settings)
        artifacts.require_writable(chosen)
    artifacts.require_writable(output)
    if traces is not None:
        for entry in entries:
            artifacts.require_writable(_trace_path(traces, entry.label))
    platform = cpu.describe(settings.devices, virtual=settings.virtual)
    began = datetime.now(UTC)
    arena_plan = ArenaPlan(known, settings.devices)
    everything = all_cores(platform["cores"])
    taking_part = competitors(known, arena_plan, entries, settings.devices, len(everything))
    taking_turns = [] if runtime is None else references(platform["cores"], runtime, settings.baselines)
    names, cores = [f"device {number}" for number in range(settings.devices)], list(platform["cores"])
    if len(everything) > 1:
        names.append(f"one device of {len(everything)} cores")
        cores.append(everything)
    names += [entry.name for entry in taking_turns]
    cores += [entry.cores for entry in taking_turns]
    arena = Arena(arena_plan.flags, arena_plan.size, shares_cores=platform.get("virtual", False))
    with WorkerPool(cores, arena, settings.timeout_s, names) as pool:
        pool.describe = partial(markers.text, known)
        session = _Session(known, pool, arena, arena_plan, taking_part, taking_turns, settings)
        session.load(str(graph), str(weights), None if program is None else str(program), trusted)
        session.measure()
    data = {
        "graph": known.name,
        "platform": platform,
        "versions": cpu.versions(),
        "measured_at": f"{began:%Y-%m-%dT%H:%M:%SZ}",
        "seed": settings.seed,
        "runs": settings.runs,
        "warmup": settings.warmup,
        "tolerance": settings.tolerance,
        "checked_against": runtime or "sequential",
        **results(taking_part, taking_turns, entries),
    }
    if chosen is not None:
        choice = choose(taking_part, entries)
        data["chosen"] = choice.to_json()
        choice.schedule(known).write(chosen)
    if traces is not None:
        for entry in entries:
            title, rows = f"{known.name} {entry.label}", taking_part[entry.competitor].typical()
            write_trace(_trace_path(traces, entry.label), title, known, rows)
    artifacts.write(output, "run", data)
    return data


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
    arena: Arena
    plan: ArenaPlan
    competitors: dict[str, Competitor]
    references: list[Reference]
    settings: Settings
    _epoch: int = 0
    _expected: list[Tensor] = field(default_factory=list)

    def load(self, graph: str, weights: str, program: str | None, trusted: bool = False) -> None:
        inputs = self.plan.inputs
        wait_s = self.settings.timeout_s * device.WAIT_SHARE
        arguments = {"graph": graph, "weights": weights, "inputs": inputs, "timeout_s": wait_s}
        workers = sorted({worker for competitor in self.competitors.values() for worker in competitor.parts})
        self.pool.call_each(device.load, dict.fromkeys(workers, arguments))
        for name, competitor in self.competitors.items():
            programs = {worker: {"name": name, "program": part} for worker, part in competitor.parts.items()}
            self.pool.call_each(device.prepare, programs)
        self._write_inputs()
        if program is not None:
            self._load_references(program, trusted)
            self.pool.call(self.references[0].worker, reference.run)
        else:
            self._run(BASELINE)
        self._expected = [self._tensor(buffer).clone() for buffer in self.plan.outputs]
        if program is not None:
            self._clear_outputs()
            self._run(BASELINE)
            self._difference(BASELINE)  # before any schedule takes its turn

    def _load_references(self, program: str, trusted: bool) -> None:
        buffers = {"inputs": list(self.plan.inputs.values()), "outputs": self.plan.outputs}
        given = {"program": program, "trusted": trusted, **buffers}
        with bar(
            len(self.references), f"{self.graph.name}: loading and compiling the model itself", "runtimes"
        ) as shown:
            for entry in self.references:  # by turns, as what it takes to compile is stated
                timeout_s = None if entry.kind == "eager" else _COMPILE_TIMEOUT_S
                arguments = {entry.worker: {**given, "kind": entry.kind, "parallel": entry.parallel}}
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
            for number in range(rounds):
                shuffle(turns)
                for turn in turns:
                    self._take_turn(turn, measured=number >= self.settings.warmup)
                progress.update()

    def _take_turn(self, turn: str | Reference, measured: bool) -> None:
        self._clear_outputs()
        if isinstance(turn, Reference):
            latency = self.pool.call(turn.worker, reference.run) / 1e6
            turn.difference = max(turn.difference, self._difference(turn.name))
            _settle(len(turn.cores))
            if measured:
                turn.latencies_ms.append(latency)
            return
        latency, rows = self._run(turn)
        competitor = self.competitors[turn]
        _settle(competitor.cores)
        competitor.difference = max(competitor.difference, self._difference(turn))
        if measured:
            competitor.latencies_ms.append(latency)
            competitor.timelines.append(rows)

    def _clear_outputs(self) -> None:
        """So that a competitor that writes nothing is not taken for one that is right."""
        for buffer in self.plan.outputs:
            self._tensor(buffer).zero_()

    def _run(self, name: str) -> tuple[float, list[Placement]]:
        self._epoch += 1
        competitor = self.competitors[name]
        parts = competitor.parts
        arguments = {"name": name, "epoch": self._epoch}
        found = self.pool.call_each(device.run, dict.fromkeys(parts, arguments))
        began = next(iter(found.values()))[0]
        taken = [(finish - began) / 1e6 for _, finish, _ in found.values()]
        latency = len(taken) / sum(1 / part for part in taken) if competitor.copies else max(taken)
        rows = [
            Placement(operator, parts[worker].device, stream, stage, (start - began) / 1e6, (end - began) / 1e6)
            for worker, (_, _, own) in found.items()
            for operator, stream, stage, start, end in own
        ]
        return latency, sorted(rows, key=lambda row: (row.start_ms, row.device))

    def _difference(self, name: str) -> float:
        """Largest absolute difference of the outputs from the expected ones.

        Raises:
            PlatformError: an output is further off than allowed, or not a number.
        """
        largest = 0.0
        for number, (buffer, expected) in enumerate(zip(self.plan.outputs, self._expected, strict=True)):
            off, within = compared(self._tensor(buffer), expected, self.settings.tolerance)
            if not within:
                raise PlatformError(
                    f"{name}: output {number} differs from the reference by up to {off:.3g}; allowed: "
                    f"{self.settings.tolerance:g} absolute plus relative; {self._cause(name)}"
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
