"""HIOS-LP: longest-path operator mapping onto devices (Algorithm 1 of HIOS), then grouping (Algorithm 2)."""

from __future__ import annotations

from hios.problem import Problem, positions, priority_order
from hios.schedule import StagedPlan
from hios.schedulers.parallelize import WINDOW, parallelize
from hios.schedulers.registry import register

_PAPER = "HIOS (Kundu and Shu), Algorithm 1"


@register(
    "hios-lp",
    paper=f"{_PAPER} with Algorithm 2",
    summary="maps longest paths onto devices, then groups neighbours on each device within a window",
    several_devices=True,
    parameters=(WINDOW,),
)
def hios_lp(problem: Problem, devices: int, *, window: int = 2) -> StagedPlan:
    """Algorithm 1 in full: Lines 1-16 are ``map_longest_paths``, Line 17 is ``parallelize``.

    The paper states O(|V| |E| (M |V|^2 + w^2 |E|^2)) for both together.
    """
    return parallelize(problem, map_longest_paths(problem, devices), window)


@register(
    "hios-lp-inter",
    paper=f"{_PAPER}, Lines 1-16",
    summary="maps longest paths onto devices one after another; no grouping on a device",
    several_devices=True,
)
def hios_lp_inter(problem: Problem, devices: int) -> StagedPlan:
    """Algorithm 1 without Line 17; see ``map_longest_paths``."""
    return map_longest_paths(problem, devices)


def map_longest_paths(problem: Problem, devices: int) -> StagedPlan:
    """Inter-GPU operator parallelisation (HIOS section IV-A).

    While operators are unmapped, the longest valid path is mapped as a whole onto the device that gives the
    mapped operators the least latency; ties go to the lowest device.

    Choices where the paper is silent:

    - Line 12: "the earliest available start time on its GPU" is after the operators placed there before; idle
      gaps between them are not filled.
    - Among paths of equal length the one whose first operator, and then each next operator, comes first in
      topological order; a path goes on rather than ends. Equal priorities are ordered topologically.
    - Devices that hold no operator yet are alike, so only the first of them is tried.

    O(P (M |V| + M |E|)) for P paths, at most |V|; the paper bounds the search for a path alone by |V|^2 |E|.
    """
    order = priority_order(problem)
    timetable = _Timetable(problem, order, devices)
    unmapped = [True] * len(problem)
    while path := _longest_valid_path(problem, unmapped):
        for operator in path:
            unmapped[operator] = False
        timetable.map_path(path)
    stages: list[list[tuple[tuple[int, ...], ...]]] = [[] for _ in range(devices)]
    for operator in order:
        stages[timetable.device[operator]].append(((operator,),))
    return StagedPlan(tuple(tuple(row) for row in stages))


def _longest_valid_path(problem: Problem, unmapped: list[bool]) -> list[int]:
    """Line 5: the longest path of unmapped operators whose inner operators have no edge to a mapped one.

    The length counts operators and transfers, with the edge from a mapped operator into the first operator and
    the edge from the last operator into a mapped one (start and end edges e2 and e6 in the example of Fig. 4).
    Empty when every operator is mapped. O(|V| + |E|).
    """
    # below[v]: length from v to the end of the best valid path that enters v; following[v]: its next operator.
    below = [0.0] * len(problem)
    following = [-1] * len(problem)
    best, first = -1.0, -1
    for operator in reversed(problem.order):
        if not unmapped[operator]:
            continue
        into = 0.0
        touched = False
        for predecessor, transfer in problem.predecessors[operator]:
            if not unmapped[predecessor]:
                touched = True
                into = max(into, transfer)
        last = 0.0
        onward, choice = -1.0, -1
        for successor, transfer in problem.successors[operator]:
            if not unmapped[successor]:
                touched = True
                last = max(last, transfer)
            elif transfer + below[successor] > onward:
                onward, choice = transfer + below[successor], successor
        time = problem.time[operator]
        # As the first operator of a path it may be touched; as an inner one it may not.
        longest, following_first = (onward, choice) if onward >= last else (last, -1)
        if touched:
            below[operator], following[operator] = time + last, -1
        else:
            below[operator], following[operator] = time + longest, following_first
        if into + time + longest >= best:
            best, first, after_first = into + time + longest, operator, following_first
    if first < 0:
        return []
    path = [first]
    operator = after_first
    while operator >= 0:
        path.append(operator)
        operator = following[operator]
    return path


class _Timetable:
    """Lines 10-12: mapped operators at their earliest start, in descending order of priority."""

    def __init__(self, problem: Problem, order: list[int], devices: int) -> None:
        self._problem = problem
        self._place = positions(order)
        self._mapped: list[int] = []  # by descending priority
        self._devices = devices
        self._used = 0
        self.device = [-1] * len(problem)

    def map_path(self, path: list[int]) -> None:
        """Lines 6-16: try every device for the path and keep the best."""
        self._mapped = sorted([*self._mapped, *path], key=self._place.__getitem__)
        best, chosen = float("inf"), 0
        for device in range(min(self._used + 1, self._devices)):
            for operator in path:
                self.device[operator] = device
            latency = self._latency()
            if latency < best:
                best, chosen = latency, device
        for operator in path:
            self.device[operator] = chosen
        self._used = max(self._used, chosen + 1)

    def _latency(self) -> float:
        free = [0.0] * self._devices
        finish: dict[int, float] = {}
        for operator in self._mapped:
            device = self.device[operator]
            start = free[device]
            for predecessor, transfer in self._problem.predecessors[operator]:
                if predecessor in finish:
                    arrival = finish[predecessor] + (0.0 if self.device[predecessor] == device else transfer)
                    start = max(start, arrival)
            finish[operator] = free[device] = start + self._problem.time[operator]
        return max(free)
