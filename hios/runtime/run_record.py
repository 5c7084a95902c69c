"""The contents of run.json for a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from hios import drift
from hios.formats.probe_record import Estimate
from hios.formats.run_file import Baseline, Ceiling, Latency, Launch, ReferenceKind, ReferenceResult, ScheduleResult
from hios.platforms.competitor import Competitor
from hios.platforms.probe_schedule import ProbeSchedule
from hios.platforms.reference import Reference
from hios.runtime.competitors import BASELINE, Entry
from hios.statistics import speedup_interval, spread


class SessionResults(NamedTuple):
    """The measurements of a session, as run.json states them."""

    ceilings: tuple[Ceiling, ...]
    references: tuple[ReferenceResult, ...]
    baseline: Baseline
    results: tuple[ScheduleResult, ...]


def results(
    competitors: Mapping[str, Competitor],
    references: Sequence[Reference],
    entries: Sequence[Entry],
    probe: ProbeSchedule | None = None,
) -> SessionResults:
    """Ceilings, references, baseline and results of run.json.

    Args:
        competitors: by name, with what was measured of each.
        references: the model itself in other runtimes, with what was measured of each.
        entries: schedule files.
        probe: as timed in the session; None if it was not.
    """
    baseline_runs = competitors[BASELINE].latencies_ms
    baseline = measured(baseline_runs)
    copies = {
        len(competitor.programs): measured(competitor.latencies_ms)
        for competitor in competitors.values()
        if competitor.copies
    }
    ratios = {count: count * baseline.median / latency.median for count, latency in copies.items()}
    first = competitors[BASELINE]
    return SessionResults(
        tuple(Ceiling(count, latency, ratios[count]) for count, latency in copies.items()),
        (
            *(
                _engine(name, competitor, baseline_runs)
                for name, competitor in competitors.items()
                if competitor.worker is not None
            ),
            *(_reference(reference, baseline_runs) for reference in references),
        ),
        Baseline(baseline, _launch(first), first.no_graph or None, first.peak_memory_bytes),
        tuple(
            _result(
                entry,
                competitors[entry.competitor],
                baseline_runs,
                {1: 1.0, **ratios},
                None
                if probe is None
                else drift.since(entry.schedule.probe, probe.version, probe.samples, entry.schedule.devices),
            )
            for entry in entries
        ),
    )


def _engine(name: str, competitor: Competitor, baseline: Sequence[float]) -> ReferenceResult:
    """The engine itself with several cores of one device."""
    speedup, interval = gained(baseline, competitor.latencies_ms)
    return ReferenceResult(
        name,
        competitor.cores,
        measured(competitor.latencies_ms),
        kind="engine",
        speedup=speedup,
        speedup_interval=interval,
        largest_difference=competitor.difference,
        peak_memory_bytes=competitor.peak_memory_bytes,
    )


def _reference(reference: Reference, baseline: Sequence[float]) -> ReferenceResult:
    speedup, interval = gained(baseline, reference.latencies_ms)
    return ReferenceResult(
        reference.name,
        reference.threads,
        measured(reference.latencies_ms),
        kind=cast("ReferenceKind", reference.kind),
        compile_time_s=reference.compile_time_s,
        precision=reference.precision,
        speedup=speedup,
        speedup_interval=interval,
        largest_difference=reference.difference,
        peak_memory_bytes=reference.peak_memory_bytes,
    )


def measured(samples: Sequence[float]) -> Latency:
    """The latencies of runs, as run.json states them."""
    median, p20, p80 = spread(samples)
    return Latency(median, p20, p80, tuple(samples))


def gained(baseline: Sequence[float], runs: Sequence[float]) -> tuple[float, tuple[float, float] | None]:
    """Speedup over the baseline, with its interval if there are enough rounds."""
    return spread(baseline)[0] / spread(runs)[0], speedup_interval(baseline, runs)


def _result(
    entry: Entry,
    competitor: Competitor,
    baseline: Sequence[float],
    ratios: Mapping[int, float],
    drifted: Estimate | None,
) -> ScheduleResult:
    latency, schedule = measured(competitor.latencies_ms), entry.schedule
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
        launch=_launch(competitor),
        no_graph=competitor.no_graph or None,
        drift=drifted,
        error_beyond_drift=None
        if drifted is None
        else drift.error_beyond(drifted, schedule.latency_ms, latency.median),
        allocation_time_s=schedule.allocation_time_s,
        peak_memory_bytes=competitor.peak_memory_bytes,
    )


def _launch(competitor: Competitor) -> Launch | None:
    """How the competitor was launched on GPUs; None on cores."""
    return cast("Launch", competitor.launch) if competitor.launch else None
