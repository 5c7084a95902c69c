"""What a session measured, as a table in text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hios.runtime import predictions
from hios.runtime.competitors import BASELINE

#: Four digits of the shortest latency.
_DECIMALS_FROM_MS = ((1000.0, 0), (100.0, 1), (10.0, 2))


def latency_table(run: Mapping[str, Any]) -> str:
    """A line a competitor with median, spread and speedup over the sequential schedule, aligned under a heading.

    Speedups have their 95 % interval where there were rounds enough for one. Schedules come first, then the chosen
    one, the references, and the ceilings. The sequential schedule on one device stands among them once, whether a
    schedule file asked for it or not. Schedules whose costs hold the speed of the machine when they were measured have
    their prediction beside that, the drift of the machine since, and the error beyond it. Last lines say how right
    predictions were, where devices share cores or GPUs, and which schedules could not run as CUDA graphs.

    Args:
        run: contents of run.json.
    """
    baseline = run["baseline"]["latency_ms"]
    shown = any(result["algorithm"] == "sequential" and result["devices"] == 1 for result in run["results"])
    entries: list[tuple[str, Any, str, Any]] = [] if shown else [(BASELINE, baseline, "1.00", {})]
    entries += [(result["label"], result["latency_ms"], _speedup(result), result) for result in run["results"]]
    if chosen := run.get("chosen"):
        entries.append((f"auto: {chosen['label']}", chosen["latency_ms"], _speedup(chosen), {}))
    entries += [
        (reference["name"], reference["latency_ms"], _speedup(reference), {}) for reference in run["references"]
    ]
    entries += [
        (
            f"{ceiling['devices']} independent copies (ceiling)",
            ceiling["latency_ms"],
            f"{ceiling['throughput_ratio']:.2f} in throughput",
            {},
        )
        for ceiling in run["ceilings"]
    ]
    shortest = min(latency["median"] for _, latency, _, _ in entries)
    decimals = next((decimals for least, decimals in _DECIMALS_FROM_MS if shortest >= least), 3)
    sure = any("speedup_interval" in entry for entry in (*run["results"], *run["references"]))
    rows = [["", "median ms", "p20 to p80", f"speedup{' (95 %)' if sure else ''}"]]
    for label, latency, speedup, _ in entries:
        median, p20, p80 = (f"{latency[key]:.{decimals}f}" for key in ("median", "p20", "p80"))
        rows.append([label, median, f"{p20} to {p80}", speedup])
    if any("drift" in result for *_, result in entries):
        rows[0] += ["predicted ms", "drift", "error beyond"]
        for row, (*_, result) in zip(rows[1:], entries, strict=True):
            row += _prediction(result, decimals)
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align = ("<", ">", ">", "<", ">", ">", ">")
    lines = ["  ".join(f"{cell:{a}{w}}" for cell, a, w in zip(row, align, width, strict=False)) for row in rows]
    return "\n".join([*(line.rstrip() for line in lines), *_notes(run)])


def _prediction(result: Mapping[str, Any], decimals: int) -> list[str]:
    """Predicted latency, drift of the machine since it was profiled, and the error beyond it."""
    if "drift" not in result:
        return ["", "", ""]
    return [
        f"{result['predicted_ms']:.{decimals}f}",
        f"{result['drift']['value'] - 1:+.1%}",
        f"{result['error_beyond_drift']:+.1%}",
    ]


def _notes(run: Mapping[str, Any]) -> list[str]:
    notes = [said] if (said := predictions.in_words(run)) else []
    notes += ["virtual devices: times say little"] if run["platform"].get("virtual") else []
    launched: dict[str, list[str]] = {}
    for entry in ({"label": BASELINE, **run["baseline"]}, *run["results"]):
        if "no_graph" in entry:
            launched.setdefault(entry["no_graph"], []).append(entry["label"])
    return notes + [
        f"launched operator by operator, not as CUDA graphs: {', '.join(labels)} ({why})"
        for why, labels in launched.items()
    ]


def _speedup(entry: Mapping[str, Any]) -> str:
    ends = entry.get("speedup_interval")
    return f"{entry['speedup']:.2f}" + ("" if ends in (None, [1, 1]) else f" ({ends[0]:.2f} to {ends[1]:.2f})")
