"""Lower bounds that hios-opt proves, tighter than `hios.lower_bound_ms` and slower to compute; proofs of optimality.

`interval_bound_ms` counts heads, tails and the work between them. Where operators may take several devices,
`trade_off_bound_ms` adds that what shortens paths costs area (a linear program, solved by GLOP of OR-tools).
`prove` is constraint programming (CP-SAT of OR-tools), for problems without transfers.
"""

from __future__ import annotations

import math
import sys
from bisect import insort
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from hios.core.bounds import Least, least_of_all, lower_bound_ms, merge_choices, stage_scales, work_ms
from hios.core.merging import least_growth
from hios.core.problem import Problem, Stage, members, reachable
from hios.core.schedule import StagedPlan
from hios.core.sums import add_up

#: Up to this number of operators intervals are counted, in O(n^2) steps on sets of operators; beyond, the simple bound
#: is given.
_MOST_FOR_INTERVALS = 2000
#: Up to this number of operators the linear program is solved.
_MOST_FOR_LINEAR_PROGRAM = 1000

#: Up to this number of operators it counts the area before and after every operator: O(n^2) entries.
_MOST_COUNTED = 300
#: Multipliers below this are rounding errors of the solver.
_ROUNDING = 1e-12

_Neighbors = Sequence[Sequence[tuple[int, float]]]


def interval_bound_ms(problem: Problem, devices: int) -> float:
    """A bound on the latency of every schedule, staged or of streams, in milliseconds.

    Notation: w = t*(a+(1-a)*u) is the least device time of an operator (see `hios.lower_bound_ms`), M the number
    of devices. The start of an operator inside its group is the start of its stage plus the times of the operators
    before it in the group. A head r(v) is a bound on the start of v so understood, a tail q(v) one on the latency
    less its finish; tails are the heads of the graph with its edges reversed, since the cost model reads the same
    backwards in time.

    - Path: r(v) >= r(u) + t(u) for a predecessor u.
    - Work: r(v) >= r + W/M, where W is the work of the ancestors of v with heads of at least r (Fernandez and
      Bussell, IEEE Trans. Computers 1973, for stages).
    - Transfers: some predecessors of v run on its device. The others have r(u) + t(u) + t(u,v) <= r(v). The work of
      those on it with heads of at least r fits between r and r(v). The best choice keeps the predecessors with
      the largest r(u) + t(u) + t(u,v) on the device, so only these choices are tried.
    - Latency >= r + q + W/M, where W is the work of the operators with heads of at least r and tails of at least q.

    An operator that may take k devices at once has the least t(v, k) as t, the least k*t(v, k) as its work on all
    devices, and the least t(v, k) as that on one of them; a value is on the first of its devices. Merges are further
    choices of their operators, which all start and end with the merge: each has the time of the merge and its share of
    the work, all of it or on one device (`hios.core.bounds.merge_choices`).

    All but the path count work from a moment r inside a stage on. A stage that began s earlier had, in every group
    with an operator counted, operators not counted of at least s milliseconds. With k such groups the stage lasts
    at least s + W if k = 1, and at least a*k*s + W otherwise, which is as much if a >= 1/2. Hence the bound holds
    for a >= 1/2, and where grouping gains nothing; elsewhere, and with measured stages that beat the model, the
    simple bound is given.
    """
    simple = lower_bound_ms(problem, devices)
    problem = problem.on(devices)
    if len(problem) > _MOST_FOR_INTERVALS or not counts_work(problem):
        return simple
    least = least_of_all(problem)
    heads, tails = _heads_and_tails(problem, least, devices)
    best = max(simple, *(head + time + tail for head, time, tail in zip(heads, least.time, tails, strict=True)))
    by_tail = sorted(range(len(problem)), key=lambda operator: -tails[operator])
    for head in set(heads):
        total = 0.0
        for operator in by_tail:
            if heads[operator] >= head:
                total += least.work[operator]
                best = max(best, head + tails[operator] + total / devices)
    # Sums of many terms: stay on the safe side of rounding.
    return max(simple, best * (1 - 1e-12))


