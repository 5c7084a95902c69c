"""What run.json says of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hios import drift
from hios.platforms.competitor import Competitor
from hios.platforms.probe_schedule import ProbeSchedule
from hios.runtime.baselines import Reference
from hios.runtime.bootstrap import speedup_interval
from hios.runtime.competitors import BASELINE, Entry
from hios.schedule import Schedule
from hios.statistics import spread


def results(
    competitors: Mapping[str, Competitor],
    references: Sequence[Reference],
    entries: Sequence[Entry],
    probe: ProbeSchedule | None = None,
) -> dict[str, Any]:
    """Ceilings, references, baseline and results of run.json.

    Args:
        competitors: by name, with what was measured of each.
        references: the model itself in other runtimes, with what was measured of each.
        entries: schedule files.
        probe: as timed in the session; None where it was not.
    """
    baseline_runs = competitors[BASELINE].latencies_ms
    baseline = measured(baseline_runs)
    ceilings = {
        len(competitor.programs): measured(competitor.latencies_ms)
        for competitor in competitors.values()
        if competitor.copies
    }
    ratios = {count: count * baseline["median"] / latency["median"] for count, latency in ceilings.items()}
    return {
        "ceilings": [
            {"devices": count, "latency_ms": latency, "throughput_ratio": ratios[count]}
            for count, latency in ceilings.items()
        ],
        "references": [
            {**entry, **gained(baseline_runs, entry["latency_ms"]["runs"])}
            for entry in (
                *(_engine(name, competitor) for name, competitor in competitors.items() if competitor.cores > 1),
                *(_reference(reference) for reference in references),
            )
        ],
        "baseline": {"latency_ms": baseline, **_launch(competitors[BASELINE])},
        "results": [
            {
                **_result(entry, competitors[entry.competitor], baseline_runs, {1: 1.0, **ratios}),
                **_drifted(entry.schedule, competitors[entry.competitor], probe),
            }
            for entry in entries
        ],
    }


def _engine(name: str, competitor: Competitor) -> dict[str, Any]:
    """The engine itself with several cores of one device."""
    return {
        "name": name,
        "kind": "engine",
        "threads": competitor.cores,
        "latency_ms": measured(competitor.latencies_ms),
        "largest_difference": competitor.difference,
    }


def _reference(reference: Reference) -> dict[str, Any]:
    return {
        "name": reference.name,
        "kind": reference.kind,
        "threads": reference.threads,
        "latency_ms": measured(reference.latencies_ms),
        "largest_difference": reference.difference,
        **({} if reference.compile_time_s is None else {"compile_time_s": reference.compile_time_s}),
    }


def measured(samples: Sequence[float]) -> dict[str, Any]:
    """Latency over runs as run.json has it."""
    median, p20, p80 = spread(samples)
    return {"median": median, "p20": p20, "p80": p80, "runs": list(samples)}


def gained(baseline: Sequence[float], runs: Sequence[float]) -> dict[str, Any]:
    """Speedup over the baseline, with its interval where there are rounds enough."""
    ends = speedup_interval(baseline, runs)
    return {
        "speedup": spread(baseline)[0] / spread(runs)[0],
        **({} if ends is None else {"speedup_interval": list(ends)}),
    }


def _result(
    entry: Entry, competitor: Competitor, baseline: Sequence[float], ratios: Mapping[int, float]
) -> dict[str, Any]:
    latency, schedule = measured(competitor.latencies_ms), entry.schedule
    speedup = gained(baseline, competitor.latencies_ms)
    return {
        "label": entry.label,
        "algorithm": schedule.algorithm,
        "parameters": dict(schedule.parameters),
        "devices": schedule.devices,
        "predicted_ms": schedule.latency_ms,
        "lower_bound_ms": schedule.lower_bound_ms,
        "scheduling_time_s": schedule.scheduling_time_s,
        **_launch(competitor),
        "latency_ms": latency,
        "prediction_error": (schedule.latency_ms - latency["median"]) / latency["median"],
        **speedup,
        "share_of_ceiling": speedup["speedup"] / ratios[schedule.devices],
        "largest_difference": competitor.difference,
        "predicted": [asdict(row) for row in schedule.placements],
        "measured": [asdict(row) for row in competitor.typical()],
    }


def _drifted(schedule: Schedule, competitor: Competitor, probe: ProbeSchedule | None) -> dict[str, Any]:
    """How far the machine drifted since the costs of a schedule were measured, and the error beyond that."""
    then = schedule.probe
    if probe is None or then is None or then.version != probe.version:
        return {}
    now = drift.speed(probe.samples, schedule.devices)
    if now is None:
        return {}
    by = drift.between(now, then.speed, then.copy_share)
    latency_ms = spread(competitor.latencies_ms)[0]
    return {"drift": asdict(by), "error_beyond_drift": drift.error_beyond(by, schedule.latency_ms, latency_ms)}


def _launch(competitor: Competitor) -> dict[str, Any]:
    """How it was launched on GPUs."""
    return {
        **({"launch": competitor.launch} if competitor.launch else {}),
        **({"no_graph": competitor.no_graph} if competitor.no_graph else {}),
    }
