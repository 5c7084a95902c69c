"""A lower bound from heads, tails and the work between them: slower than `hios.lower_bound_ms`, and never below it."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

from hios.bound import Least, least_of_all, lower_bound_ms, stage_scales, work_ms
from hios.problem import Problem

#: Beyond this number of operators the bound takes too long, O(n^2) steps on sets of operators; the simple one is given.
MOST_OPERATORS = 2000

_Neighbors = Sequence[Sequence[tuple[int, float]]]


def interval_bound_ms(problem: Problem, devices: int) -> float:
    """A bound on the latency of every schedule, staged or of streams, in milliseconds.

    Notation: w = t*(a+(1-a)*u) is the least device time of an operator (see `hios.lower_bound_ms`), M the number
    of devices. The start of an operator inside its group is the start of its stage plus the times of the operators
    before it in the group. A head r(v) is a bound on the start of v so understood, a tail q(v) one on the latency
    less its finish; tails are the heads of the graph with its edges reversed, since the cost model reads the same
    backwards in time.

    - Path: r(v) >= r(u) + t(u) for a predecessor u.
    - Work: r(v) >= r + W/M, where W is the work of the ancestors of v with heads of at least r (Fernandez and
      Bussell, IEEE Trans. Computers 1973, for stages).
    - Transfers: some predecessors of v run on its device. The others have r(u) + t(u) + t(u,v) <= r(v). The work of
      those on it with heads of at least r fits between r and r(v). The best choice keeps the predecessors with
      the largest r(u) + t(u) + t(u,v) on the device, so only these choices are tried.
    - Latency >= r + q + W/M, where W is the work of the operators with heads of at least r and tails of at least q.

    An operator that may take k devices at once has the least t(v, k) as t, the least k*t(v, k) as its work on all
    devices, and the least t(v, k) as that on one of them; a value is on the first of its devices. Merges are further
    choices of their operators, which all start and end with the merge: each has the time of the merge and its share of
    the work, all of it or on one device (`hios.bound.merge_choices`).

    All but the path count work from a moment r inside a stage on. A stage that began s earlier had, in every group
    with an operator counted, operators not counted of at least s milliseconds. With k such groups the stage lasts
    at least s + W if k = 1, and at least a*k*s + W otherwise, which is as much if a >= 1/2. Hence the bound holds
    for a >= 1/2, and where grouping gains nothing; elsewhere, and with measured stages that beat the model, the
    simple bound is given.
    """
    simple = lower_bound_ms(problem, devices)
    problem = problem.on(devices)
    if len(problem) > MOST_OPERATORS or not counts_work(problem):
        return simple
    least = least_of_all(problem)
    heads = _heads(least, problem.order, problem.predecessors, devices)
    tails = _heads(least, problem.order[::-1], problem.successors, devices)
    best = max(simple, *(head + time + tail for head, time, tail in zip(heads, least.time, tails, strict=True)))
    by_tail = sorted(range(len(problem)), key=lambda operator: -tails[operator])
    for head in set(heads):
        total = 0.0
        for operator in by_tail:
            if heads[operator] >= head:
                total += least.work[operator]
                best = max(best, head + tails[operator] + total / devices)
    # Sums of many terms: stay on the safe side of rounding.
    return max(simple, best * (1 - 1e-12))


def counts_work(problem: Problem) -> bool:
    """Whether work counts from any moment on, see `interval_bound_ms`."""
    if problem.alpha is None or any(stage_scales(problem)):
        return False
    return problem.alpha >= 0.5 or all(work_ms(problem, v) == time for v, time in enumerate(problem.time))


def _heads(least: Least, order: Iterable[int], predecessors: _Neighbors, devices: int) -> list[float]:
    time, work, _ = least
    head = [0.0] * len(time)
    ancestors = [0] * len(time)  # bit masks
    done: list[tuple[float, int]] = []  # (-head, operator), ascending
    for operator in order:
        earliest = 0.0
        for predecessor, _ in predecessors[operator]:
            ancestors[operator] |= ancestors[predecessor] | 1 << predecessor
            earliest = max(earliest, head[predecessor] + time[predecessor])
        if devices > 1:
            earliest = max(earliest, _after_transfers(least, predecessors[operator], head))
        total = 0.0
        for negative, ancestor in done:
            if ancestors[operator] >> ancestor & 1:
                total += work[ancestor]
                earliest = max(earliest, total / devices - negative)
        head[operator] = earliest
        insort(done, (-earliest, operator))
    return head


def _after_transfers(least: Least, predecessors: Sequence[tuple[int, float]], head: Sequence[float]) -> float:
    """Earliest start over all choices of the predecessors that share the device."""
    arrivals = sorted(((head[u] + least.time[u] + transfer, u) for u, transfer in predecessors), reverse=True)
    arrivals.append((0.0, -1))
    best = float("inf")
    here: list[tuple[float, int]] = []  # (head, predecessor) on the device, ascending
    for arrival, predecessor in arrivals:
        ready = 0.0
        for begin, other in here:
            ready = max(ready, begin) + least.work_on_one[other]
        best = min(best, max(arrival, ready))
        if ready >= best:
            break
        insort(here, (head[predecessor], predecessor))
    return best