def counts_work(problem: Problem) -> bool:
    """Whether work counts from any moment on, see `interval_bound_ms`."""
    if problem.alpha is None or any(stage_scales(problem)):
        return False
    return problem.alpha >= 0.5 or all(work_ms(problem, v) == time for v, time in enumerate(problem.time))


def _heads_and_tails(problem: Problem, least: Least, devices: int) -> tuple[list[float], list[float]]:
    return (
        _heads(least, problem.order, problem.predecessors, devices),
        _heads(least, problem.order[::-1], problem.successors, devices),
    )


def _heads(least: Least, order: Iterable[int], predecessors: _Neighbors, devices: int) -> list[float]:
    time, work, _ = least
    head = [0.0] * len(time)
    ancestors = [0] * len(time)  # bit masks
    done: list[tuple[float, int]] = []  # (-head, operator), ascending
    for operator in order:
        earliest = 0.0
        for predecessor, _ in predecessors[operator]:
            ancestors[operator] |= ancestors[predecessor] | 1 << predecessor
            earliest = max(earliest, head[predecessor] + time[predecessor])
        if devices > 1:
            earliest = max(earliest, _after_transfers(least, predecessors[operator], head))
        total = 0.0
        for negative, ancestor in done:
            if ancestors[operator] >> ancestor & 1:
                total += work[ancestor]
                earliest = max(earliest, total / devices - negative)
        head[operator] = earliest
        insort(done, (-earliest, operator))
    return head


def _after_transfers(least: Least, predecessors: Sequence[tuple[int, float]], head: Sequence[float]) -> float:
    """Earliest start over all choices of the predecessors that share the device."""
    arrivals = sorted(((head[u] + least.time[u] + transfer, u) for u, transfer in predecessors), reverse=True)
    arrivals.append((0.0, -1))
    best = float("inf")
    here: list[tuple[float, int]] = []  # (head, predecessor) on the device, ascending
    for arrival, predecessor in arrivals:
        ready = 0.0
        for begin, other in here:
            ready = max(ready, begin) + least.work_on_one[other]
        best = min(best, max(arrival, ready))
        if ready >= best:
            break
        insort(here, (head[predecessor], predecessor))
    return best


def proven_bound_ms(problem: Problem, devices: int) -> float:
    """The tightest available bound on the latency of every schedule, in milliseconds.

    Raises:
        ModuleNotFoundError: operators may take several devices and OR-tools is not installed (extra ``opt``).
    """
    problem = problem.on(devices)
    bound = interval_bound_ms(problem, devices)
    return max(bound, trade_off_bound_ms(problem, devices)) if problem.has_widths else bound


def trade_off_bound_ms(problem: Problem, devices: int) -> float:
    """A bound on the latency of every schedule from path and area together, in milliseconds; 0 if there is none.

    The path bound takes the least t(v, k), the area bound the least k*t(v, k): both cannot be had at once. Here every
    operator has one time T and one area A, a mixture of those that it can have alone or merged, and a start s:

        s(v) >= s(u) + T(u) for an edge (u, v)      M s(v) >= area of all before v
        L >= s(v) + T(v) + q(v)                     M (L - s(v) - T(v)) >= area of all after v
        M L >= area of all                          s(v) >= r(v)

    with the heads r and tails q of `interval_bound_ms`, which know of transfers. The least L is a bound (as for the
    allocation of moldable tasks: Jansen and Zhang, ACM TALG 2006). The result does not rely on the solver: only its
    multipliers of these rows are used, and any non-negative multipliers give a bound. Rows times multipliers, added up,
    leave c*L + sum of c(v)*s(v) >= sum of a(v)*T(v) + b(v)*A(v) and a sum of heads and tails. There s(v) <= L, and the
    right side is at least what each operator has at its best number of devices.
    """
    problem = problem.on(devices)
    if len(problem) > _MOST_FOR_LINEAR_PROGRAM or not counts_work(problem):
        return 0.0
    rows = _rows(problem, devices)
    return _certified(problem, rows, _multipliers(problem, rows))


