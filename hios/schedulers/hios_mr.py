"""HIOS-MR: mapping-recording-based operator scheduling (Algorithm 3 of HIOS), then grouping (Algorithm 2)."""

from __future__ import annotations

from array import array

from hios.core.problem import Problem, positions, priority_order
from hios.core.schedule import StagedPlan
from hios.schedulers.parallelize import WINDOW, parallelize
from hios.schedulers.registry import register

_PAPER = "HIOS (Kundu and Shu), Algorithm 3"

_INFINITY = float("inf")


@register(
    "hios-mr",
    paper=f"{_PAPER} with Algorithm 2",
    summary="maps operators in order of priority, recording the best mapping of the one before; then groups",
    several_devices=True,
    demand="slots, arithmetic and bandwidth, in t(S)",
    parameters=(WINDOW,),
)
def hios_mr(problem: Problem, devices: int, *, window: int = 2) -> StagedPlan:
    """Algorithm 3 in full: Lines 1-26 are ``map_by_recording``, Line 27 is ``parallelize``."""
    return parallelize(problem, map_by_recording(problem, devices), window)


@register(
    "hios-mr-inter",
    paper=f"{_PAPER}, Lines 1-26",
    summary="maps operators in order of priority, recording the best mapping of the one before; no grouping",
    several_devices=True,
)
def hios_mr_inter(problem: Problem, devices: int) -> StagedPlan:
    """Algorithm 3 without Line 27; see ``map_by_recording``."""
    return map_by_recording(problem, devices)


def map_by_recording(problem: Problem, devices: int) -> StagedPlan:
    """MR-based inter-GPU operator scheduling.

    Cell (i, j) of the table holds the earliest finish t of the i-th operator on device j over the recorded
    schedules of the operators before, and the device g of the operator before that gives it. Ties go to the
    lowest device, as Lines 20 and 22 have it. Lines 10 to 14 read the schedule behind (i-1, k) from the table; here
    it is kept for the cells of the last row. O(M^2 (|V| + |E|)), and copies of M |V|^2 device numbers.
    """
    order = priority_order(problem)
    table = recorded_table(problem, order, devices)
    times = table[-1]
    device = min(range(len(times)), key=lambda candidate: times[candidate][0])
    rows: list[list[tuple[tuple[int, ...], ...]]] = [[] for _ in range(devices)]
    for row, operator in zip(reversed(table), reversed(order), strict=True):
        rows[device].append(((operator,),))
        device = row[device][1]
    return StagedPlan(tuple(tuple(reversed(row)) for row in rows))


def recorded_table(problem: Problem, order: list[int], devices: int) -> list[list[tuple[float, int]]]:
    """Lines 2-21: for the i-th operator and each of min(M, i) devices, the pair (t, g).

    ``order`` is by descending priority.

    Returns:
        Rows in ``order``; times in milliseconds, devices from 0; g of the first row is 0 and means nothing.
    """
    place = positions(order)
    table = [[(problem.time[order[0]], 0)]]
    # The schedules behind the last row (Lines 10-14): device of every operator, and when each device is free.
    schedules = [(array("H", [0]), [problem.time[order[0]], *[0.0] * (devices - 1)])]
    for number in range(1, len(order)):
        time = problem.time[order[number]]
        needed = [(place[predecessor], transfer) for predecessor, transfer in problem.predecessors[order[number]]]
        row = [(_INFINITY, 0)] * min(devices, number + 1)
        for before, (home, free) in enumerate(schedules):
            inputs = [(table[u][home[u]][0], home[u], transfer) for u, transfer in needed]
            for device, (earliest, _) in enumerate(row):
                start = free[device]
                for finish, where, transfer in inputs:
                    start = max(start, finish if where == device else finish + transfer)
                if start + time < earliest:
                    row[device] = (start + time, before)
        schedules = [_extended(schedules[before], device, finish) for device, (finish, before) in enumerate(row)]
        table.append(row)
    return table


def _extended(schedule: tuple[array[int], list[float]], device: int, finish: float) -> tuple[array[int], list[float]]:
    home, free = schedule
    return home + array("H", [device]), [*free[:device], finish, *free[device + 1 :]]
