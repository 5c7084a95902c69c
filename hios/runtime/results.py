"""What run.json says of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hios.platforms.competitor import Competitor
from hios.platforms.reference import Reference
from hios.runtime.bootstrap import speedup_interval
from hios.runtime.competitors import BASELINE, Entry
from hios.statistics import spread


def results(
    competitors: Mapping[str, Competitor], references: Sequence[Reference], entries: Sequence[Entry]
) -> dict[str, Any]:
    """Ceilings, references, baseline and results of run.json."""
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
            _result(entry, competitors[entry.competitor], baseline_runs, {1: 1.0, **ratios}) for entry in entries
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


def _launch(competitor: Competitor) -> dict[str, Any]:
    """How it was launched on GPUs."""
    return {
        **({"launch": competitor.launch} if competitor.launch else {}),
        **({"no_graph": competitor.no_graph} if competitor.no_graph else {}),
    }
