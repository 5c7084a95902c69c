"""Costs against their graph, schedules against graph and costs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hios.bound import lower_bound_ms
from hios.check import violations
from hios.costs import Costs, CostsFile, LinkModel
from hios.errors import HiosError, shown
from hios.evaluate import evaluate, latency_ms
from hios.graph import Graph
from hios.problem import Problem
from hios.schedule import Schedule
from hios.schedulers import ALGORITHMS
from hios.schedulers.opt.bound import interval_bound_ms

#: Relative difference between a stated and a recomputed number that rounding explains.
_ROUNDING = 1e-6


def costs_problems(file: CostsFile, graph: Graph) -> list[str]:
    """What costs lack or have too much for a graph."""
    found = [
        f"operators: no entry for operator {_name(operator)} of the graph; required: time_ms for every operator"
        for operator in graph.index
        if operator not in file.operators
    ]
    found += _transfer_problems(file, graph)
    for position, stage in enumerate(file.stages):
        found += [
            f"stages[{position}]: found operator {_name(operator)}, which is not in the graph"
            for group in stage.groups
            for operator in group
            if operator not in graph.index
        ]
    if not found:
        try:
            Problem(graph, Costs.of(file, "costs"))
        except HiosError as error:
            found.append(str(error).removeprefix("costs: "))
    return found


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


def problem_of(graph: Graph, file: CostsFile) -> Problem | None:
    """The scheduling problem; None where graph and costs do not make one."""
    try:
        return Problem(graph, Costs.of(file, "costs.json"))
    except HiosError:
        return None


def schedule_problems(schedule: Schedule, graph: Graph | None, problem: Problem | None) -> list[str]:
    """What is wrong with a schedule, as far as there are graph and costs to tell from.

    Rows are checked by ``hios.check``; the latency is compared with that of the evaluator, the lower bound with that of
    ``hios.bound``. A schedule with measured times, which ``hios execute --auto`` writes where no cost model predicted
    them, is checked for its plan alone.
    """
    if graph is None:
        return ["cannot be checked: there is no valid graph.json beside it"]
    if "times" in schedule.notes or problem is None:
        try:
            schedule.plan(graph)
        except HiosError as error:
            return [_without_name(error, schedule)]
        unpriced = "cannot be checked against costs: there is no costs.json beside it that fits the graph"
        return [] if "times" in schedule.notes else [unpriced]
    found = [_without_name(text, schedule) for text in violations(problem, schedule)]
    try:
        latency = latency_ms(evaluate(problem, schedule.plan(graph)))
    except HiosError as error:
        return found or [_without_name(error, schedule)]
    if not math.isclose(schedule.latency_ms, latency, rel_tol=_ROUNDING):
        found.append(f"latency_ms: found {schedule.latency_ms:.9g}; recomputed from graph and costs: {latency:.9g}")
    return found + _bound_problems(schedule, problem)


def _bound_problems(schedule: Schedule, problem: Problem) -> list[str]:
    """A stated bound is the recomputed one, or, of an algorithm that proves bounds, a better one that holds."""
    least = lower_bound_ms(problem, schedule.devices)
    most = math.inf if schedule.algorithm not in ALGORITHMS else least
    if schedule.algorithm == "hios-opt":
        most = interval_bound_ms(problem, schedule.devices)
    stated, found = schedule.lower_bound_ms, []
    if not least * (1 - _ROUNDING) <= stated <= most * (1 + _ROUNDING):
        found.append(f"lower_bound_ms: found {stated:.9g}; recomputed from graph and costs: {most:.9g}")
    if 0 < schedule.staged_lower_bound_ms < stated * (1 - _ROUNDING):
        found.append(
            f"staged_lower_bound_ms: found {schedule.staged_lower_bound_ms:.9g}; allowed: more than lower_bound_ms"
        )
    return found


def _without_name(message: object, schedule: Schedule) -> str:
    return str(message).removeprefix(f"{schedule.source}: ")


def _name(operator: str) -> str:
    return shown(operator, quoted=False)