def _choices(problem: Problem) -> list[list[tuple[float, float]]]:
    """Time and area of every operator for every number of devices, alone and as part of merges, in milliseconds."""
    choices = [
        [(problem.time[v], work_ms(problem, v)), *((t, width * t) for width, t in problem.wide_ms.get(v, {}).items())]
        for v in range(len(problem))
    ]
    for operator, time, share, width in merge_choices(problem):
        choices[operator].append((time, width * share))
    return choices


@dataclass(slots=True)
class _Constraint:
    """``latency``*L + sum of ``start``*s - sum of ``time``*T - sum of A of ``area`` >= ``least``."""

    latency: float = 0.0
    start: dict[int, float] = field(default_factory=dict)
    time: dict[int, float] = field(default_factory=dict)
    area: Sequence[int] = ()
    least: float = 0.0


def _rows(problem: Problem, devices: int) -> list[_Constraint]:
    operators = range(len(problem))
    heads, tails = _heads_and_tails(problem, least_of_all(problem), devices)
    rows = [_Constraint(latency=devices, area=operators)]
    for v in operators:
        rows.append(_Constraint(latency=1.0, start={v: -1.0}, time={v: 1.0}, least=tails[v]))
        rows.append(_Constraint(start={v: 1.0}, least=heads[v]))
        rows += [_Constraint(start={v: 1.0, u: -1.0}, time={u: 1.0}) for u, _ in problem.predecessors[v]]
    if len(problem) <= _MOST_COUNTED:
        before, after = (
            [members(found) for found in reachable(order, neighbors)]
            for order, neighbors in ((problem.order, problem.predecessors), (problem.order[::-1], problem.successors))
        )
        rows += [_Constraint(start={v: devices}, area=before[v]) for v in operators if before[v]]
        rows += [
            _Constraint(latency=devices, start={v: -devices}, time={v: devices}, area=after[v])
            for v in operators
            if after[v]
        ]
    return rows


def _multipliers(problem: Problem, rows: Sequence[_Constraint]) -> list[float]:
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
        constraint = solver.Constraint(row.least, infinity)
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


def _certified(problem: Problem, rows: Sequence[_Constraint], multipliers: Sequence[float]) -> float:
    """The bound that multipliers of rows prove."""
    latency = known = 0.0
    start, time, area = ([0.0] * len(problem) for _ in range(3))
    for row, multiplier in zip(rows, multipliers, strict=True):
        if multiplier <= _ROUNDING:
            continue
        latency += multiplier * row.latency
        known += multiplier * row.least
        for total, part in ((start, row.start), (time, row.time)):
            for v, value in part.items():
                total[v] += multiplier * value
        for v in row.area:
            area[v] += multiplier
    latency += add_up(max(0.0, value) for value in start)
    if latency <= 0.0:
        return 0.0
    least = (min(time[v] * t + area[v] * a for t, a in own) for v, own in enumerate(_choices(problem)))
    # Sums of many terms: stay on the safe side of rounding.
    return (known + add_up(least)) / latency * (1 - 1e-9)


#: Beyond this number of operators the solver does not finish within the time of a search.
MOST_OPERATORS = 200
#: Steps that the largest time is divided into if times are not integers.
_STEPS = 1_000_000
#: Integers below this are exact in floating point, and their sums are within the range of the solver.
_EXACT = 2**53


def provable(problem: Problem) -> bool:
    """Whether `prove` is applicable: few operators, no transfers, and no gain from stages of several groups."""
    return (
        len(problem) <= MOST_OPERATORS
        and all(transfer == 0 for row in problem.predecessors for _, transfer in row)
        and not stages_gain(problem)
    )


