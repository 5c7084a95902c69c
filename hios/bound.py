"""A lower bound on the latency of every schedule of a problem."""

from __future__ import annotations

from collections.abc import Mapping

from hios.problem import Group, Problem


def lower_bound_ms(problem: Problem, devices: int) -> float:
    """The larger of the critical path and the work per device, in milliseconds.

    The critical path leaves transfers out: all its operators may share a device. An operator takes at least
    w = t*(a + (1-a)*u) of a device's time, since t(S) >= a*sum(t) + (1-a)*sum(t*u) and since the rates of
    stream schedules add up to at most 1 in that measure; without contention a device has no such limit.

    Measured stages that beat the model loosen both: an operator counts only in the proportion by which the
    best measured stage that holds it beats its longest group (path) or its modelled work.
    """
    path_scale, work_scale = _measured_scales(problem)
    finish = [0.0] * len(problem)
    for operator in problem.order:
        before = max((finish[predecessor] for predecessor, _ in problem.predecessors[operator]), default=0.0)
        finish[operator] = before + problem.time[operator] * path_scale.get(operator, 1.0)
    path = max(finish)
    if problem.alpha is None:
        return path
    work = sum(_work(problem, operator) * work_scale.get(operator, 1.0) for operator in range(len(problem)))
    return max(path, work / devices)


def _work(problem: Problem, operator: int) -> float:
    alpha = problem.alpha or 0.0
    return problem.time[operator] * (alpha + (1 - alpha) * problem.utilization[operator])


def _measured_scales(problem: Problem) -> tuple[Mapping[int, float], Mapping[int, float]]:
    path_scale: dict[int, float] = {}
    work_scale: dict[int, float] = {}
    for stage, measured in problem.measured.items():
        if len(stage) < 2:
            continue  # a stage of one group costs the sum of its operators, whatever was measured
        operators = [operator for group in stage for operator in group]
        longest = max(_group_ms(problem, group) for group in stage)
        work = sum(_work(problem, operator) for operator in operators)
        for scales, modelled in ((path_scale, longest), (work_scale, work)):
            if measured < modelled:
                for operator in operators:
                    scales[operator] = min(scales.get(operator, 1.0), measured / modelled)
    return path_scale, work_scale


def _group_ms(problem: Problem, group: Group) -> float:
    return sum(problem.time[operator] for operator in group)
