"""A lower bound where operators may take several devices: what shortens paths costs area (GLOP of OR-tools)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hios.bound import merge_choices, work_ms
from hios.problem import Problem
from hios.schedulers.opt.interval_bound import counts_work, interval_bound_ms

#: Beyond this number of operators the linear program takes too long.
MOST_OPERATORS = 1000
#: Up to this number of operators it counts the area before and after every operator: O(n^2) entries.
_MOST_COUNTED = 300
#: Multipliers below this are rounding of the solver.
_ROUNDING = 1e-12


def proven_bound_ms(problem: Problem, devices: int) -> float:
    """The best bound there is on the latency of every schedule, in milliseconds.

    Raises:
        ModuleNotFoundError: operators may take several devices and OR-tools is not installed (extra ``opt``).
    """
    problem = problem.on(devices)
    bound = interval_bound_ms(problem, devices)
    return max(bound, trade_off_bound_ms(problem, devices)) if problem.has_widths else bound


def trade_off_bound_ms(problem: Problem, devices: int) -> float:
    """A bound on the latency of every schedule from path and area together, in milliseconds; 0 if it says nothing.

    The path bound takes the least t(v, k), the area bound the least k*t(v, k): both cannot be had at once. Here every
    operator has one time T and one area A, a mixture of those that it can have alone or merged, and a start s:

        s(v) >= s(u) + T(u) for an edge (u, v)      M s(v) >= area of all before v
        L >= s(v) + T(v)                            M (L - s(v) - T(v)) >= area of all after v
        M L >= area of all

    The least L is a bound (as for the allocation of moldable tasks: Jansen and Zhang, ACM TALG 2006). The solver is not
    believed: of what it finds only the multipliers of these rows are taken, and any that are not negative give a bound.
    Rows times multipliers, added up, leave c*L + sum of c(v)*s(v) >= sum of a(v)*T(v) + b(v)*A(v). There s(v) <= L, and
    the right side is at least what each operator has at its best number of devices.
    """
    problem = problem.on(devices)
    if len(problem) > MOST_OPERATORS or not counts_work(problem):
        return 0.0
    rows = _rows(problem, devices)
    return _certified(problem, rows, _multipliers(problem, rows))


def _choices(problem: Problem) -> list[list[tuple[float, float]]]:
    """Time and area of every operator for every number of devices, alone and as part of merges, in milliseconds."""
    choices = [
        [(problem.time[v], work_ms(problem, v)), *((t, width * t) for width, t in problem.wide_ms.get(v, {}).items())]
        for v in range(len(problem))
    ]
    for operator, taken, width in merge_choices(problem):
        choices[operator].append((taken.time, width * taken.share))
    return choices


@dataclass(slots=True)
class _Row:
    """``latency``*L + sum of ``start``*s - sum of ``time``*T - sum of A of ``area`` >= 0."""

    latency: float = 0.0
    start: dict[int, float] = field(default_factory=dict)
    time: dict[int, float] = field(default_factory=dict)
    area: Sequence[int] = ()


def _rows(problem: Problem, devices: int) -> list[_Row]:
    operators = range(len(problem))
    rows = [_Row(latency=devices, area=operators)]
    for v in operators:
        rows.append(_Row(latency=1.0, start={v: -1.0}, time={v: 1.0}))
        rows += [_Row(start={v: 1.0, u: -1.0}, time={u: 1.0}) for u, _ in problem.predecessors[v]]
    if len(problem) <= _MOST_COUNTED:
        before, after = _reached(problem.order, problem.predecessors), _reached(problem.order[::-1], problem.successors)
        rows += [_Row(start={v: devices}, area=before[v]) for v in operators if before[v]]
        rows += [
            _Row(latency=devices, start={v: -devices}, time={v: devices}, area=after[v]) for v in operators if after[v]
        ]
    return rows


def _reached(order: Sequence[int], neighbors: Sequence[Sequence[tuple[int, float]]]) -> list[list[int]]:
    """All operators before (or after) each."""
    bits = [0] * len(order)
    for v in order:
        for u, _ in neighbors[v]:
            bits[v] |= bits[u] | 1 << u
    return [[u for u in range(len(order)) if reached >> u & 1] for reached in bits]


def _multipliers(problem: Problem, rows: Sequence[_Row]) -> list[float]:
    from ortools.linear_solver import pywraplp

    solver = pywraplp.Solver.CreateSolver("GLOP")
    infinity = solver.infinity()

    def variables() -> list[Any]:
        return [solver.NumVar(0, infinity, "") for _ in range(len(problem))]

    choices = _choices(problem)
    latency, start, time, area = solver.NumVar(0, infinity, ""), variables(), variables(), variables()
    for v in range(len(problem)):
        # The share of each number of devices; together 1.
        whole, times, areas = (solver.Constraint(end, end) for end in (1.0, 0.0, 0.0))
        times.SetCoefficient(time[v], -1.0)
        areas.SetCoefficient(area[v], -1.0)
        for needed, used in choices[v]:
            share = solver.NumVar(0, 1, "")
            whole.SetCoefficient(share, 1.0)
            times.SetCoefficient(share, needed)
            areas.SetCoefficient(share, used)
    constraints = []
    for row in rows:
        constraint = solver.Constraint(0.0, infinity)
        constraint.SetCoefficient(latency, row.latency)
        for variable, part, sign in ((start, row.start, 1.0), (time, row.time, -1.0)):
            for v, value in part.items():
                constraint.SetCoefficient(variable[v], sign * value)
        for v in row.area:
            constraint.SetCoefficient(area[v], -1.0)
        constraints.append(constraint)
    solver.Minimize(latency)
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return [0.0] * len(rows)
    return [constraint.dual_value() for constraint in constraints]


def _certified(problem: Problem, rows: Sequence[_Row], multipliers: Sequence[float]) -> float:
    """The bound that multipliers of rows prove."""
    latency = 0.0
    start, time, area = ([0.0] * len(problem) for _ in range(3))
    for row, multiplier in zip(rows, multipliers, strict=True):
        if multiplier <= _ROUNDING:
            continue
        latency += multiplier * row.latency
        for total, part in ((start, row.start), (time, row.time)):
            for v, value in part.items():
                total[v] += multiplier * value
        for v in row.area:
            area[v] += multiplier
    latency += sum(max(0.0, value) for value in start)
    if latency <= 0.0:
        return 0.0
    least = (min(time[v] * t + area[v] * a for t, a in own) for v, own in enumerate(_choices(problem)))
    # Sums of many terms: stay on the safe side of rounding.
    return sum(least) / latency * (1 - 1e-9)
