"""The one evaluator: start and finish of every operator of a plan under the cost model.

Staged plans follow HIOS section III; stream plans progress at the rate that contention leaves them. What the
times mean is the same for all algorithms, so that their schedules can be compared.
"""

from __future__ import annotations

import heapq

from hios.errors import ScheduleError
from hios.problem import Problem
from hios.schedule import Placement, Plan, StagedPlan, StreamPlan


def evaluate(problem: Problem, plan: Plan) -> list[Placement]:
    """Times of every operator, rows in launch order.

    Raises:
        ScheduleError: the plan deadlocks; the message names operators that wait for each other.
    """
    return (
        _evaluate_staged(problem, plan) if isinstance(plan, StagedPlan) else _evaluate_streams(problem, plan)
    )


def latency_ms(placements: list[Placement]) -> float:
    """Latency of placements: the last finish, in milliseconds."""
    return max(row.finish_ms for row in placements)


def _deadlock(problem: Problem, waiting: list[int]) -> ScheduleError:
    names = ", ".join(problem.ids[operator] for operator in waiting[:5])
    more = f" and {len(waiting) - 5} more" if len(waiting) > 5 else ""
    return ScheduleError(f"the schedule deadlocks: {names}{more} wait for each other")


def staged_times(problem: Problem, plan: StagedPlan) -> list[tuple[float, float, int, int]]:
    """Start, finish, device and stage number of every stage, in an order in which they can run.

    A stage starts when the stage before it on its device has finished and every input has arrived; an input
    from another device arrives t(u,v) after the stage that makes it finished (HIOS section III).

    Raises:
        ScheduleError: the plan deadlocks.
    """
    stages = [
        (device, number, stage) for device, row in enumerate(plan.devices) for number, stage in enumerate(row)
    ]
    home = [-1] * len(problem)
    for index, (_, _, stage) in enumerate(stages):
        for group in stage:
            for operator in group:
                home[operator] = index
    successors: list[list[tuple[int, float]]] = [[] for _ in stages]
    waiting = [0] * len(stages)
    for index, (device, number, stage) in enumerate(stages):
        if number + 1 < len(plan.devices[device]):
            successors[index].append((index + 1, 0.0))
            waiting[index + 1] += 1
        for group in stage:
            for operator in group:
                for successor, transfer in problem.successors[operator]:
                    other = home[successor]
                    if other != index:
                        successors[index].append((other, 0.0 if stages[other][0] == device else transfer))
                        waiting[other] += 1
    _check_inside_stages(problem, plan)
    start = [0.0] * len(stages)
    ready = [(0.0, index) for index, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    result: list[tuple[float, float, int, int]] = []
    while ready:
        begin, index = heapq.heappop(ready)
        device, number, stage = stages[index]
        end = begin + problem.stage_ms(stage)
        result.append((begin, end, device, number))
        for other, transfer in successors[index]:
            start[other] = max(start[other], end + transfer)
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, (start[other], other))
    if len(result) < len(stages):
        stuck = [
            op
            for index, count in enumerate(waiting)
            if count > 0
            for group in stages[index][2]
            for op in group
        ]
        raise _deadlock(problem, stuck)
    return result


def _check_inside_stages(problem: Problem, plan: StagedPlan) -> None:
    """Inside a stage only operators of one group, in its order, may depend on each other."""
    for row in plan.devices:
        for stage in row:
            if sum(map(len, stage)) == 1:
                continue
            place = {
                op: (number, rank) for number, group in enumerate(stage) for rank, op in enumerate(group)
            }
            for operator, (number, rank) in place.items():
                for predecessor, _ in problem.predecessors[operator]:
                    if predecessor in place and (
                        place[predecessor][0] != number or place[predecessor][1] > rank
                    ):
                        raise ScheduleError(
                            f"operator {problem.ids[operator]} depends on {problem.ids[predecessor]}, "
                            "which does not run before it in the same stage"
                        )


