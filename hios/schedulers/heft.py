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
        used = sum(map(bool, timetable.rows))  # the first ones; devices without operators are alike
        # Devices take equally long, so the earliest start is the earliest finish.
        start, device = min((timetable.earliest_start(operator, d), d) for d in range(min(used + 1, devices)))
        timetable.place(operator, device, start)
    return timetable.plan()