def stages_gain(problem: Problem) -> bool:
    """Whether a stage of several groups can be shorter than its operators one after another."""
    if problem.alpha is None or problem.measured or problem.measured_merges or least_growth(problem.convolutions):
        return True
    return problem.alpha < 1 and any(utilization < 1 for utilization in problem.utilization)


def staged_bound_ms(problem: Problem, bound: float) -> float:
    """A bound on all schedules, rounded up for staged ones where these last an integer of milliseconds."""
    transfers = [transfer for row in problem.predecessors for _, transfer in row]
    if stages_gain(problem) or any(time != int(time) for time in (*problem.time, *transfers)):
        return bound
    return max(bound, float(math.ceil(bound * (1 - 1e-9))))


def prove(
    problem: Problem, devices: int, plan: StagedPlan, latency: float, bound: float, *, time_limit: float, seed: int
) -> tuple[StagedPlan, float, float]:
    """Look for a shorter staged schedule, or prove that there is none: P | prec | Cmax.

    Times are rounded down to whole steps, so that the bound stays one; it is exact where times are integers.

    The problem is `provable`. ``plan``, one operator a stage, is a hint; its latency and ``bound`` are in milliseconds,
    ``time_limit`` is in seconds. Returns the plan found, or the one given, with its latency and a bound on staged
    schedules.
    """
    from ortools.sat.python import cp_model

    from hios.core.evaluate import staged_times

    step = _step(problem)
    exact = all(time == round(time / step) * step for time in problem.time)
    length = [math.floor(time / step + 1e-9) for time in problem.time]
    horizon = math.floor(latency / step + 1e-9)
    model = cp_model.CpModel()
    starts = [model.new_int_var(0, horizon, "") for _ in length]
    tasks = [model.new_fixed_size_interval_var(start, time, "") for start, time in zip(starts, length, strict=True)]
    end = model.new_int_var(math.ceil(bound / step - 1e-6) if exact else math.floor(bound / step), horizon, "")
    model.add_cumulative(tasks, [1] * len(tasks), devices)
    for operator, row in enumerate(problem.predecessors):
        model.add(end >= starts[operator] + length[operator])
        for predecessor, _ in row:
            model.add(starts[operator] >= starts[predecessor] + length[predecessor])
    model.minimize(end)
    for start, _, device, index in staged_times(problem, plan):
        model.add_hint(starts[plan.devices[device][index][0][0]], math.floor(start / step + 1e-9))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(time_limit, 0.01)
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.catch_sigint_signal = False  # Ctrl-C ends the program; it is no time limit
    with ThreadPoolExecutor(1) as pool:
        try:
            status = pool.submit(solver.solve, model).result()
        finally:
            solver.stop_search()
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        shorter = _plan(problem, devices, [solver.value(start) for start in starts])
        found_latency = max(finish for _, finish, _, _ in staged_times(problem, shorter))
        if found_latency < latency:
            plan, latency = shorter, found_latency
    proven = solver.best_objective_bound * step
    return plan, latency, min(max(bound, proven), latency)


def _step(problem: Problem) -> float:
    """A step of which all times are multiples, if they are integers; else a fraction of the largest time."""
    if all(time == int(time) < _EXACT for time in problem.time):
        return 1.0
    return max(max(problem.time) / _STEPS, sys.float_info.min)  # never 0, which tiny times would give


def _plan(problem: Problem, devices: int, starts: list[int]) -> StagedPlan:
    """Operators by start time, each on the device that is free first."""
    rows: list[list[Stage]] = [[] for _ in range(devices)]
    free = [0.0] * devices
    for operator in sorted(range(len(problem)), key=lambda operator: (starts[operator], problem.place[operator])):
        device = min(range(devices), key=free.__getitem__)
        rows[device].append(((operator,),))
        free[device] = max(free[device], starts[operator]) + problem.time[operator]
    return StagedPlan(tuple(map(tuple, rows)))
