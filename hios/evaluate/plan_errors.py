"""Errors of plans that cannot be evaluated: inconsistent devices of wide operators, and deadlocks."""

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
