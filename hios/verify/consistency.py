"""Costs against their graph, schedules against graph and costs, tables/latency.csv against what it is made from.

run.json: whether its derived numbers follow from the others, and agree with graph and schedules.

And whether measurements state what they were measured on: numbers without machine and software are worthless.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hios.core import drift
from hios.core.bound_check import judge_bounds
from hios.core.check import violations
from hios.core.costs import Costs, CostsFile, LinkModel, predicted_for
from hios.core.drift import Estimate, RunProbe
from hios.core.evaluate import evaluate, latency_ms
from hios.core.graph import Graph
from hios.core.problem import Problem
from hios.core.schedule import Placement, Schedule
from hios.errors import ArtifactError, HiosError, first_line, shown
from hios.files import artifacts
from hios.files.base import Platform
from hios.files.text_tables import unguarded
from hios.formats.partition import PartitionFile
from hios.formats.run import Baseline, Ceiling, Chosen, Latency, ReferenceResult, Run, RunPlatform, ScheduleResult
from hios.machine.statistics import LEAST_ROUNDS, speedup_interval, spread
from hios.report.results import model_results
from hios.report.tables import LATENCY_COLUMNS, Row, latency_rows, prediction_rows
from hios.schedulers import ALGORITHMS
from hios.schedulers.opt.lower_bounds import proven_bound_ms

#: Relative difference between a stated and a recomputed number that rounding explains.
_ROUNDING = 1e-6


def problem_of(graph: Graph, file: CostsFile) -> tuple[Problem | None, list[str]]:
    """The scheduling problem, None if the costs do not fit the graph, and what of them is missing or superfluous."""
    problems = [
        f"operators: no entry for operator {_name(operator)} of the graph; required: time_ms for every operator"
        for operator in graph.index
        if operator not in file.operators
    ]
    problems += _transfer_problems(file, graph)
    for position, stage in enumerate(file.stages):
        problems += [
            f"stages[{position}]: found operator {_name(operator)}, which is not in the graph"
            for group in stage.groups
            for operator in group
            if operator not in graph.index
        ]
    if not problems:
        try:
            return Problem(graph, Costs.of(file, "costs")), []
        except HiosError as error:
            problems.append(str(error).removeprefix("costs: "))
    return None, problems


def _transfer_problems(file: CostsFile, graph: Graph) -> Iterator[str]:
    if isinstance(file.transfers, LinkModel):
        for edge in graph.edges:
            if edge.bytes is None:
                yield (
                    f"transfers: the link model needs bytes of edge {_name(edge.source)} -> {_name(edge.target)}, "
                    "which the graph does not state"
                )
        return
    known = {(transfer.source, transfer.target) for transfer in file.transfers}
    for source, target in dict.fromkeys((edge.source, edge.target) for edge in graph.edges):
        if (source, target) not in known:
            yield f"transfers: no entry for edge {_name(source)} -> {_name(target)}; required: time_ms for every edge"


def partition_problems(file: PartitionFile, graph: Graph | None, costs: CostsFile | None) -> list[str]:
    """Errors in a partition of cores: in its choice, its graph, and the costs that were measured on it."""
    problems = []
    chosen = (file.devices, file.cores_per_device)
    known = {(entry.devices, entry.cores_per_device): entry for entry in file.partitions}
    if chosen not in known:
        problems.append(f"devices: found {chosen[0]} of {chosen[1]} core(s), which is not among partitions")
    elif known[chosen].latency_ms is None:
        problems.append(f"devices: found {chosen[0]} of {chosen[1]} core(s), which was not measured")
    for position, entry in enumerate(file.partitions):
        cores = entry.devices * entry.cores_per_device
        if cores > file.cores:
            problems.append(f"partitions[{position}]: found {cores} cores; there are {file.cores}")
        if entry.latency_ms is not None and entry.latency_ms.runs:
            median, _, _ = spread(entry.latency_ms.runs)
            if not math.isclose(entry.latency_ms.median, median, rel_tol=_ROUNDING):
                problems.append(
                    f"partitions[{position}].latency_ms.median: found {entry.latency_ms.median:.9g}; recomputed from "
                    f"runs: {median:.9g}"
                )
    if graph is not None and file.graph_fingerprint != graph.fingerprint:
        problems.append(f"graph_fingerprint: found {file.graph_fingerprint}; graph.json has {graph.fingerprint}")
    if costs is not None and costs.platform is not None and costs.platform.devices is not None:
        measured_on = costs.platform.devices, costs.platform.cores_per_device or 1
        if measured_on != chosen:
            problems.append(
                f"devices: found {chosen[0]} of {chosen[1]} core(s); costs.json was measured on {measured_on[0]} of "
                f"{measured_on[1]}"
            )
    return problems


def schedule_problems(schedule: Schedule, graph: Graph | None, problem: Problem | None) -> list[str]:
    """Errors in a schedule, as far as graph and costs are available to check it against.

    Rows are checked by ``hios.core.check``, and the latency is compared with that of the evaluator. Of a schedule
    with measured times, which ``hios execute --auto`` writes if no cost model predicted them, only the plan is checked.
    """
    if graph is None:
        return ["cannot be checked: its folder has no valid graph.json"]
    if is_measured(schedule) or problem is None:
        try:
            schedule.plan(graph)
        except HiosError as error:
            return [_without_name(error, schedule)]
        unpriced = "cannot be checked against costs: its folder has no costs.json that fits the graph"
        return [] if is_measured(schedule) else [unpriced]
    problems = [_without_name(text, schedule) for text in violations(problem, schedule)]
    try:
        latency = latency_ms(evaluate(problem, schedule.plan(graph)))
    except HiosError as error:
        return problems or [_without_name(error, schedule)]
    if not math.isclose(schedule.latency_ms, latency, rel_tol=_ROUNDING):
        problems.append(f"latency_ms: found {schedule.latency_ms:.9g}; recomputed from graph and costs: {latency:.9g}")
    return problems


def is_measured(schedule: Schedule) -> bool:
    """Whether its times were measured rather than predicted by the cost model."""
    return "times" in schedule.notes


def bound_problems(schedule: Schedule, problem: Problem, others: Sequence[Schedule]) -> list[str]:
    """Errors in the lower bounds of a schedule.

    No valid schedule of the problem (``others``) may be faster; and a bound is the recomputed one, or, of an algorithm
    that proves bounds, a better one.
    """
    problems = []
    for verdict in judge_bounds(problem, schedule, others):
        expected = verdict.recomputed_ms
        if verdict.verdict == "unconfirmed" and schedule.algorithm == "hios-opt":
            try:
                expected = proven_bound_ms(problem, schedule.devices)
            except ModuleNotFoundError:  # without the solver the bound is not refuted, and not confirmed
                continue
        if verdict.verdict == "wrong":
            problems.append(str(verdict))
        elif (
            verdict.name == "lower_bound_ms"
            and (_is_own(schedule.algorithm) or verdict.verdict == "weaker")
            and not math.isclose(verdict.stated_ms, expected, rel_tol=_ROUNDING)
        ):
            problems.append(
                f"lower_bound_ms: found {verdict.stated_ms:.9g}; recomputed from graph and costs: {expected:.9g}"
            )
    return problems


def _is_own(algorithm: str) -> bool:
    """Whether an algorithm is one of hios, of which is known which of them prove bounds."""
    return algorithm in ALGORITHMS and ALGORITHMS[algorithm].is_own


def _without_name(message: object, schedule: Schedule) -> str:
    return str(message).removeprefix(f"{schedule.source}: ")


def _name(operator: str) -> str:
    return shown(operator, quoted=False)


#: Fields of the platform that a measurement has to state, each in words; by platform if only some have it.
_ALWAYS = {
    "processor": "model name of the processor",
    "devices": "number of devices",
    "load_average": "load average when the measurement began",
}
_BY_PLATFORM = {
    "cpu": {"cores": "cores of each device"},
    "cuda": {"gpus": "name of the GPU of each device"},
}
#: Ranks of a launcher do not record other work on their cores.
_ONE_NODE = {"cpu": {"busy_share": "share of the cores' time that other work took"}}
#: Software that every measurement depends on.
_SOFTWARE = ("python", "kernel", "hios", "torch")
#: Packages that versions.json names in any installation.
_INSTALLED = ("python", "kernel", "hios")


def run_description_problems(run: Run) -> Iterator[str]:
    """What a run fails to state about where and when it was measured."""
    yield from _platform_problems(run.platform)
    yield from _version_problems(run.versions, _SOFTWARE, "versions.")
    if run.measured_at is None:
        yield _missing("measured_at", "date and time at which the session began")
    if run.checked_against is None:
        yield _missing("checked_against", "what outputs were compared with")


def costs_description_problems(costs: CostsFile) -> Iterator[str]:
    """What a profile fails to state about where it was measured; handwritten and predicted costs need no machine."""
    if costs.profile is None or (costs.platform is not None and costs.platform.predicted):
        return
    if costs.platform is None:
        yield _missing("platform", "where the costs were measured")
    else:
        yield from _platform_problems(costs.platform)
    yield from _version_problems(costs.versions or {}, _SOFTWARE, "versions.")


def versions_problems(path: Path) -> Iterator[str]:
    """Errors in the software versions that the pipeline recorded."""
    try:
        versions = artifacts.read_json(path)
    except HiosError as error:
        yield str(error).removeprefix(f"{path}: ")
        return
    if not isinstance(versions, dict):
        yield f"found {type(versions).__name__}; allowed: an object with a version for each package"
        return
    yield from _version_problems(versions, _INSTALLED, "")
    yield from (
        f"{name}: found {version!r}; allowed: a version in quotes"
        for name, version in versions.items()
        if not isinstance(version, str)
    )


def _platform_problems(platform: Platform) -> Iterator[str]:
    several_nodes = isinstance(platform, RunPlatform) and platform.transport is not None
    required = {
        **_ALWAYS,
        **_BY_PLATFORM.get(platform.name, {}),
        **({} if several_nodes else _ONE_NODE.get(platform.name, {})),
    }
    for field, meaning in required.items():
        if getattr(platform, field) in (None, ()):
            yield _missing(f"platform.{field}", meaning)


def _version_problems(versions: Mapping[str, object], required: tuple[str, ...], field: str) -> Iterator[str]:
    for name in required:
        if not versions.get(name):
            yield _missing(f"{field}{name}", "its version" if name != "kernel" else "version of the system's kernel")


def _missing(field: str, meaning: str) -> str:
    return f"{field}: missing; a measurement has to state it ({meaning})"


@dataclass(frozen=True, slots=True)
class CheckedNetwork:
    """The artifacts from which the rows of one network follow: schedules by label, and no run where nothing ran."""

    folder: str
    graph: Graph
    costs: CostsFile
    run: Run | None
    schedules: Mapping[str, Schedule]


def table_problems(path: Path, networks: Sequence[CheckedNetwork]) -> list[str]:
    """Errors in latency.csv; only rows of the given networks, whose files are valid, are checked."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            rows = [
                {name: unguarded(cell) if isinstance(cell, str) else cell for name, cell in row.items()}
                for row in reader
            ]
            columns = reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return [f"cannot be read as CSV: {first_line(error)}"]
    if unknown := [column for column in columns if column not in LATENCY_COLUMNS]:
        return [f"header: found column {shown(unknown[0], quoted=False)}; allowed: {', '.join(LATENCY_COLUMNS)}"]
    if absent := [column for column in ("model", "kind", "label") if column not in columns]:
        return [f"header: no column {absent[0]}; required: model, kind and label, which name a row"]
    problems: list[str] = []
    for name, network in _by_name(networks).items():
        stated = [(number, row) for number, row in enumerate(rows, start=1) if row["model"] == name]
        if stated:
            problems += _network_problems(name, network, stated)
    return problems


