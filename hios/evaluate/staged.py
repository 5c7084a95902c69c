"""Times of staged plans (IOS, HIOS)."""

from __future__ import annotations

import heapq

from hios.errors import ScheduleError
from hios.evaluate.plan_errors import deadlock
from hios.problem import Problem, Stage
from hios.schedule import Placement, StagedPlan

#: A stage with its device and its number there.
_Numbered = tuple[int, int, Stage]


def staged_times(problem: Problem, plan: StagedPlan) -> list[tuple[float, float, int, int]]:
    """Start, finish, device and number of every stage, in an order in which they can run.

    A stage starts when the stage before it on its device has finished and every input has arrived; an input
    from another device arrives t(u,v) after the stage that makes it finished (HIOS section III).

    Raises:
        ScheduleError: the plan deadlocks, operators of one stage depend on each other across groups, or operators
            are merged that cannot be.
    """
    _check_merges(problem, plan)
    stages = [(device, number, stage) for device, row in enumerate(plan.devices) for number, stage in enumerate(row)]
    for _, _, stage in stages:
        _check_independent(problem, stage)
    successors, waiting = _dependencies(problem, stages)
    start = [0.0] * len(stages)
    ready = [(0.0, index) for index, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    result: list[tuple[float, float, int, int]] = []
    while ready:
        begin, index = heapq.heappop(ready)
        device, number, stage = stages[index]
        end = begin + _stage_ms(problem, plan, stage)
        result.append((begin, end, device, number))
        for other, transfer in successors[index]:
            start[other] = max(start[other], end + transfer)
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, (start[other], other))
    if len(result) < len(stages):
        stuck = [index for index, count in enumerate(waiting) if count > 0]
        raise deadlock(problem, [operator for index in stuck for group in stages[index][2] for operator in group])
    return result


def _check_merges(problem: Problem, plan: StagedPlan) -> None:
    """Check that every merge is a stage of operators that can run as one."""
    if not plan.merges:
        return
    merged = {frozenset(group[0] for group in stage) for row in plan.devices for stage in row if plan.is_merged(stage)}
    for merge in plan.merges:
        if merge not in merged or not problem.can_merge(merge):
            names = ", ".join(problem.ids[operator] for operator in sorted(merge))
            raise ScheduleError(f"operators {names} are not a stage that can run as one operator")


def _stage_ms(problem: Problem, plan: StagedPlan, stage: Stage) -> float:
    merged = problem.merge_ms(group[0] for group in stage) if plan.is_merged(stage) else None
    return problem.stage_ms(stage) if merged is None else merged


def _dependencies(problem: Problem, stages: list[_Numbered]) -> tuple[list[list[tuple[int, float]]], list[int]]:
    """The successors of every stage with delays, and the number of stages each waits for.

    The stage after it on its device is a successor too.
    """
    home = [-1] * len(problem)
    for index, (_, _, stage) in enumerate(stages):
        for group in stage:
            for operator in group:
                home[operator] = index
    successors: list[list[tuple[int, float]]] = [[] for _ in stages]
    waiting = [0] * len(stages)
    for index, (device, _, stage) in enumerate(stages):
        links = [
            (home[successor], transfer)
            for group in stage
            for operator in group
            for successor, transfer in problem.successors[operator]
            if home[successor] != index
        ]
        successors[index] = [(other, 0.0 if stages[other][0] == device else transfer) for other, transfer in links]
        if index + 1 < len(stages) and stages[index + 1][0] == device:
            successors[index].append((index + 1, 0.0))
        for other, _ in successors[index]:
            waiting[other] += 1
    return successors, waiting


def _check_independent(problem: Problem, stage: Stage) -> None:
    """Check that operators of different groups of a stage are independent."""
    if sum(map(len, stage)) == 1:
        return
    place = {operator: (number, rank) for number, group in enumerate(stage) for rank, operator in enumerate(group)}
    for operator, (number, rank) in place.items():
        for predecessor, _ in problem.predecessors[operator]:
            if predecessor in place and (place[predecessor][0] != number or place[predecessor][1] > rank):
                raise ScheduleError(
                    f"operator {problem.ids[operator]} depends on {problem.ids[predecessor]}, "
                    "which does not run before it in the same stage"
                )


def evaluate_staged(problem: Problem, plan: StagedPlan) -> list[Placement]:
    """Times of every operator; those of a group share the span of the stage in proportion to their own times."""
    placements = []
    for start, finish, device, number in staged_times(problem, plan):
        for stream, group in enumerate(plan.devices[device][number]):
            total = sum(problem.time[operator] for operator in group)
            done = 0.0
            begin = start
            for rank, operator in enumerate(group, start=1):
                done += problem.time[operator] / total if total > 0 else 1 / len(group)
                # Every group ends when its stage ends, to the last bit.
                end = finish if rank == len(group) else start + (finish - start) * min(done, 1.0)
                placements.append(Placement(problem.ids[operator], device, stream, number, begin, end))
                begin = end
    return placements