def _evaluate_staged(problem: Problem, plan: StagedPlan) -> list[Placement]:
    placements = []
    for start, finish, device, number in staged_times(problem, plan):
        for stream, group in enumerate(plan.devices[device][number]):
            total = sum(problem.time[operator] for operator in group)
            done = 0.0
            begin = start
            for rank, operator in enumerate(group, start=1):
                # The operators of a group share the span of the stage in proportion to their times.
                done += problem.time[operator] / total if total > 0 else 1 / len(group)
                end = finish if rank == len(group) else start + (finish - start) * min(done, 1.0)
                placements.append(Placement(problem.ids[operator], device, stream, number, begin, end))
                begin = end
    return placements


class _Device:
    """Operators that run on one device at a time, each at the rate that contention leaves it."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._left: dict[int, float] = {}
        self._since = 0.0

    def _rate(self) -> float:
        """1/(a*|C| + (1-a)*max(sum of u over C, 1)) for the running set C; 1 without contention."""
        alpha = self._problem.alpha
        if alpha is None or len(self._left) == 1:
            return 1.0
        demand = sum(self._problem.utilization[operator] for operator in self._left)
        return 1.0 / (alpha * len(self._left) + (1 - alpha) * max(demand, 1.0))

    def advance(self, now: float) -> None:
        progress = (now - self._since) * self._rate() if self._left else 0.0
        for operator in self._left:
            self._left[operator] = max(self._left[operator] - progress, 0.0)
        self._since = now

    def start(self, operator: int, now: float) -> None:
        self.advance(now)
        self._left[operator] = self._problem.time[operator]

    def finish(self, operator: int, now: float) -> None:
        self.advance(now)
        del self._left[operator]

    def next_finish(self) -> tuple[float, int] | None:
        if not self._left:
            return None
        operator = min(self._left, key=lambda running: (self._left[running], running))
        return self._since + self._left[operator] / self._rate(), operator


def _evaluate_streams(problem: Problem, plan: StreamPlan) -> list[Placement]:
    """Event simulation: an operator starts when its stream and all its inputs are ready."""
    where: dict[int, tuple[int, int]] = {}
    following: dict[int, int] = {}
    waiting = [len(problem.predecessors[operator]) for operator in range(len(problem))]
    for device, streams in enumerate(plan.devices):
        for stream, row in enumerate(streams):
            for operator in row:
                where[operator] = (device, stream)
            for before, after in zip(row, row[1:], strict=False):
                following[before] = after
                waiting[after] += 1
    rank = {operator: number for number, operator in enumerate(plan.launch or problem.order)}
    ready_at = [0.0] * len(problem)
    start = [0.0] * len(problem)
    finish = [0.0] * len(problem)
    ready = [(0.0, rank[operator], operator) for operator in where if waiting[operator] == 0]
    heapq.heapify(ready)
    devices = [_Device(problem) for _ in plan.devices]
    done = 0

    def release(operator: int, at: float) -> None:
        ready_at[operator] = max(ready_at[operator], at)
        waiting[operator] -= 1
        if waiting[operator] == 0:
            heapq.heappush(ready, (ready_at[operator], rank[operator], operator))

    while True:
        ends = [(*event, device) for device in devices if (event := device.next_finish()) is not None]
        now, operator, running = min(ends, key=lambda end: end[:2], default=(float("inf"), -1, None))
        if ready and ready[0][0] < now:
            now, _, operator = heapq.heappop(ready)
            start[operator] = now
            devices[where[operator][0]].start(operator, now)
            continue
        if running is None:
            break
        running.finish(operator, now)
        finish[operator] = now
        done += 1
        if operator in following:
            release(following[operator], now)
        for successor, transfer in problem.successors[operator]:
            release(successor, now + (0.0 if where[successor][0] == where[operator][0] else transfer))
    if done < len(where):
        raise _deadlock(problem, [operator for operator in where if waiting[operator] > 0])
    rows = sorted(where, key=lambda operator: (start[operator], finish[operator], rank[operator]))
    return [
        Placement(problem.ids[op], *where[op], None, start[op], finish[op])
        for op in _stream_order(plan, rows, problem)
    ]


def _stream_order(plan: StreamPlan, rows: list[int], problem: Problem) -> list[int]:
    """Launch order: the algorithm's own where it gave one, else by start."""
    return list(plan.launch) if plan.launch else rows
