"""A lower bound on the latency of every schedule of a problem."""

from __future__ import annotations

from collections.abc import Mapping

from hios.operator_merge import least_growth
from hios.problem import Group, Problem


def lower_bound_ms(problem: Problem, devices: int) -> float:
    """The larger of the critical path and the work per device, in milliseconds, with the times of ``Problem.on``.

    An operator that may take k devices counts its least t(v, k) on the path and its least device time, which is w or
    the least k*t(v, k), as work.

    The critical path leaves transfers out: all its operators may share a device. An operator takes at least
    w = t*(a + (1-a)*u) of a device's time, since t(S) >= a*sum(t) + (1-a)*sum(t*u) and since the rates of
    stream schedules add up to at most 1 in that measure; without contention a device has no such limit.

    Measured stages that beat the model loosen both: an operator counts only in the proportion by which the
    best measured stage that holds it beats its longest group (path) or its modelled work; so do measured merges,
    in which every operator is a group. A merge that was not measured takes at least sum(t*g*u) and max(t*g), so
    an operator that can be merged counts at most t*g*u as work, with g >= 1 the least growth of its kernel in any
    merge that holds it.

    Args:
        problem: graph and costs.
        devices: number M of devices.

    Examples:
        Three equal operators that do not depend on each other, on two devices: one device has at least one and a half
        to do.

        >>> import hios
        >>> graph = hios.Graph("three", tuple(hios.Operator(name, "conv") for name in "abc"), ())
        >>> problem = hios.Problem(graph, hios.Costs({"a": 2.0, "b": 2.0, "c": 2.0}, {}))
        >>> hios.lower_bound_ms(problem, 2)
        3.0
    """
    problem = problem.on(devices)
    path_scale, work_scale = scales(problem)
    finish = [0.0] * len(problem)
    for operator in problem.order:
        before = max((finish[predecessor] for predecessor, _ in problem.predecessors[operator]), default=0.0)
        scale = path_scale.get(operator, 1.0)
        own = least_ms(problem, operator, scale) if problem.wide_ms else problem.time[operator] * scale
        finish[operator] = before + own
    path = max(finish)
    if problem.alpha is None:
        return path
    own_work = least_work_ms if problem.wide_ms else _scaled_work_ms
    work = sum(own_work(problem, operator, work_scale.get(operator, 1.0)) for operator in range(len(problem)))
    return max(path, work / devices)


def least_ms(problem: Problem, operator: int, scale: float = 1.0) -> float:
    """The least of t(v) times a scale and all t(v, k), in milliseconds."""
    narrow = problem.time[operator] * scale
    if operator not in problem.wide_ms:
        return narrow
    return min(narrow, *problem.wide_ms[operator].values())


def least_work_ms(problem: Problem, operator: int, scale: float = 1.0) -> float:
    """The least of w (`work_ms`) times a scale and all k*t(v, k): device time, in milliseconds."""
    narrow = work_ms(problem, operator) * scale
    if operator not in problem.wide_ms:
        return narrow
    return min(narrow, *(width * time for width, time in problem.wide_ms[operator].items()))


def _scaled_work_ms(problem: Problem, operator: int, scale: float) -> float:
    return work_ms(problem, operator) * scale


def work_ms(problem: Problem, operator: int) -> float:
    """The least device time w = t*(a + (1-a)*u) of an operator under the contention model, in milliseconds."""
    alpha = problem.alpha or 0.0
    return problem.time[operator] * (alpha + (1 - alpha) * problem.utilization[operator])


def scales(problem: Problem) -> tuple[Mapping[int, float], Mapping[int, float]]:
    """Shares below 1 of time (for paths) and of work that operators count, because measurements beat the model."""
    path_scale: dict[int, float] = {}
    work_scale = _merging_scales(problem)
    merges = {frozenset((operator,) for operator in merge): time for merge, time in problem.measured_merges.items()}
    for stage, measured in (*problem.measured.items(), *merges.items()):
        if len(stage) < 2:
            continue  # a stage of one group costs the sum of its operators, whatever was measured
        operators = [operator for group in stage for operator in group]
        longest = max(_group_ms(problem, group) for group in stage)
        work = sum(work_ms(problem, operator) for operator in operators)
        for scale_of, modelled in ((path_scale, longest), (work_scale, work)):
            if measured < modelled:
                for operator in operators:
                    scale_of[operator] = min(scale_of.get(operator, 1.0), measured / modelled)
    return path_scale, work_scale


def _merging_scales(problem: Problem) -> dict[int, float]:
    """t*g*u over the work of an operator, where that is less than 1."""
    scales = {}
    for operator, growth in least_growth(problem.convolutions).items():
        work, merged = work_ms(problem, operator), problem.time[operator] * problem.utilization[operator] * growth
        if merged < work:
            scales[operator] = merged / work
    return scales


def _group_ms(problem: Problem, group: Group) -> float:
    return sum(problem.time[operator] for operator in group)
