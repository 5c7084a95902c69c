"""Times of stream plans (LIOS, Nimble, Opara, hios-wide): an event simulation."""

from __future__ import annotations

import heapq
from itertools import pairwise

from msgspec.structs import replace

from hios.evaluate.plan_errors import deadlock
from hios.problem import Problem
from hios.schedule import Placement, StreamPlan


def evaluate_streams(problem: Problem, plan: StreamPlan) -> list[Placement]:
    """Times of every operator, in the plan's launch order, or by start if it has none.

    An operator starts when the operator before it on its stream and all its predecessors have finished, plus
    t(u,v) where a predecessor is on another device. While the set C runs on a device, each member progresses at
    the rate 1/(a*|C| + (1-a)*max(sum of u over C, 1)), or 1 without contention.

    An operator on several devices is in the stream of each, so it starts when the operator before it on every one
    of them has finished and its inputs have arrived on the first. It is alone on all of them and takes t(v, k).

    Raises:
        ScheduleError: the plan deadlocks.
    """
    return _Simulation(problem, plan).run()


class _Device:
    """The running operators of one device, each progressing at the rate that contention allows."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._left: dict[int, float] = {}
        self._since = 0.0

    def _rate(self) -> float:
        alpha = self._problem.alpha
        if alpha is None or len(self._left) == 1:
            return 1.0
        demand = sum(self._problem.utilization[operator] for operator in self._left)
        return 1.0 / (alpha * len(self._left) + (1 - alpha) * max(demand, 1.0))

    def _advance(self, now: float) -> None:
        progress = (now - self._since) * self._rate() if self._left else 0.0
        for operator in self._left:
            self._left[operator] = max(self._left[operator] - progress, 0.0)
        self._since = now

    def start(self, operator: int, now: float, time: float) -> None:
        self._advance(now)
        self._left[operator] = time

    def finish(self, operator: int, now: float) -> None:
        self._advance(now)
        del self._left[operator]

    def next_finish(self) -> tuple[float, int] | None:
        if not self._left:
            return None
        operator = min(self._left, key=lambda running: (self._left[running], running))
        return self._since + self._left[operator] / self._rate(), operator


class _Simulation:
    """Operators become ready, start, progress and finish; each finish may make others ready."""

    def __init__(self, problem: Problem, plan: StreamPlan) -> None:
        self._problem = problem
        self._plan = plan
        self._devices = [_Device(problem) for _ in plan.devices]
        self._where: dict[int, tuple[int, int]] = {}
        self._following: dict[int, list[int]] = {}
        self._time = problem.time
        self._waiting = [len(row) for row in problem.predecessors]
        for device, streams in enumerate(plan.devices):
            for stream, row in enumerate(streams):
                self._where.update(dict.fromkeys(row, (device, stream)))
                for before, after in pairwise(row):
                    self._following.setdefault(before, []).append(after)
                    self._waiting[after] += 1
        if plan.wide:
            # The other devices of an operator wait for it, so it runs on the first one alone.
            self._where.update({operator: (devices[0], 0) for operator, devices in plan.wide.items()})
            self._time = list(problem.time)
            for operator, devices in plan.wide.items():
                self._time[operator] = problem.time_on(operator, len(devices))
        self._rank = {operator: number for number, operator in enumerate(plan.launch or problem.order)}
        self._ready_at = [0.0] * len(problem)
        self._start: dict[int, float] = {}
        self._finish: dict[int, float] = {}
        self._ready = [(0.0, self._rank[op], op) for op in self._where if self._waiting[op] == 0]
        heapq.heapify(self._ready)

    def run(self) -> list[Placement]:
        while self._step():
            pass
        if len(self._finish) < len(self._where):
            raise deadlock(self._problem, [operator for operator in self._where if self._waiting[operator] > 0])
        by_start = sorted(self._where, key=lambda op: (self._start[op], self._finish[op], self._rank[op]))
        rows = [
            Placement(
                self._problem.ids[operator], *self._where[operator], None, self._start[operator], self._finish[operator]
            )
            for operator in self._plan.launch or by_start
        ]
        if not self._plan.wide:
            return rows
        devices = {self._problem.ids[operator]: row for operator, row in self._plan.wide.items()}
        return [row if row.operator not in devices else replace(row, devices=devices[row.operator]) for row in rows]

    def _step(self) -> bool:
        """Process the next event, finishes before starts at equal times; False if there is none."""
        ends = [(*event, device) for device in self._devices if (event := device.next_finish()) is not None]
        end = min(ends, key=lambda candidate: candidate[:2], default=None)
        if self._ready and (end is None or self._ready[0][0] < end[0]):
            now, _, operator = heapq.heappop(self._ready)
            self._start[operator] = now
            self._devices[self._where[operator][0]].start(operator, now, self._time[operator])
            return True
        if end is None:
            return False
        now, operator, device = end
        device.finish(operator, now)
        self._finish[operator] = now
        for after in self._following.get(operator, ()):
            self._release(after, now)
        for successor, transfer in self._problem.successors[operator]:
            same = self._where[successor][0] == self._where[operator][0]
            self._release(successor, now if same else now + transfer)
        return True

    def _release(self, operator: int, at: float) -> None:
        self._ready_at[operator] = max(self._ready_at[operator], at)
        self._waiting[operator] -= 1
        if self._waiting[operator] == 0:
            heapq.heappush(self._ready, (self._ready_at[operator], self._rank[operator], operator))