def _by_name(networks: Sequence[CheckedNetwork]) -> dict[str, CheckedNetwork]:
    """Networks by the names that a report may use: with the folder if several have the same name."""
    names = [network.graph.name if network.run is None else network.run.graph for network in networks]
    count = Counter(names)
    by_name = {f"{name} ({network.folder})": network for name, network in zip(names, networks, strict=True)}
    return by_name | {name: network for name, network in zip(names, networks, strict=True) if count[name] == 1}


def _network_problems(
    name: str, network: CheckedNetwork, stated: Sequence[tuple[int, dict[str, str]]]
) -> Iterator[str]:
    expected = _expected(network)
    if expected is None:
        return
    rows = {(row["kind"], row["label"]): row for row in expected}
    for number, row in stated:
        place = f"row {number}, {shown(row['label'])}"
        computed = rows.pop((row["kind"], row["label"]), None)
        if computed is None:
            yield f"{place}: found kind {shown(row['kind'])}; the files have no row of this kind and label, or one only"
            continue
        for column in LATENCY_COLUMNS:
            value = computed.get(column)
            if column in row and column != "model" and not _agrees(row[column], value):
                words = "empty" if value is None else f"{value:.9g}" if isinstance(value, float) else shown(value)
                yield f"{place}: {column}: found {shown(row[column])}; recomputed from the files: {words}"
    # A report of predictions may be of some schedules only.
    for kind, label in rows if network.run is not None else ():
        yield f"no row for {kind} {shown(label)} of {shown(name)}; required: one for every latency in run.json"


