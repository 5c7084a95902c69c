"""HIOS-LP: longest-path operator mapping onto devices (Algorithm 1 of HIOS), then grouping (Algorithm 2)."""

from __future__ import annotations

from heapq import heappop, heappush

from hios.core.problem import Problem, priority_order
from hios.core.schedule import StagedPlan
from hios.schedulers.insertion import timetable
from hios.schedulers.parallelize import WINDOW, parallelize, pays_to_compile
from hios.schedulers.path_times import CompiledTimetable, PathTimetable
from hios.schedulers.registry import Parameter, register

_PAPER = "HIOS (Kundu and Shu), Algorithm 1"

_FILL_GAPS = Parameter("fill_gaps", False, "place operators into idle gaps between operators placed before (Line 12)")


@register(
    "hios-lp",
    paper=f"{_PAPER} with Algorithm 2",
    summary="maps longest paths onto devices, then groups neighbors on each device within a window",
    several_devices=True,
    demand="slots, arithmetic and bandwidth, in t(S)",
    parameters=(WINDOW, _FILL_GAPS),
)
def hios_lp(problem: Problem, devices: int, *, window: int = 2, fill_gaps: bool = False) -> StagedPlan:
    """Algorithm 1 in full: Lines 1-16 are ``map_longest_paths``, Line 17 is ``parallelize``.

    The paper states O(|V| |E| (M |V|^2 + w^2 |E|^2)) for both together.
    """
    return parallelize(problem, map_longest_paths(problem, devices, fill_gaps=fill_gaps), window)


@register(
    "hios-lp-inter",
    paper=f"{_PAPER}, Lines 1-16",
    summary="maps longest paths onto devices one after another; no grouping on a device",
    several_devices=True,
    parameters=(_FILL_GAPS,),
)
def hios_lp_inter(problem: Problem, devices: int, *, fill_gaps: bool = False) -> StagedPlan:
    """Algorithm 1 without Line 17; see ``map_longest_paths``."""
    return map_longest_paths(problem, devices, fill_gaps=fill_gaps)


def map_longest_paths(problem: Problem, devices: int, *, fill_gaps: bool = False) -> StagedPlan:
    """Inter-GPU operator parallelization (HIOS section IV-A).

    While operators are unmapped, the longest valid path is mapped as a whole onto the device that gives the
    mapped operators the least latency; ties go to the lowest device.

    Choices where the paper is silent:

    - Line 12: "the earliest available start time on its GPU" is after the operators placed there before. With
      ``fill_gaps`` it may also be in an idle gap between them, as in HEFT, where operators then need not run in order
      of priority.
    - Among paths of equal length the one whose first operator, and then each next operator, comes first in
      topological order; a path goes on rather than ends. Equal priorities are ordered topologically.
    - Devices that hold no operator yet are alike, so only the first of them is tried.

    At most O(P M (|V| + |E|)) for P paths, at most |V|; the paper bounds the search for a path alone by |V|^2 |E|.
    Lengths of paths and start times are updated where they change, which mostly is a small part of the graph; with
    ``fill_gaps`` start times are all computed anew, in at most O(P M |V| (|V| + |E|)).

    Where numba is installed (extra ``opt``), the start times of large graphs are passed on by compiled code
    (`hios.schedulers.propagation_kernel`); schedules are the same.
    """
    order = priority_order(problem)
    paths = ValidPaths(problem)
    if fill_gaps:
        return _map_into_gaps(problem, order, paths, devices)
    mapped = (CompiledTimetable if pays_to_compile(problem) else PathTimetable)(problem, order, devices)
    while path := paths.longest():
        paths.remove(path)
        mapped.map_path(path)
    return StagedPlan(tuple(tuple(((order[place],),) for place in row) for row in mapped.rows))


