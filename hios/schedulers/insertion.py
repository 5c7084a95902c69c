"""Operators in idle gaps of a device: the insertion-based policy of HEFT."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from hios.core.problem import Problem, positions
from hios.core.schedule import StagedPlan

#: Start, finish and position in the order of placement; rows are sorted by it, so operators of 0 ms keep their order.
_Slot = tuple[float, float, int]


class InsertionTimetable:
    """Operators placed one by one on equal devices, each as early as its inputs and the free time of the device allow.

    They are placed in ``order``, which is topological; ``rows`` are the slots of every device, in order.
    """

    def __init__(self, problem: Problem, order: Sequence[int], devices: int) -> None:
        self._problem = problem
        self._rank = positions(order)
        self._order = order
        self._finish = [0.0] * len(problem)
        self._home = [-1] * len(problem)
        self.rows: list[list[_Slot]] = [[] for _ in range(devices)]
        self.latency_ms = 0.0

    def earliest_start(self, operator: int, device: int) -> float:
        """When an operator could start on a device, in milliseconds; predecessors that are not placed do not count."""
        arrivals = (
            self._finish[u] + (0.0 if self._home[u] == device else transfer)
            for u, transfer in self._problem.predecessors[operator]
            if self._home[u] >= 0
        )
        return _first_gap(self.rows[device], max(arrivals, default=0.0), self._problem.time[operator])

    def place(self, operator: int, device: int, start: float) -> None:
        """Place an operator at the time that `earliest_start` returned."""
        finish = start + self._problem.time[operator]
        self._home[operator], self._finish[operator] = device, finish
        self.latency_ms = max(self.latency_ms, finish)
        insort(self.rows[device], (start, finish, self._rank[operator]))

    def plan(self) -> StagedPlan:
        """The plan with every operator as a stage, by start time."""
        return StagedPlan(tuple(tuple(((self._order[place],),) for _, _, place in row) for row in self.rows))


def timetable(problem: Problem, order: Sequence[int], home: Sequence[int], devices: int) -> InsertionTimetable:
    """The timetable of operators whose devices are known.

    ``home`` is the device of every operator by number, -1 for one that is not to be placed; ``order`` is topological.
    """
    result = InsertionTimetable(problem, order, devices)
    for operator in order:
        if (device := home[operator]) >= 0:
            result.place(operator, device, result.earliest_start(operator, device))
    return result


def _first_gap(row: Sequence[_Slot], ready: float, time: float) -> float:
    """Earliest start from ``ready`` on with ``time`` idle milliseconds."""
    # Operators that start before could end leave no gap in front of them; rows do not overlap.
    first = bisect_left(row, (ready + time,))
    free = row[first - 1][1] if first else 0.0
    for start, finish, _ in row[first:]:
        if max(ready, free) + time <= start:
            break
        free = finish
    return max(ready, free)