def _expected(network: CheckedNetwork) -> list[Row] | None:
    """The rows of a network; None if its files contradict each other, which is reported there."""
    if network.run is not None:
        try:
            return latency_rows(model_results(network.graph, network.costs, network.run))
        except ArtifactError:
            return None
    if (
        predicted_for(network.costs.platform) is None
        or not network.graph.index.keys() <= network.costs.operators.keys()
    ):
        return None
    return prediction_rows(network.graph.name, network.graph, network.schedules, network.costs)


def _agrees(text: str | None, value: object) -> bool:
    """Whether a cell holds a value, as far as rounding allows; an empty one holds None, or False."""
    if not text:
        return value is None or value is False or value == ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return text == str(value)
    try:
        return math.isclose(float(text), value, rel_tol=_ROUNDING, abs_tol=1e-9)
    except ValueError:
        return False


def run_problems(run: Run, graph: Graph | None, schedules: Mapping[str, Schedule]) -> list[str]:
    """Errors in a run, as far as the file itself, the graph and the schedules show.

    Medians, percentiles, speedups with their intervals, ceilings and prediction errors are worked out again from the
    runs, drift and the error beyond it from the probe. Whether outputs were right is not checked: they are not kept.

    ``graph`` is None if there is no valid one; schedules are valid ones by the stem of their file, which labels
    results.
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
    for name in ("results", "references", "ceilings"):
        yield from ((f"{name}[{number}]", entry) for number, entry in enumerate(getattr(run, name)))
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
        for name, computed in zip(("median", "p20", "p80"), spread(latency.runs), strict=True):
            yield from _differs(f"{field}.latency_ms.{name}", getattr(latency, name), computed)


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
        if missing := [] if graph is None else [operator for operator in graph.index if operator not in seen]:
            yield f"{field}.{kind}: found no row for {_name(missing[0])}; required: one for every operator of the graph"
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
