"""HIOS-MR: mapping-recording-based operator scheduling (Algorithm 3 of HIOS), then grouping (Algorithm 2)."""

from __future__ import annotations

from hios.problem import Problem, positions, priority_order
from hios.schedule import StagedPlan
from hios.schedulers.parallelize import WINDOW, parallelize
from hios.schedulers.registry import register

_PAPER = "HIOS (Kundu and Shu), Algorithm 3"


@register(
    "hios-mr",
    paper=f"{_PAPER} with Algorithm 2",
    summary="maps operators in order of priority, recording the best mapping of the one before; then groups",
    several_devices=True,
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
    lowest device, as Lines 20 and 22 have it. The schedule behind (i-1, k) is read from the table once for all
    devices j. O(|V|^2 M + |E| M^2).
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

    Args:
        problem: graph and costs.
        order: operators by descending priority.
        devices: M.

    Returns:
        Rows in ``order``; times in milliseconds, devices from 0; g of the first row is 0 and means nothing.
    """
    place = positions(order)
    table = [[(problem.time[order[0]], 0)]]
    for number in range(1, len(order)):
        operator = order[number]
        needed = [(place[predecessor], transfer) for predecessor, transfer in problem.predecessors[operator]]
        found = [(float("inf"), 0)] * min(devices, number + 1)
        for before in range(len(table[-1])):
            home, free = _recorded_schedule(table, before, devices)
            for device in range(len(found)):
                start = free[device]
                for predecessor, transfer in needed:
                    where = home[predecessor]
                    arrival = table[predecessor][where][0]
                    start = max(start, arrival if where == device else arrival + transfer)
                if start + problem.time[operator] < found[device][0]:
                    found[device] = (start + problem.time[operator], before)
        table.append(found)
    return table


def _recorded_schedule(
    table: list[list[tuple[float, int]]], device: int, devices: int
) -> tuple[list[int], list[float]]:
    """Lines 10-14: device of every operator when the last one is on ``device``, and when each device is free."""
    home = [0] * len(table)
    free = [0.0] * devices
    for number in range(len(table) - 1, -1, -1):
        home[number] = device
        finish, before = table[number][device]
        if finish > free[device]:
            free[device] = finish
        device = before
    return home, free
