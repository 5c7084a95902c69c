"""Intra-device operator parallelisation with a sliding window (Algorithm 2 of HIOS)."""

from __future__ import annotations

from hios.errors import ScheduleError
from hios.evaluate import staged_times
from hios.problem import Problem, Stage, priority_order
from hios.schedule import StagedPlan
from hios.schedulers.registry import Parameter

#: The window of HIOS: at most so many neighbouring operators are grouped (w, preset to 2 in the simulation).
WINDOW = Parameter("window", 2, "largest number w of operators in a stage", minimum=2)


#: A gain below this share is rounding in floating point, not a gain.
_ROUNDING = 1e-12


def parallelize(problem: Problem, plan: StagedPlan, window: int) -> StagedPlan:
    """Group neighbouring independent operators of a device where that lowers the latency.

    Args:
        problem: graph and costs.
        plan: operators in order on their devices, one a stage.
        window: w, the largest number of operators in a stage, at least 2.

    Operators start windows in descending order of priority; one that a stage holds already is skipped, as in
    the example of Fig. 5. Deviation: Line 11 keeps every acyclic grouping in G, improved or not; as the text
    says that the schedule changes only "if the schedule candidate with the lowest inference latency performs
    better", a grouping is kept here only with a strict gain. The cycle check runs on the graph of stages with
    the order on each device as edges, since those dependencies are implicit in the schedule (section I).

    O(w |V| (|V| + |E|)): every window evaluates the whole plan.
    """
    rows: list[list[Stage]] = [list(row) for row in plan.devices]
    latency = _latency(problem, rows)
    if latency is None:
        raise ScheduleError("the plan to be grouped deadlocks")
    home = {operator: device for device, row in enumerate(rows) for stage in row for (operator,) in stage}
    for operator in priority_order(problem):
        row = rows[home[operator]]
        position = next(number for number, stage in enumerate(row) if (operator,) in stage)
        if len(row[position]) > 1:
            continue
        # Windows of p + 1 operators from this one on; a larger window may take in what a smaller one grouped.
        for size in range(2, window + 1):
            grouped = _grouped(problem, row, position, size)
            if grouped is None:
                continue
            candidate = [*rows]
            candidate[home[operator]] = grouped
            found = _latency(problem, candidate)
            if found is not None and found < latency * (1 - _ROUNDING):
                latency, rows, row = found, candidate, grouped
    return StagedPlan(tuple(tuple(row) for row in rows))


def _grouped(problem: Problem, row: list[Stage], position: int, size: int) -> list[Stage] | None:
    """The row with ``size`` operators from ``position`` on as one stage; None where they cannot be."""
    members: list[tuple[int, ...]] = []
    end = position
    while end < len(row) and len(members) < size:
        members.extend(row[end])
        end += 1
    operators = {operator for (operator,) in members}
    if len(members) != size or end == position + 1:
        return None
    if any(predecessor in operators for operator in operators for predecessor, _ in problem.predecessors[operator]):
        return None
    return [*row[:position], tuple(members), *row[end:]]


def _latency(problem: Problem, rows: list[list[Stage]]) -> float | None:
    """Latency of the stages at their earliest start (Line 12); None where they form a cycle (Line 10)."""
    try:
        times = staged_times(problem, StagedPlan(tuple(tuple(row) for row in rows)))
    except ScheduleError:
        return None
    return max(finish for _, finish, _, _ in times)
