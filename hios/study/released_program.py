"""What the program that the authors of HIOS released does otherwise than the paper says, each part on its own.

The figures of HIOS's simulation come from that program (https://github.com/SHUs-Lab/HIOS, folder simulation). This is
not its code: it is ours, with a switch for each deviation (`Deviations`), so that one can see how much each explains.
Without any it is the paper: latencies are those of `hios.schedulers` and `hios.evaluate` (tests hold it to that).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

from hios.core.graph import topological_order
from hios.core.problem import Problem, positions, priority_order, reachable
from hios.schedulers.hios_lp import ValidPaths
from hios.schedulers.hios_mr import map_by_recording

#: Operator or stage at the other end of an edge, and the transfer on it in milliseconds.
_Arc = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Deviations:
    """Which of the program's deviations from the paper are in force.

    Attributes:
        order_by_number: operators run in the order of their numbers, where Line 10 of Algorithm 1 orders them by
            priority. Where the numbers are no topological order, an operator does not wait for one that comes later.
        device_clock: the result of an operator on another device is there when that device has run everything that
            was put on it so far, where the paper takes the finish of the operator's own stage.
        destination_transfers: a transfer takes p times as long as the operator that receives the value, where the
            paper takes the one that makes it.
        rounded_paths: times are rounded to whole milliseconds while the longest path is looked for.
        reused_operators: a path takes its edges out of the graph, not its operators (Line 6), so that later paths run
            through mapped operators too, and the condition of Line 5 is not checked; the first operator of a path
            does not count towards its length.
        first_predecessor: HIOS-MR looks at the first predecessor of an operator only, where Line 15 of Algorithm 3
            goes through all of them.
        early_groups: operators that are grouped run at the place of the first of them, although inputs of the others
            may be missing; transfers between two groups add up; a grouping that gains nothing is kept.
    """

    order_by_number: bool = False
    device_clock: bool = False
    destination_transfers: bool = False
    rounded_paths: bool = False
    reused_operators: bool = False
    first_predecessor: bool = False
    early_groups: bool = False

    @classmethod
    def names(cls) -> list[str]:
        """The names of all deviations."""
        return [field.name for field in fields(cls)]

    @classmethod
    def only(cls, *names: str) -> Deviations:
        """Those named, and no other."""
        return cls(**dict.fromkeys(names, True))

    @classmethod
    def without(cls, *names: str) -> Deviations:
        """All but those named."""
        return cls.only(*(name for name in cls.names() if name not in names))


PAPER = Deviations()
RELEASED = Deviations.without()


def latencies_ms(problem: Problem, devices: int, deviations: Deviations) -> dict[str, float]:
    """Latency of HIOS-LP and HIOS-MR, each without and with grouping (window 2), as the program would state it.

    Transfers of the problem are those of ``destination_transfers`` if that is among the deviations in force.

    Returns:
        Milliseconds by the names of the registry: hios-lp-inter, hios-lp, hios-mr-inter, hios-mr.
    """
    order = list(range(len(problem))) if deviations.order_by_number else priority_order(problem)
    latencies = {}
    for name, home in (
        ("hios-lp", _map_longest_paths(problem, order, devices, deviations)),
        ("hios-mr", _map_by_recording(problem, devices, deviations)),
    ):
        timed = _GroupedStages(problem, order, home, devices, deviations)
        latencies[f"{name}-inter"] = timed.latency_ms
        timed.group_neighbors()
        latencies[name] = timed.latency_ms
    return latencies


def _latency_ms(
    order: Sequence[int],
    time: Sequence[float],
    arcs_in: Sequence[Iterable[_Arc]],
    home: Sequence[int],
    devices: int,
    deviations: Deviations,
) -> float:
    """Last finish of what is mapped, run in an order on the devices of ``home`` (-1: not mapped)."""
    clock = [0.0] * devices
    finish = [0.0] * len(time)
    shared = deviations.device_clock
    for item in order:
        device = home[item]
        if device < 0:
            continue
        start = clock[device]
        for source, transfer in arcs_in[item]:
            other = home[source]
            if other >= 0 and other != device:
                arrival = (clock[other] if shared else finish[source]) + transfer
                if arrival > start:
                    start = arrival
        clock[device] = finish[item] = start + time[item]
    return max(clock)


def _map_longest_paths(problem: Problem, order: Sequence[int], devices: int, deviations: Deviations) -> list[int]:
    """Algorithm 1, Lines 1-16: the device of every operator."""
    home = [-1] * len(problem)
    for path in _paths(problem, deviations):
        if -1 not in home:
            break  # paths that are left have mapped operators alone
        unmapped = [operator for operator in path if home[operator] < 0]
        tried = []
        for device in range(devices if unmapped else 0):
            for operator in unmapped:
                home[operator] = device
            tried.append(_latency_ms(order, problem.time, problem.predecessors, home, devices, deviations))
        for operator in unmapped:
            home[operator] = tried.index(min(tried))
    return home


def _paths(problem: Problem, deviations: Deviations) -> Iterator[list[int]]:
    """Longest paths, one after another, until all operators lie on one."""
    seen = _rounded(problem) if deviations.rounded_paths else problem
    if deviations.reused_operators:
        yield from _paths_of_edges(seen)
        return
    paths = ValidPaths(seen)
    while path := paths.longest():
        paths.remove(path)
        yield path


def _rounded(problem: Problem) -> Problem:
    """The problem with times and transfers in whole milliseconds."""
    rounded = copy.copy(problem)
    rounded.time = [float(round(time)) for time in problem.time]
    rounded.predecessors = [[(other, float(round(ms))) for other, ms in arcs] for arcs in problem.predecessors]
    rounded.successors = [[(other, float(round(ms))) for other, ms in arcs] for arcs in problem.successors]
    return rounded


def _paths_of_edges(problem: Problem) -> Iterator[list[int]]:
    """Longest paths over edges that no path before has; the time of the first operator is not part of the length."""
    left = [dict(arcs) for arcs in problem.successors]
    while any(left):
        length = [0.0] * len(problem)
        before = [-1] * len(problem)
        for operator in problem.order:
            for successor, transfer in left[operator].items():
                longer = length[operator] + transfer + problem.time[successor]
                if before[successor] < 0 or longer > length[successor]:
                    length[successor], before[successor] = longer, operator
        path = [max((operator for operator in problem.order if before[operator] >= 0), key=length.__getitem__)]
        while before[path[-1]] >= 0:
            path.append(before[path[-1]])
        path.reverse()
        for source, target in pairwise(path):
            del left[source][target]
        yield path


def _map_by_recording(problem: Problem, devices: int, deviations: Deviations) -> list[int]:
    """Algorithm 3, Lines 1-26: the device of every operator."""
    seen = copy.copy(problem)
    if deviations.first_predecessor:
        # Algorithm 3 takes priorities from successors, and these stay.
        seen.predecessors = [arcs[:1] for arcs in problem.predecessors]
    home = [-1] * len(problem)
    for device, row in enumerate(map_by_recording(seen, devices).devices):
        for ((operator,),) in row:
            home[operator] = device
    return home


class _GroupedStages:
    """Operators on devices, of which neighbors become stages (Algorithm 2 with a window of two).

    A stage goes by its first operator in the order.
    """

    def __init__(
        self, problem: Problem, order: Sequence[int], home: Sequence[int], devices: int, deviations: Deviations
    ) -> None:
        self._problem, self._order, self._home = problem, order, home
        self._devices, self._deviations = devices, deviations
        self._place = positions(order)
        self._stage = list(range(len(problem)))
        self._time = list(problem.time)
        self._members = [[operator] for operator in self._stage]
        #: The stages that each stage waits for, with their transfers.
        self._arcs = [self._arcs_into(members, self._stage) for members in self._members]
        latency = self._evaluated(self._stage, self._time, self._arcs)
        assert latency is not None  # noqa: S101 - single operators make no cycle
        self.latency_ms = latency

    def group_neighbors(self) -> None:
        """Group each operator with the one after it on its device where that is no longer, or shorter."""
        below = reachable(self._problem.order[::-1], self._problem.successors)
        rows = [
            [operator for operator in self._order if self._home[operator] == device] for device in range(self._devices)
        ]
        following = {first: second for row in rows for first, second in pairwise(row)}
        grouped: set[int] = set()
        for first in self._order:
            second = following.get(first)
            if second is None or first in grouped or second in grouped:
                continue
            if not below[first] >> second & 1 and not below[second] >> first & 1 and self._try(first, second):
                grouped |= {first, second}

    def _try(self, first: int, second: int) -> bool:
        stage, time, arcs = list(self._stage), list(self._time), list(self._arcs)
        stage[second] = first
        time[first], time[second] = self._problem.stage_ms(((first,), (second,))), 0.0
        both = sorted((first, second))
        arcs[second] = {}
        for item in {first, *(stage[operator] for operator, _ in self._problem.successors[second])}:
            arcs[item] = self._arcs_into(both if item == first else self._members[item], stage)
        latency = self._evaluated(stage, time, arcs)
        early = self._deviations.early_groups
        if latency is None or latency > self.latency_ms or (latency == self.latency_ms and not early):
            return False
        if early and (self._waits(first, second) or self._waits(second, first)):
            return False
        self._stage, self._time, self._arcs, self.latency_ms = stage, time, arcs, latency
        self._members[first] = both
        return True

    def _arcs_into(self, members: Sequence[int], stage: Sequence[int]) -> dict[int, float]:
        into: dict[int, float] = {}
        for operator in members:
            for source, transfer in self._problem.predecessors[operator]:
                known = into.get(stage[source], 0.0)
                added = known + transfer if self._deviations.early_groups else max(known, transfer)
                into[stage[source]] = added
        return into

    def _waits(self, last: int, first: int) -> bool:
        """Whether a stage waits for another one, through others too."""
        reached = {last}
        left = [last]
        while left and first not in reached:
            new = self._arcs[left.pop()].keys() - reached
            reached |= new
            left += new
        return first in reached

    def _evaluated(
        self, stage: Sequence[int], time: Sequence[float], arcs: Sequence[Mapping[int, float]]
    ) -> float | None:
        """Latency with these stages; None where they wait for each other, unless they run as early as they can."""
        order: list[int] | None = list(dict.fromkeys(stage[operator] for operator in self._order))
        if not self._deviations.early_groups:
            order = self._stage_order(stage, arcs)
        if order is None:
            return None
        arcs_in = [into.items() for into in arcs]
        return _latency_ms(order, time, arcs_in, self._home, self._devices, self._deviations)

    def _stage_order(self, stage: Sequence[int], arcs: Sequence[Mapping[int, float]]) -> list[int] | None:
        """Stages in the order in which they run; None where there is a cycle."""
        # Nobody waits for what the order puts later; where the order is topological there is none of that.
        last = {stage[operator]: self._place[operator] for operator in self._order}
        waits = {item: {other for other in arcs[item] if self._place[other] < last[item]} for item in last}
        for device in range(self._devices):
            for one, other in pairwise([item for item in last if self._home[item] == device]):
                waits[other].add(one)
        after: list[list[int]] = [[] for _ in stage]
        for item, others in waits.items():
            for other in others:
                after[other].append(item)
        in_order = [item for item in topological_order(after, self._order) if item in waits]
        return in_order if len(in_order) == len(waits) else None
