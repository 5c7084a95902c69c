"""HEFT with insertion, the classic yardstick of list scheduling, on equal devices."""

from __future__ import annotations

from bisect import bisect_left, insort

from hios.problem import Problem, positions, priority_order
from hios.schedule import StagedPlan
from hios.schedulers.registry import register


@register(
    "heft",
    paper="HEFT (Topcuoglu, Hariri and Wu, IEEE TPDS 2002), Fig. 2",
    summary="operators by upward rank, each where it finishes first, gaps between earlier ones included",
    several_devices=True,
)
def heft(problem: Problem, devices: int) -> StagedPlan:
    """Heterogeneous Earliest Finish Time for the special case of equal devices.

    Operators in descending order of upward rank go, one by one, to the device on which they finish first; an idle
    gap between two operators that were placed before may be used (insertion-based policy). The upward rank
    counts t(u,v) in full, as HIOS does; the paper takes the mean over pairs of devices. Ties go to the lowest
    device. O(|V| M (|E|/|V| + |V|)).
    """
    order = priority_order(problem)
    rank = positions(order)
    rows: list[list[tuple[float, float, int]]] = [[] for _ in range(devices)]  # (start, finish, rank) by start
    finish = [0.0] * len(problem)
    home = [0] * len(problem)
    for operator in order:
        time = problem.time[operator]
        best: tuple[float, int] | None = None
        for device in range(devices):
            arrivals = (
                finish[u] + (0.0 if home[u] == device else transfer) for u, transfer in problem.predecessors[operator]
            )
            start = _first_gap(rows[device], max(arrivals, default=0.0), time)
            if best is None or start < best[0]:
                best = (start, device)
            if not rows[device]:
                break  # devices without operators are alike
        assert best is not None  # noqa: S101 - devices >= 1
        start, home[operator] = best
        finish[operator] = start + time
        insort(rows[home[operator]], (start, finish[operator], rank[operator]))
    return StagedPlan(tuple(tuple(((order[place],),) for _, _, place in row) for row in rows))


def _first_gap(row: list[tuple[float, float, int]], ready: float, time: float) -> float:
    """Earliest start from ``ready`` on at which ``time`` milliseconds are free."""
    # Operators that start before could end leave no gap in front of them; rows do not overlap.
    first = bisect_left(row, (ready + time,))
    free = row[first - 1][1] if first else 0.0
    for start, finish, _ in row[first:]:
        if max(ready, free) + time <= start:
            break
        free = finish
    return max(ready, free)
