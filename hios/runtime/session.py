"""Executing schedules side by side in one session: interleaved, checked against eager PyTorch, timed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from hios import artifacts
from hios.costs import Costs
from hios.errors import PlatformError, ScheduleError
from hios.evaluate import staged_times
from hios.frontends import program as programs
from hios.graph import Graph
from hios.kernels.tensors import torch_dtype
from hios.platforms import cpu
from hios.platforms.arena import Arena
from hios.platforms.pool import WorkerPool
from hios.problem import Problem
from hios.profiling.profile import require_executable
from hios.profiling.progress import bar
from hios.profiling.statistics import spread
from hios.runtime import device, eager
from hios.runtime.program import ArenaPlan, Buffer, DeviceProgram
from hios.runtime.trace import write_trace
from hios.schedule import Placement, Schedule, StagedPlan

_BASELINE = "sequential on one device"
_COPIES = "independent copies"


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
    """

    devices: int
    runs: int = 36
    warmup: int = 3
    tolerance: float = 1e-4
    seed: int = 0
    timeout_s: float = 120.0


def execute(
    graph: str | Path,
    weights: str | Path,
    schedules: Sequence[str | Path],
    output: str | Path,
    settings: Settings,
    *,
    program: str | Path | None = None,
    traces: str | Path | None = None,
) -> None:
    """Run schedules on cpu devices and write run.json, and a trace for each.

    Competitors take turns in random order, so that drift of the machine hits all alike: every schedule, the
    sequential schedule on one device, independent copies of it on all devices (the machine's ceiling), and, with
    ``program``, eager PyTorch with one thread and with as many as there are devices.

    Args:
        graph: graph.json.
        weights: weights.safetensors.
        schedules: schedule.json files; their stems name them in the report.
        output: run.json to write.
        settings: how to measure.
        program: program.pt2, the reference for outputs; the engine's sequential schedule where absent.
        traces: folder for Chrome traces.

    Raises:
        HiosError: bad files, a schedule that does not fit, a wrong output, or a worker that died or hung.
    """
    known = Graph.read(graph)
    require_executable(known)
    entries = [_Entry.read(path, known, settings.devices) for path in schedules]
    _require_unique_names(entries)
    platform = cpu.describe(settings.devices)
    arena_plan = ArenaPlan(known, settings.devices)
    competitors = _competitors(known, arena_plan, entries, settings.devices)
    cores = list(platform["cores"])
    references = []
    if program is not None:
        references = [_Reference("eager PyTorch, 1 thread", len(cores), cores[0])]
        if settings.devices > 1:
            references.append(
                _Reference(
                    f"eager PyTorch, {settings.devices} threads",
                    len(cores) + 1,
                    [c for own in cores for c in own],
                )
            )
    names = [f"device {number}" for number in range(settings.devices)] + [r.name for r in references]
    arena = Arena(arena_plan.flags, arena_plan.size)
    with WorkerPool([*cores, *(r.cores for r in references)], arena, settings.timeout_s, names) as pool:
        session = _Session(known, pool, arena, arena_plan, competitors, references, settings)
        session.load(str(graph), str(weights), None if program is None else str(program))
        session.measure()
    by_label = {entry.label: competitors[entry.competitor] for entry in entries}
    artifacts.write(
        output,
        "run",
        {
            "graph": known.name,
            "platform": platform,
            "versions": cpu.versions(),
            **_report(settings, competitors, references, entries),
        },
    )
    if traces is not None:
        for label, competitor in by_label.items():
            write_trace(Path(traces) / f"{label}.json", f"{known.name} {label}", known, competitor.typical())


@dataclass
class _Entry:
    """A schedule file."""

    label: str
    schedule: Schedule
    plan: StagedPlan
    competitor: str = ""

    @classmethod
    def read(cls, path: str | Path, graph: Graph, devices: int) -> _Entry:
        schedule = Schedule.read(path)
        if schedule.devices > devices:
            raise ScheduleError(
                f"{path}: devices: found {schedule.devices}; allowed: at most {devices}, the devices of this run"
            )
        if schedule.merges:
            raise ScheduleError(f"{path}: merges: merged operators cannot be executed by the cpu platform")
        plan = schedule.plan(graph)
        if not isinstance(plan, StagedPlan):
            raise ScheduleError(f"{path}: placements: a stream schedule; the cpu platform executes staged schedules")
        free = Costs(dict.fromkeys(graph.index, 0.0), {(edge.source, edge.target): 0.0 for edge in graph.edges})
        try:
            staged_times(Problem(graph, free), plan)  # whether it can run does not depend on times
        except ScheduleError as error:
            raise ScheduleError(f"{path}: {error}") from None
        return cls(Path(path).stem, schedule, plan)


