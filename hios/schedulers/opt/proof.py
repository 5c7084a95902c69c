"""Proof by constraint programming (CP-SAT of OR-tools), for problems without transfers."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

from hios.core.merging import least_growth
from hios.core.problem import Problem, Stage, positions
from hios.core.schedule import StagedPlan

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
    return max(problem.time) / _STEPS


def _plan(problem: Problem, devices: int, starts: list[int]) -> StagedPlan:
    """Operators by start time, each on the device that is free first."""
    place = positions(problem.order)
    rows: list[list[Stage]] = [[] for _ in range(devices)]
    free = [0.0] * devices
    for operator in sorted(range(len(problem)), key=lambda operator: (starts[operator], place[operator])):
        device = min(range(devices), key=free.__getitem__)
        rows[device].append(((operator,),))
        free[device] = max(free[device], starts[operator]) + problem.time[operator]
    return StagedPlan(tuple(map(tuple, rows)))
