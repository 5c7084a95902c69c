"""A session: competitors take turns in rounds, in the workers of a pool or the ranks of a launcher; its run.json."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, cast

from hios.core import drift
from hios.core.graph import Graph
from hios.formats.run import (
    Baseline,
    Ceiling,
    Checked,
    Chosen,
    Latency,
    ReferenceKind,
    ReferenceResult,
    Run,
    RunPlatform,
    ScheduleResult,
)
from hios.formats.settings import Settings
from hios.machine.statistics import speedup_interval, spread
from hios.machine.terminal import bar
from hios.platforms.competitor import Competitor
from hios.platforms.probe_schedule import ProbeSchedule
from hios.platforms.reference import Reference
from hios.runtime.competitors import BASELINE, ScheduleEntry


class TurnOutcome(NamedTuple):
    """The latency of a run, and the largest difference of its outputs from the expected ones; None if not known."""

    latency_ms: float
    difference: float | None


class CompetitorRunner(Protocol):
    """Runs the competitors of a session."""

    def run(self, name: str) -> TurnOutcome | None:
        """Run a competitor once and check its outputs, by a `HiosError`; None if another process records the result."""

    def run_reference(self, reference: Reference) -> TurnOutcome | None:
        """Run the model itself once and check its outputs, as `run` does; None also if it has left the session."""

    def take_rows(self, name: str) -> None:
        """Keep the operators' times of the last run of a competitor, if every run records them."""


@dataclass
class Competition:
    """The competitors by name, references and schedule files of a session; measurements are recorded in them.

    The probe, where there is one, is timed throughout the session to track the speed of the machine.
    """

    graph: Graph
    competitors: dict[str, Competitor]
    references: list[Reference]
    entries: Sequence[ScheduleEntry]
    runner: CompetitorRunner
    settings: Settings
    probe: ProbeSchedule | None = None

    def measure(self, *, shown: bool) -> None:
        """Run all rounds; each runs every competitor and reference once, in an order determined by the seed."""
        turns: list[str | Reference] = [*self.competitors, *self.references]
        shuffle = random.Random(self.settings.seed).shuffle
        rounds, what = (
            self.settings.warmup + self.settings.runs,
            f"{self.graph.name}: {len(turns)} competitors take turns",
        )
        with bar(rounds, what, "rounds") if shown else nullcontext() as progress:
            if self.probe is not None:
                self.probe.take_at_end()
            for number in range(rounds):
                if self.probe is not None:
                    self.probe.take_if_due()
                shuffle(turns)
                for turn in turns:
                    if isinstance(turn, str) or turn in self.references:
                        self._take_turn(turn, measured=number >= self.settings.warmup)
                if progress is not None:
                    progress.update()
            if self.probe is not None:
                self.probe.take_at_end()

    def _take_turn(self, turn: str | Reference, measured: bool) -> None:
        if isinstance(turn, Reference):
            party: Reference | Competitor = turn
            outcome = self.runner.run_reference(turn)
        else:
            party = self.competitors[turn]
            outcome = self.runner.run(turn)
        if outcome is None:
            return
        if outcome.difference is not None:
            party.difference = max(party.difference, outcome.difference)
        if measured:
            party.latencies_ms.append(outcome.latency_ms)
            if not isinstance(turn, Reference):
                self.runner.take_rows(turn)