def _map_into_gaps(problem: Problem, order: list[int], paths: ValidPaths, devices: int) -> StagedPlan:
    """Lines 4 to 16 with idle gaps filled in Line 12."""
    home = [-1] * len(problem)
    used = 0  # devices that hold operators are the first ones
    best = timetable(problem, order, home, devices)
    while path := paths.longest():
        paths.remove(path)
        candidates = []
        for device in range(min(used + 1, devices)):  # devices that hold no operator yet are alike
            for operator in path:
                home[operator] = device
            candidates.append(timetable(problem, order, home, devices))
        latencies = [candidate.latency_ms for candidate in candidates]
        chosen = latencies.index(min(latencies))
        best = candidates[chosen]
        for operator in path:
            home[operator] = chosen
        used = max(used, chosen + 1)
    return best.plan()


class ValidPaths:
    """Line 5: paths of unmapped operators whose inner operators have no edge to a mapped one.

    The length of a path counts operators and transfers, with the edge from a mapped operator into the first
    operator and the edge from the last operator into a mapped one (start and end edges e2 and e6 in the example
    of Fig. 4). Lengths are kept from path to path; mapping a path changes those of its neighbors and of what leads
    to them through operators without an edge to a mapped one.
    """

    def __init__(self, problem: Problem) -> None:
        count = len(problem)
        self._problem = problem
        self._place = problem.place
        self._unmapped = [True] * count
        self._touched = [False] * count  # has an edge to a mapped operator
        self._into = [0.0] * count  # longest transfer from a mapped operator
        self._out_of = [0.0] * count  # longest transfer to a mapped operator
        # Of the best valid path that starts at an operator: its length, and the operator after the first or -1.
        self._length = [-1.0] * count
        self._following = [-1] * count
        # Length from an operator to the end of the best valid path that enters it.
        self._below = [0.0] * count
        self._stale = bytearray(b"\1") * count  # by place in topological order
        self._longest: list[tuple[float, int]] = []  # (-length, place); entries of the past are passed over

    def longest(self) -> list[int]:
        """The longest valid path, from its first operator on; empty when every operator is mapped."""
        self._refresh()
        while self._longest:
            negative, place = self._longest[0]
            first = self._problem.order[place]
            if self._unmapped[first] and self._length[first] == -negative:
                path = [first]
                while (following := self._following[path[-1]]) >= 0 and (len(path) == 1 or not self._touched[path[-1]]):
                    path.append(following)
                return path
            heappop(self._longest)
        return []

    def remove(self, operators: list[int]) -> None:
        """Line 6: these operators are mapped now."""
        for operator in operators:
            self._unmapped[operator] = False
        for operator in operators:
            for predecessor, transfer in self._problem.predecessors[operator]:
                self._touched[predecessor] = True
                self._out_of[predecessor] = max(self._out_of[predecessor], transfer)
                self._stale[self._place[predecessor]] = 1
            for successor, transfer in self._problem.successors[operator]:
                self._touched[successor] = True
                self._into[successor] = max(self._into[successor], transfer)
                self._stale[self._place[successor]] = 1

    def _refresh(self) -> None:
        """Bring lengths up to date against topological order, as far as they change."""
        place = self._stale.rfind(1)
        while place >= 0:
            self._stale[place] = 0
            operator = self._problem.order[place]
            if self._unmapped[operator]:
                below = self._below[operator]
                self._measure(operator)
                if self._below[operator] != below:
                    for predecessor, _ in self._problem.predecessors[operator]:
                        self._stale[self._place[predecessor]] = 1
            place = self._stale.rfind(1, 0, place)

    def _measure(self, operator: int) -> None:
        onward, following = -1.0, -1
        for successor, transfer in self._problem.successors[operator]:
            if self._unmapped[successor] and transfer + self._below[successor] > onward:
                onward, following = transfer + self._below[successor], successor
        last = self._out_of[operator]
        if onward < last:
            onward, following = last, -1
        self._following[operator] = following
        time = self._problem.time[operator]
        # As the first operator of a path it may be touched; as an inner one it may not.
        self._below[operator] = time + (last if self._touched[operator] else onward)
        length = self._into[operator] + time + onward
        if length != self._length[operator]:
            self._length[operator] = length
            heappush(self._longest, (-length, self._place[operator]))
