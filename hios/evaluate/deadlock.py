"""The error for plans whose parts wait for each other."""

from __future__ import annotations

from collections.abc import Sequence

from hios.errors import ScheduleError
from hios.problem import Problem

_NAMED = 5


def deadlock(problem: Problem, waiting: Sequence[int]) -> ScheduleError:
    """An error that names operators which never start."""
    names = ", ".join(problem.ids[operator] for operator in waiting[:_NAMED])
    more = f" and {len(waiting) - _NAMED} more" if len(waiting) > _NAMED else ""
    return ScheduleError(f"the schedule deadlocks: {names}{more} wait for each other")
