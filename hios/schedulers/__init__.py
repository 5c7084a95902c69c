"""Inter-operator scheduling algorithms, one a file.

Steps that several share: ``parallelize`` (sliding window), ``path_times`` and ``propagation_kernel`` (start times),
``insertion`` (idle gaps), ``ios_search`` and ``ios_kernel``, ``opt`` (searches of hios-opt), ``policy`` (GPG),
``deadline``.

To add one: a new file with a function ``(problem, devices, *, parameters) -> Plan`` under ``@register``, and its
name in the import below. Everything else (command line, config, tests, documentation) reads the registry.
Algorithms of other distributions register by entry point (``plugins``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hios.core.bounds import lower_bound_ms
from hios.core.evaluate import evaluate, latency_ms
from hios.core.problem import Problem, positions
from hios.core.schedule import Plan, Schedule, StagedPlan
from hios.errors import ScheduleError
from hios.schedulers import (  # noqa: F401 - they register
    gpg,
    greedy,
    heft,
    hios_lp,
    hios_mr,
    hios_opt,
    hios_wide,
    ios,
    lios,
    nimble,
    opara,
    sequential,
)
from hios.schedulers.plugins import find
from hios.schedulers.registry import ALGORITHMS, Algorithm, Parameter, checked_devices, register

__all__ = ["ALGORITHMS", "Algorithm", "Parameter", "find", "register", "schedule"]


def schedule(
    problem: Problem, algorithm: str, devices: int = 1, parameters: Mapping[str, Any] | None = None
) -> Schedule:
    """Schedule a problem with a registered algorithm and evaluate the result.

    Args:
        problem: graph and costs.
        algorithm: a name of the registry, or ``package.module:function`` of a registered function.
        devices: number M of equal devices, at least 1.
        parameters: parameters of the algorithm by their papers' names; defaults otherwise.

    Raises:
        HiosError: unknown algorithm or parameter, or a number of devices that it cannot use.
        ScheduleError: the plan uses more devices than requested.

    Returns:
        The plan with its times, its latency and a lower bound; ``write(path)`` makes a schedule.json of it.

    Examples:
        >>> import hios
        >>> operators = tuple(hios.Operator(name, "conv") for name in "abcd")
        >>> edges = tuple(hios.Edge(*ends) for ends in ("ab", "ac", "bd", "cd"))
        >>> costs = hios.Costs({"a": 1, "b": 4, "c": 4, "d": 1}, {(edge.source, edge.target): 0.5 for edge in edges})
        >>> problem = hios.Problem(hios.Graph("diamond", operators, edges), costs)
        >>> hios.schedule(problem, "sequential").latency_ms
        10.0
        >>> fast = hios.schedule(problem, "hios-lp", devices=2, parameters={"window": 2})
        >>> fast.latency_ms, fast.lower_bound_ms
        (7.0, 6.0)
    """
    entry = find(algorithm)
    devices = checked_devices(entry, devices)
    values = entry.resolved(parameters or {})
    problem = problem.on(devices)
    began = time.perf_counter()
    solution = entry.solve(problem, devices, values)
    elapsed = time.perf_counter() - began
    if (used := len(solution.plan.devices)) > devices:
        raise ScheduleError(f"algorithm {entry.name}: found a plan for {used} devices; allowed: {devices}")
    placements = evaluate(problem, solution.plan)
    bound = max(lower_bound_ms(problem, devices), solution.lower_bound_ms)
    return Schedule(
        algorithm=entry.name,
        parameters=values,
        devices=devices,
        latency_ms=latency_ms(placements),
        lower_bound_ms=bound,
        scheduling_time_s=elapsed,
        placements=tuple(placements),
        graph=problem.graph.name,
        merges=_merges(problem, solution.plan),
        notes={**solution.notes, **({"costs": said} if (said := problem.predicted_for or problem.disturbed) else {})},
        graph_fingerprint=problem.graph.fingerprint,
        staged_lower_bound_ms=solution.staged_lower_bound_ms if solution.staged_lower_bound_ms > bound else 0.0,
        cuts=solution.cuts,
        probe=problem.probe,
        cores_per_device=problem.cores_per_device,
        hardware=problem.hardware,
        allocation_time_s=solution.allocation_time_s,
    )


def _merges(problem: Problem, plan: Plan) -> tuple[tuple[str, ...], ...]:
    """The merges of a plan by operator ids, in the order in which stages or operators are launched."""
    if not isinstance(plan, StagedPlan):
        place = positions(plan.launch or problem.order)
        merges = sorted(sorted(merge, key=place.__getitem__) for merge in plan.merges)
        merges.sort(key=lambda merge: place[merge[0]])
        return tuple(tuple(problem.ids[operator] for operator in merge) for merge in merges)
    return tuple(
        tuple(problem.ids[operator] for (operator,) in stage)
        for row in plan.devices
        for stage in row
        if plan.is_merged(stage)
    )