def run_file(
    session: Competition,
    platform: RunPlatform,
    versions: dict[str, str],
    began: datetime,
    runtime: str | None,
    profiled_on: str | None,
    chosen: Chosen | None = None,
    rounding: float | None = None,
) -> Run:
    """The contents of run.json.

    The session has been measured; it ``began`` at a time in UTC. ``runtime`` is that of the program that made the
    expected outputs, None if the sequential schedule did; ``profiled_on`` is the hardware that costs were measured on,
    if it is another one; ``rounding`` is the largest difference of outputs that rounding explains, if one was beyond
    the tolerance.
    """
    first, settings = session.competitors[BASELINE], session.settings
    runs = first.latencies_ms
    baseline = measured(runs)
    copies = {
        len(competitor.programs): measured(competitor.latencies_ms)
        for competitor in session.competitors.values()
        if competitor.copies
    }
    ratios = {count: count * baseline.median / latency.median for count, latency in copies.items()}
    engines = [
        _reference(competitor, name, competitor.cores, "engine", runs)
        for name, competitor in session.competitors.items()
        if competitor.worker is not None
    ]
    return Run(
        graph=session.graph.name,
        platform=platform,
        versions=versions,
        measured_at=f"{began:%Y-%m-%dT%H:%M:%SZ}",
        seed=settings.seed,
        runs=settings.runs,
        warmup=settings.warmup,
        tolerance=settings.tolerance,
        checked_against=cast("Checked", runtime or "sequential"),
        chosen=chosen,
        ceilings=tuple(Ceiling(count, latency, ratios[count]) for count, latency in copies.items()),
        references=(*engines, *(_reference(own, own.name, own.threads, own.kind, runs) for own in session.references)),
        baseline=Baseline(baseline, first.launch, first.no_graph or None, first.peak_memory_bytes, first.segments),
        results=tuple(
            _result(entry, session.competitors[entry.competitor], runs, {1: 1.0, **ratios}, session.probe)
            for entry in session.entries
        ),
        probe=None if session.probe is None else session.probe.record(),
        engine=None if first.segments is None else "segments",
        profiled_on=profiled_on,
        rounding=rounding,
    )


def _reference(
    party: Competitor | Reference, name: str, threads: int, kind: str, baseline: Sequence[float]
) -> ReferenceResult:
    """A runtime of the model itself, or the engine with several cores of one device."""
    speedup, interval = gained(baseline, party.latencies_ms)
    return ReferenceResult(
        name,
        threads,
        measured(party.latencies_ms),
        kind=cast("ReferenceKind", kind),
        compile_time_s=party.compile_time_s if isinstance(party, Reference) else None,
        precision=party.precision if isinstance(party, Reference) else None,
        speedup=speedup,
        speedup_interval=interval,
        largest_difference=party.difference,
        peak_memory_bytes=party.peak_memory_bytes,
    )


def measured(samples: Sequence[float]) -> Latency:
    """The latencies of runs, as run.json states them."""
    median, p20, p80 = spread(samples)
    return Latency(median, p20, p80, tuple(samples))


def gained(baseline: Sequence[float], runs: Sequence[float]) -> tuple[float, tuple[float, float] | None]:
    """Speedup over the baseline, with its interval if there are enough rounds."""
    return spread(baseline)[0] / spread(runs)[0], speedup_interval(baseline, runs)


def _result(
    entry: ScheduleEntry,
    competitor: Competitor,
    baseline: Sequence[float],
    ratios: Mapping[int, float],
    probe: ProbeSchedule | None,
) -> ScheduleResult:
    latency, schedule = measured(competitor.latencies_ms), entry.schedule
    drifted = None if probe is None else drift.since(schedule.probe, probe.version, probe.samples, schedule.devices)
    speedup, interval = gained(baseline, competitor.latencies_ms)
    return ScheduleResult(
        label=entry.label,
        algorithm=schedule.algorithm,
        parameters=dict(schedule.parameters),
        devices=schedule.devices,
        predicted_ms=schedule.latency_ms,
        lower_bound_ms=schedule.lower_bound_ms,
        scheduling_time_s=schedule.scheduling_time_s,
        latency_ms=latency,
        prediction_error=(schedule.latency_ms - latency.median) / latency.median,
        speedup=speedup,
        share_of_ceiling=speedup / ratios[schedule.devices],
        largest_difference=competitor.difference,
        predicted=schedule.placements,
        measured=tuple(competitor.typical()),
        speedup_interval=interval,
        cuts=schedule.cuts,
        launch=competitor.launch,
        no_graph=competitor.no_graph or None,
        drift=drifted,
        error_beyond_drift=None
        if drifted is None
        else drift.error_beyond(drifted, schedule.latency_ms, latency.median),
        allocation_time_s=schedule.allocation_time_s,
        peak_memory_bytes=competitor.peak_memory_bytes,
        segments=competitor.segments,
    )
