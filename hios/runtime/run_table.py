"""The measurements of a session as a table in text."""

from __future__ import annotations

from hios.files.text_tables import aligned, decimals_for
from hios.formats.run import Chosen, ReferenceResult, Run, ScheduleResult
from hios.runtime import predictions
from hios.runtime.competitors import BASELINE

#: What the last two columns of predictions mean.
_LEGEND = (
    "drift: how much slower (+) or faster (-) the machine ran than while it was profiled; error beyond drift: how far "
    "the prediction times this factor is from the measured latency"
)


def latency_table(run: Run) -> str:
    """One line per competitor with median, spread and speedup over the sequential schedule, in aligned columns.

    Speedups have a 95 % interval if there were enough rounds. Schedules come first, then the chosen one, the
    references, and the ceilings. The sequential schedule on one device is listed once, whether or not a schedule file
    asked for it. Schedules whose costs state the speed of the machine when they were measured also have their
    prediction, the drift of the machine since, and the error beyond it. The last lines explain these columns, how
    accurate predictions were, what ran segments, where devices share cores or GPUs, and which schedules could not run
    as CUDA graphs.
    """
    baseline = run.baseline.latency_ms
    shown = any(result.algorithm == "sequential" and result.devices == 1 for result in run.results)
    entries = [] if shown else [(BASELINE, baseline, "1.00")]
    entries += [(result.label, result.latency_ms, _speedup(result)) for result in run.results]
    if chosen := run.chosen:
        entries.append((f"auto: {chosen.label}", chosen.latency_ms, _speedup(chosen)))
    entries += [(reference.name, reference.latency_ms, _speedup(reference)) for reference in run.references]
    entries += [
        (
            f"{ceiling.devices} independent copies (ceiling)",
            ceiling.latency_ms,
            f"{ceiling.throughput_ratio:.2f} in throughput",
        )
        for ceiling in run.ceilings
    ]
    shortest = min(latency.median for _, latency, _ in entries)
    decimals = decimals_for(shortest)
    intervals = [entry.speedup_interval for entry in run.results] + [entry.speedup_interval for entry in run.references]
    sure = any(interval is not None for interval in intervals)
    rows = [["", "median ms", "p20 to p80", f"speedup{' (95 %)' if sure else ''}"]]
    predicted = {result.label: result for result in run.results if result.drift is not None}
    if predicted:
        rows[0] += ["predicted ms", "drift", "error beyond drift"]
    for label, latency, speedup in entries:
        median, p20, p80 = (f"{number:.{decimals}f}" for number in (latency.median, latency.p20, latency.p80))
        rows.append([label, median, f"{p20} to {p80}", speedup, *_prediction(predicted.get(label), decimals)])
    return "\n".join([*aligned(rows, "<>><>"), *_notes(run)])


def _prediction(result: ScheduleResult | None, decimals: int) -> list[str]:
    """Predicted latency, drift of the machine since profiling, and the remaining error."""
    if result is None or result.drift is None or result.error_beyond_drift is None:
        return []
    drift, beyond = result.drift.value - 1, result.error_beyond_drift
    return [f"{result.predicted_ms:.{decimals}f}", f"{drift:+.1%}", f"{beyond:+.1%}"]


def _notes(run: Run) -> list[str]:
    said = predictions.in_words(run)
    notes = [] if said is None else [_LEGEND, said]
    notes += [] if (segments := predictions.segments_in_words(run)) is None else [segments]
    notes += [] if (busy := predictions.other_work_in_words(run)) is None else [busy]
    notes += [] if (kind := predictions.other_hardware_in_words(run)) is None else [kind]
    notes += ["virtual devices: times say little"] if run.platform.virtual else []
    launched: dict[str, list[str]] = {}
    reasons = [(BASELINE, run.baseline.no_graph), *((result.label, result.no_graph) for result in run.results)]
    for label, reason in reasons:
        if reason is not None:
            launched.setdefault(reason, []).append(label)
    return notes + [
        f"launched operator by operator, not as CUDA graphs: {', '.join(labels)} ({why})"
        for why, labels in launched.items()
    ]


def _speedup(entry: ScheduleResult | ReferenceResult | Chosen) -> str:
    ends = entry.speedup_interval
    interval = "" if ends is None or ends == (1.0, 1.0) else f" ({ends[0]:.2f} to {ends[1]:.2f})"
    return "" if entry.speedup is None else f"{entry.speedup:.2f}{interval}"