def _require_unique_names(entries: Sequence[_Entry]) -> None:
    taken = {_BASELINE, _COPIES}
    for entry in entries:
        if entry.label in taken:
            raise ScheduleError(
                f"{entry.schedule.source}: a schedule named {entry.label} takes part already; "
                "schedules are told apart by their file names"
            )
        taken.add(entry.label)


@dataclass
class _Competitor:
    """A program on one or more devices with what was measured of it."""

    programs: list[DeviceProgram]
    latencies_ms: list[float] = field(default_factory=list)
    timelines: list[list[Placement]] = field(default_factory=list)
    difference: float = 0.0

    def typical(self) -> list[Placement]:
        """The rows of the run whose latency is nearest to the median."""
        median = spread(self.latencies_ms)[0]
        nearest = min(range(len(self.latencies_ms)), key=lambda run: abs(self.latencies_ms[run] - median))
        return self.timelines[nearest]


@dataclass
class _Reference:
    """Eager PyTorch in a worker of its own."""

    name: str
    worker: int
    cores: list[int]
    latencies_ms: list[float] = field(default_factory=list)


def _competitors(graph: Graph, arena: ArenaPlan, entries: Sequence[_Entry], devices: int) -> dict[str, _Competitor]:
    sequential = StagedPlan((tuple(((operator,),) for operator in graph.order),))
    found = {_BASELINE: _Competitor(arena.program(sequential))}
    if devices > 1:
        found[_COPIES] = _Competitor(arena.copies(sequential))
    for entry in entries:
        # The sequential schedule itself is the baseline: it need not compete with itself.
        entry.competitor = _BASELINE if entry.plan == sequential else entry.label
        if entry.competitor not in found:
            found[entry.competitor] = _Competitor(arena.program(entry.plan))
    return found


