"""Errors of plans that cannot be evaluated: inconsistent devices of wide or merged operators, and deadlocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hios.errors import ScheduleError
from hios.problem import Problem
from hios.schedule import StreamPlan


def require_wide(problem: Problem, plan: StreamPlan) -> None:
    """Refuse a plan with operators on several devices that cannot be evaluated.

    Args:
        problem: graph and costs, with the times on the devices of the plan (``Problem.on``).
        plan: a plan whose ``wide`` is not empty.

    Raises:
        ScheduleError: an operator does not stand once on each of its devices, takes a number of devices that the costs
            do not list, or shares a device that has several streams.
    """
    placed = Counter(
        (operator, device) for device, streams in enumerate(plan.devices) for stream in streams for operator in stream
    )
    total = Counter(operator for operator, _ in placed.elements())
    for operator, name in enumerate(problem.ids):
        devices = plan.wide.get(operator)
        if devices is None:
            if total[operator] != 1:
                raise ScheduleError(f"operator {name} is in the plan {total[operator]} times; allowed: once")
            continue
        if total[operator] != len(devices) or any(placed[operator, device] != 1 for device in devices):
            raise ScheduleError(f"operator {name}: found devices other than those of its streams; allowed: the same")
        _require_width(problem, operator, len(devices))
    for device in sorted({device for devices in plan.wide.values() for device in devices}):
        if len(plan.devices[device]) > 1:
            raise ScheduleError(
                f"device {device}: found {len(plan.devices[device])} streams; allowed: 1, as an operator takes this "
                "device together with others, and must have it alone"
            )


def require_merges(problem: Problem, plan: StreamPlan) -> None:
    """Refuse streams with merges that cannot be evaluated.

    Args:
        problem: graph and costs, with the times on the devices of the plan (``Problem.on``).
        plan: a plan whose ``merges`` is not empty, each of operators that can run as one.

    Raises:
        ScheduleError: operators of a merge have different devices, are not consecutive, take a number of devices that
            the costs do not list for the merge, or share a device that has several streams.
    """
    for merge in sorted(map(sorted, plan.merges)):
        names = ", ".join(problem.ids[operator] for operator in merge)
        held = {plan.wide.get(operator, ()) for operator in merge}
        rows = [stream for streams in plan.devices for stream in streams if not set(merge).isdisjoint(stream)]
        if len(held) > 1 or not all(_follow(merge, row) for row in (*rows, *([plan.launch] if plan.launch else ()))):
            raise ScheduleError(
                f"operators {names}: found them merged, on different devices or with others between them; allowed: one "
                "after another on the same devices"
            )
        width = len(held.pop()) or 1
        allowed = (1, *problem.merge_wide_ms.get(frozenset(merge), ()))
        if width not in allowed:
            raise ScheduleError(
                f"operators {names}: found {width} devices; allowed: {', '.join(map(str, allowed))}, those of their "
                "merge's wide_ms in the costs"
            )
        if any(len(streams) > 1 for streams in plan.devices if any(row in rows for row in streams)):
            raise ScheduleError(
                f"operators {names}: found them merged on a device of several streams; allowed: a device of one, which "
                "a merged operator has alone"
            )


def _follow(merge: Sequence[int], row: Sequence[int]) -> bool:
    """Whether all operators of a merge follow each other in a row."""
    places = [place for place, operator in enumerate(row) if operator in merge]
    return len(places) == len(merge) and places[-1] - places[0] < len(merge)


def _require_width(problem: Problem, operator: int, width: int) -> None:
    allowed = (1, *problem.wide_ms.get(operator, ()))
    if width not in allowed or width == 1:
        raise ScheduleError(
            f"operator {problem.ids[operator]}: found {width} devices; allowed: {', '.join(map(str, allowed))}, those "
            "of its wide_ms in the costs"
        )


_NAMED = 5


def deadlock(problem: Problem, waiting: Sequence[int]) -> ScheduleError:
    """An error that names operators that never start."""
    names = ", ".join(problem.ids[operator] for operator in waiting[:_NAMED])
    more = f" and {len(waiting) - _NAMED} more" if len(waiting) > _NAMED else ""
    return ScheduleError(f"the schedule deadlocks: {names}{more} wait for each other")
