"""hios-wide: list scheduling in which an operator may take several devices at once. Our own algorithm."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hios.core.bounds import least_ms, least_work_ms
from hios.core.contraction import Contraction
from hios.core.problem import Problem, priority_order
from hios.core.schedule import StreamPlan
from hios.core.sums import ROUNDING, add_up
from hios.schedulers.deadline import check_deadline
from hios.schedulers.registry import register

#: Weights of the area term that are tried; chosen by ``benchmarks/wide_operators.py variants``.
WEIGHTS = (2.0, 4.0, 8.0, 16.0)
#: In place of a weight: numbers of devices by the allocation of MCPA.
_MCPA = -1.0

#: Merges that are tried one by one.
MOST_TRIED = 100

#: The first and the last moment at which an operator could start in an idle gap of a device.
_Gap = tuple[float, float]


@dataclass(frozen=True, slots=True)
class WideList:
    """A list schedule with operators on several devices, with one stream per device.

    ``order`` has the operators by start, ``devices`` those of each by number, first the one that keeps its value.
    """

    latency_ms: float
    order: tuple[int, ...]
    devices: tuple[tuple[int, ...], ...]

    @property
    def widths(self) -> list[int]:
        """Number of devices of every operator."""
        return [len(held) for held in self.devices]

    def plan(self, devices: int) -> StreamPlan:
        """The plan on a number of devices."""
        rows: list[list[int]] = [[] for _ in range(devices)]
        for operator in self.order:
            for device in self.devices[operator]:
                rows[device].append(operator)
        wide = {operator: held for operator, held in enumerate(self.devices) if len(held) > 1}
        return StreamPlan(tuple((tuple(row),) for row in rows), self.order, wide)


@register(
    "hios-wide",
    paper="hios; moldable tasks: CPA (Radulescu and van Gemund, ICPP 2001), MHEFT (Casanova et al., Euro-Par 2004)",
    summary="operators by upward rank, each on several devices if that pays: earliest finish plus a share of the area",
    several_devices=True,
)
def hios_wide(problem: Problem, devices: int) -> StreamPlan:
    """List scheduling over sets of devices, by earliest finish with an area term.

    Operators in descending order of upward rank are placed one by one, idle gaps included. For every number of devices
    k that its costs allow, an operator could start when its inputs have arrived on one device and k - 1 others are
    free as well; it takes the k with the least finish + weight*k*t(v, k)/M, the second term being its share of the
    area bound. The other devices are those with the shortest idle time before.

    From the literature on moldable tasks: choosing the number of processors together with the processors is MHEFT,
    which is weight 0 and gives the first operators too many; the area term is what Turek, Wolf and Yu (SPAA 1992) and
    Ludwig and Tiwari (SODA 1994) weigh against the longest task. Deciding on the numbers first, by the critical path
    and the average area, is CPA; of its variants MCPA is best here (`hios.schedulers.hios_wide`). None is best on all
    graphs: weights are if transfers are expensive, MCPA if they are cheap. So it makes one pass with every operator on
    one device, one with the numbers of MCPA, one for each of `WEIGHTS`, and one more for the best weight with upward
    ranks of the times on the devices that it chose; the best of these is kept. ``docs/algorithms.md`` compares them.

    Convolutions that read one value may run merged into one (IOS): if their merge was measured, a greedy search
    (`choose_merges`) schedules the problem with merges as single operators, in passes like the best one,
    and keeps a merge that makes the latency shorter. So the result is never worse than without merges.

    Without ``wide_ms`` there is one pass, which is HEFT on equal devices. O(passes |V| W M (|E|/|V| + |V|)), W numbers
    of devices; a pass for every merge that saves time.
    """
    best, kind = best_list(problem, devices)
    contraction = None
    if problem.has_widths and (problem.measured_merges or problem.merge_wide_ms):
        contraction = choose_merges(problem, devices, best.latency_ms, kind)
    if contraction is None:
        return best.plan(devices)
    return contraction.expanded(best_list(contraction.problem, devices)[0].plan(devices))


def best_list(problem: Problem, devices: int) -> tuple[WideList, float]:
    """The best list schedule without merges, and the kind of the pass that found it: its weight, or `_MCPA`."""
    narrow = _one_pass(problem, devices, math.inf)
    if not problem.wide_ms:
        return narrow, math.inf
    allocated = _one_pass(problem, devices, _MCPA)
    weighed = [(_one_pass(problem, devices, weight), weight) for weight in WEIGHTS]
    first, weight = min(weighed, key=lambda each: each[0].latency_ms)
    again = list_schedule(problem, devices, weight, first.widths)
    passes = ((narrow, math.inf), (allocated, _MCPA), (first, weight), (again, weight))
    return min(passes, key=lambda each: each[0].latency_ms)


def _one_pass(problem: Problem, devices: int, kind: float) -> WideList:
    if kind == _MCPA:
        return list_schedule(problem, devices, 0.0, cpa_widths(problem, devices, per_level=True), fixed=True)
    return list_schedule(problem, devices, kind, [1] * len(problem))


def list_schedule(
    problem: Problem, devices: int, weight: float, widths: Sequence[int], *, fixed: bool = False
) -> WideList:
    """One pass of list scheduling; the problem has the times on ``devices`` (``Problem.on``).

    An operator takes the k devices with the least finish + weight*k*t(v, k)/M, one where the weight is infinite, or if
    ``fixed``, its number of ``widths``. Upward ranks are worked out with the times on ``widths``.
    """
    order = priority_order(problem, [problem.time_on(operator, width) for operator, width in enumerate(widths)])
    table = _Timetable(problem, devices)
    for operator in order:
        check_deadline()
        if fixed:
            options = {widths[operator]: problem.time_on(operator, widths[operator])}
        elif weight == math.inf:
            options = {1: problem.time[operator]}
        else:
            options = {1: problem.time[operator], **problem.wide_ms.get(operator, {})}
        table.place(operator, options, weight)
    # Operators of 0 ms go before those that start with them; inputs before their readers.
    placed = sorted(order, key=lambda operator: (table.start[operator], table.finish[operator]))
    return WideList(max(table.finish), tuple(placed), tuple(table.held))


class _Timetable:
    """Operators placed one by one on sets of devices, idle gaps included; times in milliseconds."""

    def __init__(self, problem: Problem, devices: int) -> None:
        self._problem = problem
        self._rows: list[list[tuple[float, float]]] = [[] for _ in range(devices)]
        self.start = [0.0] * len(problem)
        self.finish = [0.0] * len(problem)
        self.held: list[tuple[int, ...]] = [()] * len(problem)

    def place(self, operator: int, options: dict[int, float], weight: float) -> None:
        """Place an operator, whose predecessors are placed, on one of the numbers of devices with their times."""
        arrivals = self._arrivals(operator)
        soonest = min(arrivals)
        best: tuple[float, float] | None = None
        for width, time in options.items():
            gaps = [_gaps(row, soonest, time) for row in self._rows]
            start, device = _earliest(gaps, arrivals, width)
            area = weight * width * time / len(self._rows) if len(options) > 1 else 0.0
            if best is None or (start + time + area, start + time) < best:
                best = (start + time + area, start + time)
                self.start[operator], self.finish[operator] = start, start + time
                self.held[operator] = self._with_others(gaps, device, start, width)
        for device in self.held[operator]:
            insort(self._rows[device], (self.start[operator], self.finish[operator]))

    def _arrivals(self, operator: int) -> list[float]:
        """When the inputs of an operator are on each device."""
        arrivals = [0.0] * len(self._rows)
        for predecessor, transfer in self._problem.predecessors[operator]:
            home, done = self.held[predecessor][0], self.finish[predecessor]
            for device in range(len(arrivals)):
                arrivals[device] = max(arrivals[device], done if device == home else done + transfer)
        return arrivals

    def _with_others(self, gaps: Sequence[Sequence[_Gap]], first: int, start: float, width: int) -> tuple[int, ...]:
        """A device with others that are idle then, preferring those idle for the shortest time."""
        if width == 1:
            return (first,)
        idle = []
        for device, row in enumerate(self._rows):
            if device != first and _fits(gaps[device], start):
                before = bisect_left(row, (start, -1.0))
                idle.append((start - (row[before - 1][1] if before else 0.0), device))
        return (first, *(device for _, device in sorted(idle)[: width - 1]))


def _gaps(row: Sequence[tuple[float, float]], soonest: float, time: float) -> list[_Gap]:
    """The idle gaps of a device after a given time that are long enough, in order."""
    first = bisect_left(row, (soonest, -1.0))
    free = max(row[first - 1][1] if first else 0.0, soonest)
    gaps = []
    for start, finish in row[first:]:
        if free + time <= start:
            gaps.append((free, start - time))
        free = max(free, finish)
    return [*gaps, (free, math.inf)]


def _fits(gaps: Sequence[_Gap], moment: float) -> bool:
    return any(begin <= moment <= end for begin, end in gaps)


def _earliest(gaps: Sequence[Sequence[_Gap]], arrivals: Sequence[float], width: int) -> tuple[float, int]:
    """The earliest start on a number of devices, and the first of them: the lowest of equal ones."""
    best, chosen = math.inf, 0
    for device, own in enumerate(gaps):
        for begin, end in own:
            start = max(begin, arrivals[device])
            if start >= best:
                break
            if start <= end:
                if width > 1:
                    start = _together(gaps, device, (start, end), width - 1)
                if start < best:
                    best, chosen = start, device
                if start < math.inf:
                    break
    return best, chosen


def _together(gaps: Sequence[Sequence[_Gap]], first: int, gap: _Gap, others: int) -> float:
    """The earliest time within a gap of a device at which enough other devices are idle; infinite if none."""
    rest = [row for device, row in enumerate(gaps) if device != first]
    moments = {gap[0], *(begin for row in rest for begin, _ in row if gap[0] < begin <= gap[1])}
    for moment in sorted(moments):
        if sum(_fits(row, moment) for row in rest) >= others:
            return moment
    return math.inf


def cpa_widths(problem: Problem, devices: int, *, per_level: bool = False) -> list[int]:
    """Numbers of devices by operator: operators of the critical path widen until it is no longer than the area.

    CPA (Radulescu and van Gemund, ICPP 2001, Fig. 2): while the critical path without transfers is longer than the sum
    of k*t(v, k) over M, the operator on it whose t(v, k)/k falls most takes the next of its numbers of devices. With
    ``per_level``, as in MCPA (Bansal, Kumar and Singh, Parallel Computing 2006), operators of one depth take no more
    than M devices together, so that they can run concurrently. O(|V| W (|V| + |E|)), W numbers of devices.

    The problem has the times on ``devices`` (``Problem.on``).
    """
    widths, times = [1] * len(problem), list(problem.time)
    level = [0] * len(problem)
    for operator in problem.order:
        level[operator] = max((level[u] + 1 for u, _ in problem.predecessors[operator]), default=0)
    taken = [level.count(depth) for depth in range(max(level) + 1)]
    while True:
        check_deadline()
        path, length = _critical_path(problem, times)
        if length <= add_up(width * time for width, time in zip(widths, times, strict=True)) / devices:
            return widths
        best: tuple[float, int, int] | None = None
        for operator in path:
            wider = next((width for width in problem.wide_ms.get(operator, ()) if width > widths[operator]), 0)
            crowded = per_level and taken[level[operator]] - widths[operator] + wider > devices
            if not wider or crowded or problem.time_on(operator, wider) >= times[operator]:
                continue
            gain = times[operator] / widths[operator] - problem.time_on(operator, wider) / wider
            if best is None or gain > best[0]:
                best = (gain, operator, wider)
        if best is None:
            return widths
        _, operator, wider = best
        taken[level[operator]] += wider - widths[operator]
        widths[operator], times[operator] = wider, problem.time_on(operator, wider)


def _critical_path(problem: Problem, times: list[float]) -> tuple[list[int], float]:
    """A longest path without transfers, and its length in milliseconds."""
    below = [0.0] * len(problem)
    for operator in reversed(problem.order):
        after = max((below[successor] for successor, _ in problem.successors[operator]), default=0.0)
        below[operator] = times[operator] + after
    path = [max(problem.order, key=below.__getitem__)]
    while following := [successor for successor, _ in problem.successors[path[-1]]]:
        path.append(max(following, key=below.__getitem__))
    return path, below[path[0]]


def choose_merges(problem: Problem, devices: int, latency_ms: float, kind: float) -> Contraction | None:
    """The merges with the least latency that a greedy search finds; None if all operators are best apart.

    The search first takes all merges at once that save device time, the largest savings first. Then, from the better of
    that and no merges, it tries each merge in turn, in one pass like the best one, or in one of each kind as long as
    that gives every operator one device: a chosen one is removed, any other one is added in place of those that share
    operators with it. Changes that shorten the latency are kept. Only measured merges are considered. The problem has
    the times of its devices (``Problem.on``); ``latency_ms`` is that of the best schedule without merges, and ``kind``
    that of its pass.
    """
    candidates = _candidates(problem)
    chosen = _disjoint(merge for merge, area_ms in candidates if area_ms > 0)
    contraction = Contraction(problem, chosen) if chosen else None
    if contraction is not None:
        together, its_kind = best_list(contraction.problem, devices)
        if together.latency_ms < latency_ms * (1 - ROUNDING):
            latency_ms, kind = together.latency_ms, its_kind
        else:
            contraction, chosen = None, frozenset()
    for merge, _ in candidates[:MOST_TRIED]:
        apart = frozenset(other for other in chosen if other.isdisjoint(merge))
        trial = apart if merge in chosen else apart | {merge}
        tried = Contraction(problem, trial) if trial else None
        own = problem if tried is None else tried.problem
        # A pass with one device an operator says nothing of merges that take several.
        kinds = (math.inf, *WEIGHTS) if kind == math.inf and own.wide_ms else (kind,)
        passes = [(_one_pass(own, devices, each).latency_ms, each) for each in kinds]
        trial_ms, trial_kind = min(passes)
        if trial_ms < latency_ms * (1 - ROUNDING):
            latency_ms, kind, chosen, contraction = trial_ms, trial_kind, trial, tried
    return contraction


def _candidates(problem: Problem) -> list[tuple[frozenset[int], float]]:
    """Merges that save anything, each with the devices' time that it saves, the largest savings first."""
    saving = []
    for merge in sorted(problem.measured_merges.keys() | problem.merge_wide_ms.keys(), key=sorted):
        narrow = problem.merge_ms(merge)
        times = {1: math.inf if narrow is None else narrow, **problem.merge_wide_ms.get(merge, {})}
        area = add_up(least_work_ms(problem, operator) for operator in merge)
        one_by_one = add_up(least_ms(problem, operator) for operator in merge)
        area_ms, time_ms = area - min(width * time for width, time in times.items()), one_by_one - min(times.values())
        if max(area_ms, time_ms) > 0:
            saving.append((merge, area_ms, time_ms))
    saving.sort(key=lambda row: (-row[1], -row[2]))
    return [(merge, area_ms) for merge, area_ms, _ in saving]


def _disjoint(merges: Iterable[frozenset[int]]) -> frozenset[frozenset[int]]:
    """Merges in order, without those that share operators with one before."""
    taken: set[int] = set()
    chosen = set()
    for merge in merges:
        if taken.isdisjoint(merge):
            chosen.add(merge)
            taken |= merge
    return frozenset(chosen)
