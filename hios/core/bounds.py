"""A lower bound on the latency of every schedule of a problem."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hios.core.merging import least_growth
from hios.core.problem import Problem
from hios.core.sums import add_up


def lower_bound_ms(problem: Problem, devices: int) -> float:
    """The larger of the critical path and the work per device, in milliseconds, with the times of ``Problem.on``.

    An operator that may take k devices counts its least t(v, k) on the path and its least device time, which is w or
    the least k*t(v, k), as work.

    The critical path leaves transfers out: all its operators may share a device. An operator takes at least
    w = t*(a + (1-a)*u) of a device's time, since t(S) >= a*sum(t) + (1-a)*sum(t*u) and since the rates of
    stream schedules add up to at most 1 in that measure; without contention a device has no such limit.

    Measured stages that beat the model loosen both: an operator counts only in the proportion by which the
    best measured stage that holds it beats its longest group (path) or its modeled work. Merges are further choices
    of their operators: in one that was measured on k devices each of them takes its time on the path, and as work a
    share, by w, of k times that. A merge that was not measured takes at least max(t*g) and sum(t*g*u), so an operator
    that can be merged counts at most t*g*u as work, with g >= 1 the least growth of its kernel in any merge that holds
    it.

    If operators share resources, all of this holds for the shares of each resource as u, with a = 0: no more of it is
    used than there is. The largest of the three bounds counts. Overheads are part of t, so they lengthen the path but
    are no work; barriers and synchronization are left out.

    Args:
        problem: graph and costs.
        devices: number M of devices.

    Examples:
        Three equal, independent operators on two devices: one device has the work of at least one and a half of them.

        >>> import hios
        >>> graph = hios.Graph("three", tuple(hios.Operator(name, "conv") for name in "abc"), ())
        >>> problem = hios.Problem(graph, hios.Costs({"a": 2.0, "b": 2.0, "c": 2.0}, {}))
        >>> hios.lower_bound_ms(problem, 2)
        3.0
    """
    return max(_bound_ms(single, devices) for single in single_resources(problem.on(devices)))


def single_resources(problem: Problem) -> Iterator[Problem]:
    """Problems whose bounds hold for a problem: itself; if operators share resources, one for each of them."""
    if not problem.demand:
        yield problem
        return
    for shares in zip(*problem.demand, strict=True):
        single = copy.copy(problem)
        single.utilization = list(shares)
        yield single


def _bound_ms(problem: Problem, devices: int) -> float:
    least = least_of_all(problem)
    finish = [0.0] * len(problem)
    for operator in problem.order:
        before = max((finish[predecessor] for predecessor, _ in problem.predecessors[operator]), default=0.0)
        finish[operator] = before + least.time[operator]
    path = max(finish)
    return path if problem.alpha is None else max(path, add_up(least.work) / devices)


class Least(NamedTuple):
    """The least time and work of every operator in any schedule, in milliseconds.

    ``time`` is from its start to its finish, ``work`` is device time of all its devices, ``work_on_one`` that of one of
    them. Of a merge or a measured stage, work is its share, so that the shares add up to no more than the whole.
    """

    time: list[float]
    work: list[float]
    work_on_one: list[float]


def least_of_all(problem: Problem) -> Least:
    """What every operator takes at least, alone or on several devices, in measured stages or merged."""
    path_scale, work_scale = stage_scales(problem)
    operators = range(len(problem))
    time = [least_ms(problem, v, path_scale.get(v, 1.0)) for v in operators]
    work = [least_work_ms(problem, v, work_scale.get(v, 1.0)) for v in operators]
    on_one = [
        min([work_ms(problem, v) * work_scale.get(v, 1.0), *problem.wide_ms.get(v, {}).values()]) for v in operators
    ]
    for v, merge_ms, share, devices in merge_choices(problem):
        time[v] = min(time[v], merge_ms)
        work[v] = min(work[v], share * devices)
        on_one[v] = min(on_one[v], share)
    return Least(time, work, on_one)


def merge_choices(problem: Problem) -> Iterator[tuple[int, float, float, int]]:
    """For every possible merge its operators, each with the least time of the merge, its share of it, and the devices.

    An operator's share of the time of each device is that of its work in the work of all operators of the merge.
    """
    for merge in problem.measured_merges.keys() | problem.merge_wide_ms.keys():
        total = add_up(work_ms(problem, operator) for operator in merge)
        measured = {1: problem.measured_merges[merge]} if merge in problem.measured_merges else {}
        for devices, time in (measured | problem.merge_wide_ms.get(merge, {})).items():
            for operator in merge:
                share = time * work_ms(problem, operator) / total if total > 0 else 0.0
                yield operator, time, share, devices
    for operator, growth in least_growth(problem.convolutions).items():
        time = problem.time[operator]
        yield operator, time, time * problem.utilization[operator] * growth, 1


def least_ms(problem: Problem, operator: int, scale: float = 1.0) -> float:
    """The least of t(v) times a scale and all t(v, k), in milliseconds."""
    return min([problem.time[operator] * scale, *problem.wide_ms.get(operator, {}).values()])


def least_work_ms(problem: Problem, operator: int, scale: float = 1.0) -> float:
    """The least of w (`work_ms`) times a scale and all k*t(v, k): device time, in milliseconds."""
    wide = problem.wide_ms.get(operator, {})
    return min([work_ms(problem, operator) * scale, *(width * time for width, time in wide.items())])


def work_ms(problem: Problem, operator: int) -> float:
    """The least device time w = t*(a + (1-a)*u) of an operator under the contention model, in milliseconds."""
    alpha = problem.alpha or 0.0
    return problem.time[operator] * (alpha + (1 - alpha) * problem.utilization[operator])


def stage_scales(problem: Problem) -> tuple[Mapping[int, float], Mapping[int, float]]:
    """Shares below 1 of time (for paths) and of work that operators count, as measured stages beat the model."""
    path_scale: dict[int, float] = {}
    work_scale: dict[int, float] = {}
    for stage, measured in problem.measured.items():
        if len(stage) < 2:
            continue  # a stage of one group costs the sum of its operators, whatever was measured
        operators = [operator for group in stage for operator in group]
        longest = max(add_up(problem.time[operator] for operator in group) for group in stage)
        work = add_up(work_ms(problem, operator) for operator in operators)
        for scale_of, modeled in ((path_scale, longest), (work_scale, work)):
            if measured < modeled:
                for operator in operators:
                    scale_of[operator] = min(scale_of.get(operator, 1.0), measured / modeled)
    return path_scale, work_scale
