"""HEFT with insertion, the classic list scheduling baseline, on equal devices."""

from __future__ import annotations

from hios.core.problem import Problem, priority_order
from hios.core.schedule import StagedPlan
from hios.schedulers.insertion import InsertionTimetable
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
    timetable = InsertionTimetable(problem, order, devices)
    for operator in order:
        best: tuple[float, int] | None = None
        for device, row in enumerate(timetable.rows):
            start = timetable.earliest_start(operator, device)
            # Devices take equally long, so the earliest start is the earliest finish.
            if best is None or start < best[0]:
                best = (start, device)
            if not row:
                break  # devices without operators are alike
        assert best is not None  # noqa: S101 - devices >= 1
        start, device = best
        timetable.place(operator, device, start)
    return timetable.plan()
