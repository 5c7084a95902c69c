"""What run.json says of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hios.profiling.statistics import spread
from hios.runtime.baselines import Reference
from hios.runtime.competitors import BASELINE, Competitor, Entry


def results(
    competitors: Mapping[str, Competitor], references: Sequence[Reference], entries: Sequence[Entry]
) -> dict[str, Any]:
    """Ceilings, references, baseline and results of run.json."""
    baseline = _latency(competitors[BASELINE].latencies_ms)
    ceilings = {
        len(competitor.programs): _latency(competitor.latencies_ms)
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
            *(_engine(name, competitor) for name, competitor in competitors.items() if competitor.cores > 1),
            *(_reference(reference) for reference in references),
        ],
        "baseline": {"latency_ms": baseline},
        "results": [
            _result(entry, competitors[entry.competitor], baseline["median"], {1: 1.0, **ratios}) for entry in entries
        ],
    }


def _engine(name: str, competitor: Competitor) -> dict[str, Any]:
    """The engine itself with several cores of one device."""
    return {
        "name": name,
        "kind": "engine",
        "threads": competitor.cores,
        "latency_ms": _latency(competitor.latencies_ms),
        "largest_difference": competitor.difference,
    }


def _reference(reference: Reference) -> dict[str, Any]:
    return {
        "name": reference.name,
        "kind": reference.kind,
        "threads": len(reference.cores),
        "latency_ms": _latency(reference.latencies_ms),
        "largest_difference": reference.difference,
        **({} if reference.compile_time_s is None else {"compile_time_s": reference.compile_time_s}),
    }


def _latency(samples: Sequence[float]) -> dict[str, Any]:
    median, p20, p80 = spread(samples)
    return {"median": median, "p20": p20, "p80": p80, "runs": list(samples)}


def _result(entry: Entry, competitor: Competitor, baseline_ms: float, ratios: Mapping[int, float]) -> dict[str, Any]:
    latency, schedule = _latency(competitor.latencies_ms), entry.schedule
    speedup = baseline_ms / latency["median"]
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
        "share_of_ceiling": speedup / ratios[schedule.devices],
        "largest_difference": competitor.difference,
        "predicted": [asdict(row) for row in schedule.placements],
        "measured": [asdict(row) for row in competitor.typical()],
    }
