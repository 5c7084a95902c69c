"""run.json: whether its derived numbers follow from the others, and agree with graph and schedules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from hios.core import drift
from hios.core.drift import Estimate, RunProbe
from hios.core.graph import Graph
from hios.core.schedule import Placement, Schedule
from hios.errors import shown
from hios.formats.run import Baseline, Ceiling, Chosen, Latency, ReferenceResult, Run, ScheduleResult
from hios.machine.statistics import LEAST_ROUNDS, speedup_interval, spread

#: Relative difference between a stated and a recomputed number that rounding explains.
_ROUNDING = 1e-6


def run_problems(run: Run, graph: Graph | None, schedules: Mapping[str, Schedule]) -> list[str]:
    """Errors in a run, as far as the file itself, the graph and the schedules show.

    Medians, percentiles, speedups with their intervals, ceilings and prediction errors are worked out again from the
    runs, drift and the error beyond it from the probe. Whether outputs were right is not checked: they are not kept.

    Args:
        run: what run.json holds.
        graph: None if there is no valid one.
        schedules: valid ones by the stem of their file, which labels results.
    """
    problems = [*_latencies(run), *_ratios(run), *_intervals(run), *_probe(run)]
    for number, result in enumerate(run.results):
        field = f"results[{number}]"
        problems += [*_placements(field, result, graph), *_segments(field, result)]
        if result.label in schedules:
            problems += _of_schedule(field, result, schedules[result.label])
            problems += _drift(field, result, schedules[result.label], run.probe)
    if graph is not None and run.graph != graph.name:
        problems.append(f"graph: found {_name(run.graph)}; allowed: {_name(graph.name)}, the name in graph.json")
    return problems


#: Entries with latencies.
_Timed = Baseline | Ceiling | ReferenceResult | ScheduleResult | Chosen


def _timed(run: Run) -> Iterator[tuple[str, _Timed]]:
    """All entries with latencies, with their fields."""
    yield "baseline", run.baseline
    lists: dict[str, Sequence[_Timed]] = {
        "results": run.results,
        "references": run.references,
        "ceilings": run.ceilings,
    }
    for name, entries in lists.items():
        for number, entry in enumerate(entries):
            yield f"{name}[{number}]", entry
    if run.chosen is not None:
        yield "chosen", run.chosen


def _latencies(run: Run) -> Iterator[str]:
    for field, entry in _timed(run):
        latency: Latency = entry.latency_ms
        expected = run.runs if not isinstance(entry, Chosen) else run.runs // 2
        if len(latency.runs) != expected:
            yield f"{field}.latency_ms.runs: found {len(latency.runs)} runs; allowed: {expected}, as runs states"
        if not latency.runs:
            continue
        for name, stated, computed in zip(
            ("median", "p20", "p80"), (latency.median, latency.p20, latency.p80), spread(latency.runs), strict=True
        ):
            yield from _differs(f"{field}.latency_ms.{name}", stated, computed)


def _ratios(run: Run) -> Iterator[str]:
    """Speedups over the baseline, ceilings, shares of them, and errors of predictions."""
    baseline = run.baseline.latency_ms.median
    ceilings = {1: 1.0, **{ceiling.devices: ceiling.throughput_ratio for ceiling in run.ceilings}}
    for number, ceiling in enumerate(run.ceilings):
        ratio = _ratio(ceiling.devices * baseline, ceiling.latency_ms.median)
        yield from _differs(f"ceilings[{number}].throughput_ratio", ceiling.throughput_ratio, ratio)
    for field, entry in _timed(run):
        if isinstance(entry, ScheduleResult | ReferenceResult) and entry.speedup is not None:
            yield from _differs(f"{field}.speedup", entry.speedup, _ratio(baseline, entry.latency_ms.median))
    for number, result in enumerate(run.results):
        median = result.latency_ms.median
        error = _ratio(result.predicted_ms - median, median)
        yield from _differs(f"results[{number}].prediction_error", result.prediction_error, error)
        if result.devices in ceilings:
            share = _ratio(result.speedup, ceilings[result.devices])
            yield from _differs(f"results[{number}].share_of_ceiling", result.share_of_ceiling, share)
        else:
            yield f"results[{number}].devices: found {result.devices}, for which ceilings has no entry"


def _intervals(run: Run) -> Iterator[str]:
    """Intervals of speedups, and the speedup of the chosen one, which is of every other run of the baseline."""
    rounds = run.baseline.latency_ms.runs
    for field, entry in _timed(run):
        if isinstance(entry, Baseline | Ceiling):
            continue
        baseline = rounds[1::2] if isinstance(entry, Chosen) else rounds
        own = entry.latency_ms.runs
        if isinstance(entry, Chosen) and baseline and own:
            yield from _differs(f"{field}.speedup", entry.speedup, _ratio(spread(baseline)[0], spread(own)[0]))
        if entry.speedup_interval is None:  # files of earlier versions have none
            continue
        low, high = entry.speedup_interval
        computed = speedup_interval(baseline, own)
        place = f"{field}.speedup_interval"
        if low > high:
            yield f"{place}: found {low:.9g} to {high:.9g}; allowed: the lower end first"
        elif computed is None:
            yield (
                f"{place}: found {low:.9g} to {high:.9g}; allowed: none, as {len(own)} runs with {len(baseline)} of "
                f"the baseline give no interval; required: at least {LEAST_ROUNDS} of both in the same rounds"
            )
        else:
            yield from _differs(f"{place}[0]", low, computed[0])
            yield from _differs(f"{place}[1]", high, computed[1])


def _probe(run: Run) -> Iterator[str]:
    """The speed of the machine, from the timings of the probe; errors beyond drift, from the drift."""
    if run.probe is not None and (computed := drift.speed(run.probe.samples)) is not None:
        for part in ("compute_ms", "copy_ms"):
            yield from _estimate(f"probe.speed.{part}", getattr(run.probe.speed, part), getattr(computed, part))
    for number, result in enumerate(run.results):
        field = f"results[{number}].error_beyond_drift"
        if result.error_beyond_drift is None:
            continue
        if result.drift is None:
            yield f"{field}: found {result.error_beyond_drift:.9g}; required: drift, which it is beyond"
        elif (median := result.latency_ms.median) > 0:
            error = drift.error_beyond(result.drift, result.predicted_ms, median)
            yield from _differs(field, result.error_beyond_drift, error)


def _drift(field: str, result: ScheduleResult, schedule: Schedule, probe: RunProbe | None) -> Iterator[str]:
    """Drift since the costs of a schedule were measured, which it states, from the timings of the probe."""
    if result.drift is None:
        return
    computed = None if probe is None else drift.since(schedule.probe, probe.version, probe.samples, result.devices)
    if computed is not None:
        yield from _estimate(f"{field}.drift", result.drift, computed)
    else:
        yield (
            f"{field}.drift: found {result.drift.value:.9g}; required: the same probe in run.json and in the schedule "
            f"{_name(result.label)}"
        )


def _placements(field: str, result: ScheduleResult, graph: Graph | None) -> Iterator[str]:
    """Check that each operator of the graph ran once, on the predicted device."""
    for kind, rows in (("predicted", result.predicted), ("measured", result.measured)):
        seen: set[str] = set()
        for number, row in enumerate(rows):
            place = f"{field}.{kind}[{number}].operator"
            if graph is not None and row.operator not in graph.index:
                yield f"{place}: found {_name(row.operator)}, which is not an operator of the graph"
            if row.operator in seen:
                yield f"{place}: {_name(row.operator)} is placed twice; every operator is placed once"
            if row.finish_ms < row.start_ms:
                yield f"{field}.{kind}[{number}].finish_ms: found {row.finish_ms:.9g}; allowed: not before start_ms"
            seen.add(row.operator)
    predicted = {row.operator: _place(row) for row in result.predicted}
    for number, row in enumerate(result.measured):
        if row.operator in predicted and _place(row) != predicted[row.operator]:
            yield f"{field}.measured[{number}]: {_name(row.operator)} ran elsewhere than predicted"


def _segments(field: str, result: ScheduleResult) -> Iterator[str]:
    """Check that segments are of operators that ran on their device, each in one, and that the fastest runtime ran."""
    on_device = {(row.operator, row.device) for row in result.measured}
    for number, segment in enumerate(result.segments or ()):
        place = f"{field}.segments[{number}]"
        for operator in segment.operators:
            if (operator, segment.device) not in on_device:
                yield f"{place}.operators: found {_name(operator)}; allowed: what ran on device {segment.device}, once"
            on_device.discard((operator, segment.device))
        if segment.latency_ms.get(segment.runtime) != min(segment.latency_ms.values(), default=None):
            yield f"{place}.runtime: found {segment.runtime}; allowed: the one of the shortest latency_ms"


def _of_schedule(field: str, result: ScheduleResult, schedule: Schedule) -> Iterator[str]:
    """Check that a result repeats what its schedule states."""
    for name, stated, other in (
        ("algorithm", result.algorithm, schedule.algorithm),
        ("devices", result.devices, schedule.devices),
        ("parameters", result.parameters, dict(schedule.parameters)),
    ):
        if stated != other:
            yield f"{field}.{name}: found {shown(stated)}; the schedule {_name(result.label)} states {shown(other)}"
    for name, number, other_number in (
        ("predicted_ms", result.predicted_ms, schedule.latency_ms),
        ("lower_bound_ms", result.lower_bound_ms, schedule.lower_bound_ms),
    ):
        if not math.isclose(number, other_number, rel_tol=_ROUNDING):
            yield f"{field}.{name}: found {number:.9g}; the schedule {_name(result.label)} states {other_number:.9g}"
    if result.predicted != schedule.placements:
        yield f"{field}.predicted: differs from the placements of the schedule {_name(result.label)}"


def _place(row: Placement) -> tuple[tuple[int, ...], int, int | None]:
    return row.held_devices, row.stream, row.stage


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else math.nan


def _differs(field: str, stated: float, computed: float) -> Iterator[str]:
    if math.isfinite(computed) and not math.isclose(stated, computed, rel_tol=_ROUNDING, abs_tol=1e-9):
        yield f"{field}: found {stated:.9g}; recomputed: {computed:.9g}"


def _estimate(field: str, stated: Estimate, computed: Estimate) -> Iterator[str]:
    for name in ("value", "low", "high"):
        yield from _differs(f"{field}.{name}", getattr(stated, name), getattr(computed, name))


def _name(text: str) -> str:
    return shown(text, quoted=False)
