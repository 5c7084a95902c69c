"""Verdicts on the lower bounds stated in a schedule: wrong, recomputed, weaker, or not confirmed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hios.core.bounds import least_ms, lower_bound_ms
from hios.core.check import SLACK
from hios.core.problem import Problem
from hios.core.schedule import Schedule

#: Relative difference up to which a stated and a recomputed bound are the same.
_SAME = 1e-6
#: ``wrong``: above what is attained; ``recomputed``: equal to the bound recomputed here; ``weaker``: below it, so true;
#: ``unconfirmed``: above it, so that a solver may have proved it, which is not repeated here.
_Verdict = Literal["wrong", "recomputed", "weaker", "unconfirmed"]


@dataclass(frozen=True, slots=True)
class BoundVerdict:
    """A lower bound as schedule.json states it under ``name``, and what is known independently; milliseconds.

    ``recomputed_ms`` is the bound of `hios.core.bounds` for the same problem, ``attained_ms`` the least latency known
    to be possible, which no bound is above.
    """

    name: str
    stated_ms: float
    recomputed_ms: float
    attained_ms: float
    verdict: _Verdict

    def __str__(self) -> str:
        """The verdict as one line."""
        if self.verdict == "wrong":
            return (
                f"{self.name}: found {self.stated_ms:g} ms; allowed: at most {self.attained_ms:g} ms, which is possible"
            )
        return f"{self.name} {self.stated_ms:g} ms: {self.verdict}; hios.core.bounds proves {self.recomputed_ms:g} ms"


def judge_bounds(problem: Problem, schedule: Schedule, others: Iterable[Schedule] = ()) -> list[BoundVerdict]:
    """A verdict on each lower bound stated in a schedule.

    A bound is wrong if something is faster: the schedule itself, all operators one after another on one device or on as
    many devices as are fastest for each, or another schedule. ``schedule`` and ``others`` are valid schedules of the
    problem (`hios.core.check.violations`); others for another number of devices are skipped, as times may depend on it
    (``Problem.on``).
    """
    problem = problem.on(schedule.devices)
    recomputed = lower_bound_ms(problem, schedule.devices)
    same_devices = [schedule, *(other for other in others if other.devices == schedule.devices)]
    in_sequence = sum(problem.time)
    wide_sequence = sum(least_ms(problem, operator) for operator in range(len(problem)))
    attained = min(wide_sequence, *(other.latency_ms for other in same_devices))
    verdicts = [_verdict("lower_bound_ms", schedule.lower_bound_ms, recomputed, attained)]
    if schedule.staged_lower_bound_ms:
        staged = [other.latency_ms for other in same_devices if other.placements[0].stage is not None]
        attained = min([in_sequence, *staged])
        verdicts.append(_verdict("staged_lower_bound_ms", schedule.staged_lower_bound_ms, recomputed, attained))
    return verdicts


def _verdict(name: str, stated: float, recomputed: float, attained: float) -> BoundVerdict:
    verdict: _Verdict
    if stated > attained + SLACK * max(1.0, attained):
        verdict = "wrong"
    elif abs(stated - recomputed) <= _SAME * max(stated, recomputed):
        verdict = "recomputed"
    else:
        verdict = "weaker" if stated < recomputed else "unconfirmed"
    return BoundVerdict(name, stated, recomputed, attained, verdict)
