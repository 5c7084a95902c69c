"""Which merges a list schedule with operators on several devices gains from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from hios.core.bounds import least_ms, least_work_ms
from hios.core.contraction import Contraction
from hios.core.problem import Problem

#: Changes that are tried one by one.
MOST_TRIED = 100
#: A gain below this share is rounding in floating point, not a gain.
_ROUNDING = 1e-12

#: Identifies one of the passes by which an algorithm finds a schedule.
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A measured merge, with the device time and the sequential time that it saves."""

    merge: frozenset[int]
    area_ms: float
    time_ms: float


def choose_merges(
    problem: Problem,
    latency_ms: float,
    kind: _Kind,
    best: Callable[[Problem], tuple[float, _Kind]],
    once: Callable[[Problem, _Kind], float],
) -> Contraction | None:
    """The merges with the least latency that a greedy search finds; None if all operators are best apart.

    The search first takes all merges at once that save device time, the largest savings first. Then, from the better of
    that and no merges, it tries each merge in turn: a chosen one is removed, any other one is added in place of those
    that share operators with it. Changes that shorten the latency are kept. Only measured merges are considered.

    The problem has the times of its devices (``Problem.on``); ``latency_ms`` is that of the best schedule without
    merges, and ``kind`` how it was found. ``best`` gives the least latency of a problem whose merges are operators
    (`Contraction`) and how it was found, ``once`` the latency of such a problem found in one way only.
    """
    candidates = _candidates(problem)
    chosen = _disjoint(candidate.merge for candidate in candidates if candidate.area_ms > 0)
    contraction = Contraction(problem, chosen) if chosen else None
    if contraction is not None:
        together_ms, together_kind = best(contraction.problem)
        if together_ms < latency_ms * (1 - _ROUNDING):
            latency_ms, kind = together_ms, together_kind
        else:
            contraction, chosen = None, frozenset()
    for candidate in candidates[:MOST_TRIED]:
        apart = frozenset(other for other in chosen if other.isdisjoint(candidate.merge))
        trial = apart if candidate.merge in chosen else apart | {candidate.merge}
        tried = Contraction(problem, trial) if trial else None
        trial_ms = once(problem if tried is None else tried.problem, kind)
        if trial_ms < latency_ms * (1 - _ROUNDING):
            latency_ms, chosen, contraction = trial_ms, trial, tried
    return contraction


def _candidates(problem: Problem) -> list[_Candidate]:
    """Merges that save anything, the largest savings of the devices' time first."""
    candidates = []
    for merge in sorted(problem.measured_merges.keys() | problem.merge_wide_ms.keys(), key=sorted):
        narrow = problem.merge_ms(merge)
        times = {1: math.inf if narrow is None else narrow, **problem.merge_wide_ms.get(merge, {})}
        area = sum(least_work_ms(problem, operator) for operator in merge)
        one_by_one = sum(least_ms(problem, operator) for operator in merge)
        saved = _Candidate(
            merge, area - min(width * time for width, time in times.items()), one_by_one - min(times.values())
        )
        if max(saved.area_ms, saved.time_ms) > 0:
            candidates.append(saved)
    return sorted(candidates, key=lambda candidate: (-candidate.area_ms, -candidate.time_ms))


def _disjoint(merges: Iterable[frozenset[int]]) -> frozenset[frozenset[int]]:
    """Merges in order, without those that share operators with one before."""
    taken: set[int] = set()
    chosen = set()
    for merge in merges:
        if taken.isdisjoint(merge):
            chosen.add(merge)
            taken |= merge
    return frozenset(chosen)
