"""Costs against their graph, schedules against graph and costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from hios.bound_check import judge_bounds
from hios.costs import Costs, CostsFile, LinkModel
from hios.errors import HiosError, shown
from hios.evaluate import evaluate, latency_ms
from hios.formats.partition_file import PartitionFile
from hios.graph import Graph
from hios.problem import Problem
from hios.schedule import Schedule
from hios.schedule_check import violations
from hios.schedulers import ALGORITHMS
from hios.schedulers.opt.lower_bounds import proven_bound_ms
from hios.statistics import spread

#: Relative difference between a stated and a recomputed number that rounding explains.
_ROUNDING = 1e-6


def costs_problems(file: CostsFile, graph: Graph) -> list[str]:
    """Costs that are missing or superfluous for a graph."""
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
            Problem(graph, Costs.of(file, "costs"))
        except HiosError as error:
            problems.append(str(error).removeprefix("costs: "))
    return problems


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


def problem_of(graph: Graph, file: CostsFile) -> Problem | None:
    """The scheduling problem; None if graph and costs do not match."""
    try:
        return Problem(graph, Costs.of(file, "costs.json"))
    except HiosError:
        return None


def schedule_problems(schedule: Schedule, graph: Graph | None, problem: Problem | None) -> list[str]:
    """Errors in a schedule, as far as graph and costs are available to check it against.

    Rows are checked by ``hios.schedule_check``, and the latency is compared with that of the evaluator. Of a schedule
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

    No schedule may be faster; and a bound is the recomputed one, or, of an algorithm that proves bounds, a better one.

    Args:
        schedule: the schedule.
        problem: graph and costs.
        others: valid schedules of the same problem.
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
            and (schedule.algorithm in ALGORITHMS or verdict.verdict == "weaker")
            and not math.isclose(verdict.stated_ms, expected, rel_tol=_ROUNDING)
        ):
            problems.append(
                f"lower_bound_ms: found {verdict.stated_ms:.9g}; recomputed from graph and costs: {expected:.9g}"
            )
    return problems


def _without_name(message: object, schedule: Schedule) -> str:
    return str(message).removeprefix(f"{schedule.source}: ")


def _name(operator: str) -> str:
    return shown(operator, quoted=False)
