"""Contraction of merges: a problem in which every merge is one operator, with plans converted in both directions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from hios.core.costs import Costs
from hios.core.graph import Edge, Graph, Operator
from hios.core.merging import MERGEABLE
from hios.core.problem import Problem
from hios.core.schedule import StreamPlan
from hios.errors import ScheduleError


class Contraction:
    """A problem whose merges are single operators, for algorithms on streams that do not know about merges.

    Operators of a merge read the same value, so none depends on another, and contracting them makes no cycle. The
    merged operator takes `Problem.merge_ms`, on several devices ``Problem.merge_wide_ms``, and keeps a device busy by
    itself. It has the id of its first operator; of the transfers between two operators the longest counts, as for
    several values. Measured stages and further merges are left out. ``members`` has the original operators by operator
    number of ``problem``, ascending.

    The problem has the times of its devices (``Problem.on``). Refused are merges that share an operator, or that cannot
    run as one operator.
    """

    def __init__(self, problem: Problem, merges: Iterable[frozenset[int]]) -> None:
        self.merges = frozenset(merges)
        merge_of = {operator: merge for merge in self.merges for operator in merge}
        if len(merge_of) < sum(map(len, self.merges)):
            raise ScheduleError("merges: an operator is in two of them; allowed: in one at most")
        self.members = tuple(
            tuple(sorted(merge_of.get(operator, (operator,))))
            for operator in range(len(problem))
            if operator == min(merge_of.get(operator, (operator,)))
        )
        self._number = {operator: number for number, members in enumerate(self.members) for operator in members}
        times = [_time_ms(problem, members) for members in self.members]
        ids = [problem.ids[members[0]] for members in self.members]
        transfers: dict[tuple[str, str], float] = {}
        for source, row in enumerate(problem.successors):
            for target, transfer in row:
                ends = (ids[self._number[source]], ids[self._number[target]])
                transfers[ends] = max(transfers.get(ends, 0.0), transfer)
        kinds = [problem.graph.operators[members[0]].type for members in self.members]
        operators = tuple(Operator(*named) for named in zip(ids, kinds, strict=True))
        graph = Graph(problem.graph.name, operators, tuple(Edge(*ends) for ends in transfers))
        alone = {ids[self._number[v]]: u for v, u in enumerate(problem.utilization) if v not in merge_of}
        costs = Costs(
            dict(zip(ids, times, strict=True)),
            transfers,
            alone,
            contention="none" if problem.alpha is None else "blend",
            alpha=problem.alpha or 0.0,
            wide_ms={name: _wide_ms(problem, members) for name, members in zip(ids, self.members, strict=True)},
        )
        self.problem = Problem(graph, costs)
        self.problem.devices, self.problem.sync_ms = problem.devices, problem.sync_ms  # the rest is in the times
        if problem.demand:
            self.problem.demand = [
                problem.demand[members[0]] if len(members) == 1 else (1.0,) * 3 for members in self.members
            ]

    def expanded(self, plan: StreamPlan) -> StreamPlan:
        """A plan of the contracted problem as one of the problem."""
        return StreamPlan(
            tuple(tuple(self._apart(stream) for stream in streams) for streams in plan.devices),
            self._apart(plan.launch),
            {operator: devices for number, devices in plan.wide.items() for operator in self.members[number]},
            self.merges,
        )

    def contracted(self, plan: StreamPlan) -> StreamPlan:
        """A plan of the problem, with these merges, as one of the contracted problem."""
        return StreamPlan(
            tuple(tuple(self._together(stream) for stream in streams) for streams in plan.devices),
            self._together(plan.launch),
            {self._number[operator]: devices for operator, devices in plan.wide.items()},
        )

    def _apart(self, numbers: Iterable[int]) -> tuple[int, ...]:
        return tuple(operator for number in numbers for operator in self.members[number])

    def _together(self, operators: Iterable[int]) -> tuple[int, ...]:
        """Operators of a merge follow one another."""
        return tuple(number for number, _ in groupby(self._number[operator] for operator in operators))


def _time_ms(problem: Problem, members: tuple[int, ...]) -> float:
    if len(members) == 1:
        return problem.time[members[0]]
    time_ms = problem.merge_ms(members)
    if time_ms is None:
        names = ", ".join(problem.ids[operator] for operator in members)
        raise ScheduleError(f"merges: found {names}, which cannot run as one operator; allowed: {MERGEABLE}")
    return time_ms


def _wide_ms(problem: Problem, members: tuple[int, ...]) -> dict[int, float]:
    if len(members) == 1:
        return problem.wide_ms.get(members[0], {})
    return problem.merge_wide_ms.get(frozenset(members), {})