@dataclass
class _Session:
    """Workers with everything loaded, and the turns they take."""

    graph: Graph
    pool: WorkerPool
    arena: Arena
    plan: ArenaPlan
    competitors: dict[str, _Competitor]
    references: list[_Reference]
    settings: Settings
    _epoch: int = 0
    _expected: list[Tensor] = field(default_factory=list)

    def load(self, graph: str, weights: str, program: str | None) -> None:
        devices = range(self.settings.devices)
        inputs = self.plan.inputs
        arguments = {"graph": graph, "weights": weights, "inputs": inputs, "timeout_s": self.settings.timeout_s}
        self.pool.call_each(device.load, dict.fromkeys(devices, arguments))
        for name, competitor in self.competitors.items():
            self.pool.call_each(
                device.prepare, {part.device: {"name": name, "program": part} for part in competitor.programs}
            )
        self._write_inputs()
        if program is not None:
            buffers = {"inputs": list(inputs.values()), "outputs": self.plan.outputs}
            self.pool.call_each(eager.load, {r.worker: {"program": program, **buffers} for r in self.references})
            self.pool.call(self.references[0].worker, eager.run)
        else:
            self._run(_BASELINE)
        self._expected = [self._tensor(buffer).clone() for buffer in self.plan.outputs]

    def _write_inputs(self) -> None:
        buffers = list(self.plan.inputs.values())
        kinds = [(buffer.shape, torch_dtype(buffer.dtype)) for buffer in buffers]
        for buffer, value in zip(buffers, programs.example_inputs(kinds, self.settings.seed), strict=True):
            self._tensor(buffer).copy_(value)

    def _tensor(self, buffer: Buffer) -> Tensor:
        return self.arena.tensor(buffer.offset, buffer.shape, torch_dtype(buffer.dtype))

    def measure(self) -> None:
        """All rounds; every competitor and reference runs once a round, in random order."""
        turns: list[str | _Reference] = [*self.competitors, *self.references]
        shuffle = random.Random(self.settings.seed).shuffle
        rounds = self.settings.warmup + self.settings.runs
        with bar(rounds, f"{self.graph.name}: {len(turns)} competitors", "round") as progress:
            for number in range(rounds):
                shuffle(turns)
                for turn in turns:
                    self._take_turn(turn, measured=number >= self.settings.warmup)
                progress.update()

    def _take_turn(self, turn: str | _Reference, measured: bool) -> None:
        self._clear_outputs()
        if isinstance(turn, _Reference):
            latency = self.pool.call(turn.worker, eager.run) / 1e6
            self._difference(turn.name)
            if measured:
                turn.latencies_ms.append(latency)
            return
        latency, rows = self._run(turn)
        competitor = self.competitors[turn]
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
        parts = self.competitors[name].programs
        found = self.pool.call_each(device.run, {part.device: {"name": name, "epoch": self._epoch} for part in parts})
        began = next(iter(found.values()))[0]
        latency = (max(finish for _, finish, _ in found.values()) - began) / 1e6
        rows = [
            Placement(operator, number, stream, stage, (start - began) / 1e6, (end - began) / 1e6)
            for number, (_, _, own) in found.items()
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
            found = self._tensor(buffer)
            off = (found.double() - expected.double()).abs()
            if not bool((off <= self.settings.tolerance * (1 + expected.double().abs())).all()):
                raise PlatformError(
                    f"{name}: output {number} differs from the reference by up to {off.max().item():.3g}; allowed: "
                    f"{self.settings.tolerance:g} absolute plus relative; the schedule or a kernel is wrong"
                )
            largest = max(largest, off.max().item())
        return largest


def _latency(samples: Sequence[float]) -> dict[str, Any]:
    median, p20, p80 = spread(samples)
    return {"median": median, "p20": p20, "p80": p80, "runs": list(samples)}


def _report(
    settings: Settings,
    competitors: dict[str, _Competitor],
    references: Sequence[_Reference],
    entries: Sequence[_Entry],
) -> dict[str, Any]:
    baseline = _latency(competitors[_BASELINE].latencies_ms)
    copies = _latency(competitors[_COPIES].latencies_ms) if settings.devices > 1 else baseline
    ratio = settings.devices * baseline["median"] / copies["median"]
    return {
        "seed": settings.seed,
        "runs": settings.runs,
        "warmup": settings.warmup,
        "tolerance": settings.tolerance,
        "checked_against": "eager" if references else "sequential",
        "ceiling": {"devices": settings.devices, "latency_ms": copies, "throughput_ratio": ratio},
        "references": [
            {"name": r.name, "threads": len(r.cores), "latency_ms": _latency(r.latencies_ms)} for r in references
        ],
        "baseline": {"latency_ms": baseline},
        "results": [
            _result(entry, competitors[entry.competitor], baseline, ratio, settings.devices) for entry in entries
        ],
    }


def _result(
    entry: _Entry, competitor: _Competitor, baseline: dict[str, Any], ratio: float, devices: int
) -> dict[str, Any]:
    latency = _latency(competitor.latencies_ms)
    schedule = entry.schedule
    speedup = baseline["median"] / latency["median"]
    # Copies were measured on all devices of the session; a share of them takes part in the gain evenly.
    ceiling = 1 + (ratio - 1) * (schedule.devices - 1) / max(devices - 1, 1)
    return {
        "label": entry.label,
        "algorithm": schedule.algorithm,
        "parameters": dict(schedule.parameters),
        "devices": schedule.devices,
        "predicted_ms": schedule.latency_ms,
        "lower_bound_ms": schedule.lower_bound_ms,
        "scheduling_time_s": schedule.scheduling_time_s,
        "latency_ms": latency,
        "prediction_error": (schedule.latency_ms - latency["median"]) / latency["median"],
        "speedup": speedup,
        "share_of_ceiling": speedup / ceiling,
        "largest_difference": competitor.difference,
        "predicted": [asdict(row) for row in schedule.placements],
        "measured": [asdict(row) for row in competitor.typical()],
    }
