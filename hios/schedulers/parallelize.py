"""Intra-device operator parallelization with a sliding window (Algorithm 2 of HIOS)."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from hios.core.evaluate import staged_times
from hios.core.graph import topological_order
from hios.core.problem import Problem, positions, priority_order
from hios.core.schedule import StagedPlan
from hios.core.sums import ROUNDING
from hios.schedulers.registry import Parameter

#: The window of HIOS: at most so many neighboring operators are grouped (w, preset to 2 in the simulation).
WINDOW = Parameter("window", 2, "largest number w of operators in a stage", minimum=2)

#: Number of operators from which on compiled code propagates start times, if numba is installed: in Python, HIOS-LP
#: takes about two seconds for that many, of which compiled code saves most; loading numba takes half a second.
COMPILED_FROM = 4096

#: Operator at the other end of an edge, and the transfer on it in milliseconds.
_Arc = tuple[int, float]


def parallelize(problem: Problem, plan: StagedPlan, window: int) -> StagedPlan:
    """Group neighboring independent operators of a device if that lowers the latency.

    The plan has one operator a stage; ``window`` is w, the largest number of operators in a stage, at least 2.

    Operators start windows in descending order of priority; one that a stage holds already is skipped, as in
    the example of Fig. 5. A larger window may take in what a smaller one from the same operator grouped, so the best
    of the windows from an operator stays.

    Deviation: Line 11 as printed keeps every acyclic grouping in G, improved or not, so that later candidates hold
    groups that raised the latency. As the text says that the schedule changes only "if the schedule candidate with the
    lowest inference latency performs better", a grouping is kept here, in G as in Q, only with a strict gain. The
    cycle check runs on the graph of stages
    with the order on each device as edges, since those dependencies are implicit in the schedule (section I).

    The time of a stage is requested only if it matters: a longest path leads through the window, there is no cycle, and
    the paths to and from the stage alone are shorter than the latency.

    At most O(w |V| (|V| + |E|)), if every window changes the times of the whole plan; most windows are rejected by
    looking only at their neighbors.

    Raises:
        ScheduleError: the plan deadlocks; the message names operators.
    """
    staged_times(problem, plan)  # refuses a plan that cannot run
    stages = (CompiledStageGraph if pays_to_compile(problem) else StageGraph)(problem, plan)
    for operator in priority_order(problem):
        if stages.is_single(operator):
            for size in range(2, window + 1):
                if not stages.try_window(operator, size):
                    break
        stages.pass_by(operator)
    return stages.plan()


def pays_to_compile(problem: Problem) -> bool:
    """Whether HIOS takes longer on a problem than loading what compiles its loops (``propagation_kernel``)."""
    return len(problem) >= COMPILED_FROM and importlib.util.find_spec("numba") is not None


@dataclass(frozen=True, slots=True)
class Window:
    """Neighboring stages of a device, as the single stage that they may become."""

    stages: list[int]
    members: tuple[int, ...]
    arcs_in: list[_Arc]
    arcs_out: list[_Arc]
    ready: float  # earliest start, milliseconds
    tail: float  # longest path from its end to the end of the plan, milliseconds


class StageGraph:
    """The plan as a graph of stages, with the longest paths to and from each.

    Edges lead along the rows of devices, and between devices with their transfers; an edge within a row says no more
    than the row. A stage goes by the number of its first operator. Finish, reach and place are kept for all its
    operators, so that edges need not change when stages merge. The number after the last operator stands for what
    is before and after every row.

    Finish times are those of the whole plan, to the last bit. ``_reach``, the longest path from a stage's start to
    the end of the plan, is kept up for what can still be in a window.
    """

    def __init__(self, problem: Problem, plan: StagedPlan) -> None:
        count = len(problem)
        self._problem = problem
        self._members: list[tuple[int, ...]] = [(operator,) for operator in range(count)]
        self._time = list(problem.time)
        self._before = [count] * count
        self._after = [count] * count
        rows = [[operator for ((operator,),) in row] for row in plan.devices]
        self._ends = [(row[0], row[-1]) if row else (count, count) for row in rows]
        home = [-1] * count
        for device, row in enumerate(rows):
            for operator in row:
                home[operator] = device
            for before, after in pairwise(row):
                self._before[after], self._after[before] = before, after
        self._arcs_in, self._arcs_out = (
            [[arc for arc in arcs if home[arc[0]] != home[operator]] for operator, arcs in enumerate(neighbors)]
            for neighbors in (problem.predecessors, problem.successors)
        )
        # Stages in a topological order, -1 where a merger left a place free; places before _first are passed by.
        self._order = self._sorted()
        self._place = [*positions(self._order), count]
        self._passed = [False] * count
        self._first = 0
        self._finish = [0.0] * (count + 1)
        self._reach = [0.0] * (count + 1)
        for stage in self._order:
            self._finish[stage] = self._ready(stage, self._arcs_in[stage]) + self._time[stage]
        for stage in reversed(self._order):
            self._reach[stage] = self._time[stage] + self._tail(stage, self._arcs_out[stage])
        self._latency = max(self._finish)

    def _sorted(self) -> list[int]:
        """Stages in topological order of the plan, by descending priority where that is one."""
        count = len(self._problem)
        successors = [
            [*(successor for successor, _ in arcs), *([after] if after < count else [])]
            for arcs, after in zip(self._arcs_out, self._after, strict=True)
        ]
        return topological_order(successors, priority_order(self._problem))

    def _ready(self, stage: int, arcs_in: Iterable[_Arc]) -> float:
        finish = self._finish
        ready = finish[self._before[stage]]
        for predecessor, transfer in arcs_in:
            arrival = finish[predecessor] + transfer
            if arrival > ready:
                ready = arrival
        return ready

    def _tail(self, stage: int, arcs_out: Iterable[_Arc]) -> float:
        reach = self._reach
        tail = reach[self._after[stage]]
        for successor, transfer in arcs_out:
            length = transfer + reach[successor]
            if length > tail:
                tail = length
        return tail

    def plan(self) -> StagedPlan:
        """The stages in order on their devices."""
        rows = []
        for stage, _ in self._ends:
            row = []
            while stage < len(self._members):
                row.append(tuple((operator,) for operator in self._members[stage]))
                stage = self._after[stage]
            rows.append(tuple(row))
        return StagedPlan(tuple(rows))

    def is_single(self, operator: int) -> bool:
        """Whether the stage of an operator contains no other."""
        return len(self._members[self._order[self._place[operator]]]) == 1

    def pass_by(self, operator: int) -> None:
        """Record that no later window starts at this operator."""
        self._passed[operator] = True
        while self._first < len(self._order):
            stage = self._order[self._first]
            if stage >= 0 and not all(self._passed[member] for member in self._members[stage]):
                break
            self._first += 1

    def try_window(self, first: int, size: int) -> bool:
        """Lines 6-15 for one window; returns whether larger ones from the same operator can be better.

        It starts at the operator ``first``, alone or with what smaller windows grouped, and has ``size`` operators.
        """
        stages = [first]
        held = len(self._members[first])
        while held < size and (after := self._after[stages[-1]]) < len(self._members):
            stages.append(after)
            held += len(self._members[after])
        if held != size:
            return held > size
        members = tuple(operator for stage in stages for operator in self._members[stage])
        if any(arc[0] in members for operator in members for arc in self._problem.predecessors[operator]):
            return False
        # A path of this length is no gain, and one below differs from it by more than sums in another order do.
        enough = self._latency * (1 - ROUNDING / 2)
        if all(self._finish[stage] - self._time[stage] + self._reach[stage] < enough for stage in stages):
            return True  # the longest path is elsewhere
        window = self._window(stages, members)
        if window.ready + window.tail >= enough:
            return True
        below = self._below(window)
        if below is None:
            return False
        time = self._problem.stage_ms(tuple((operator,) for operator in members))
        if window.ready + time + window.tail < enough and self._shortened(window, time):
            self._merge(window, time, below)
        return True

    def _window(self, stages: list[int], members: tuple[int, ...]) -> Window:
        arcs_in = [arc for stage in stages for arc in self._arcs_in[stage]]
        arcs_out = [arc for stage in stages for arc in self._arcs_out[stage]]
        ready, tail = self._ready(stages[0], arcs_in), self._tail(stages[-1], arcs_out)
        return Window(stages, members, arcs_in, arcs_out, ready, tail)

    def _below(self, window: Window) -> set[int] | None:
        """Line 10: stages that must run after a window and stand before its last one; None if one is in it."""
        last = self._place[window.stages[-1]]
        below: set[int] = set()
        waiting = [successor for successor, _ in window.arcs_out]
        while waiting:
            place = self._place[waiting.pop()]
            if place > last:
                continue
            stage = self._order[place]
            if stage in window.stages:
                return None
            if stage not in below:
                below.add(stage)
                waiting += (self._after[stage], *(successor for successor, _ in self._arcs_out[stage]))
        return below

    def _shortened(self, window: Window, time: float) -> bool:
        """Lines 12-14: finish times with a window as one stage; as they were if the latency is no less."""
        finish = self._finish
        before = [(operator, finish[operator]) for operator in window.members]
        for operator in window.members:
            finish[operator] = window.ready + time
        self._reschedule(window, before)
        latency = max(finish[last] for _, last in self._ends)
        if latency < self._latency * (1 - ROUNDING):
            self._latency = latency
            return True
        for operator, earlier in before:
            finish[operator] = earlier
        return False

    def _reschedule(self, window: Window, before: list[tuple[int, float]]) -> None:
        """Line 12: bring finish times after a window up to date, and add the old ones to ``before``."""
        finish = self._finish
        end = len(self._order)
        pending = bytearray(end + 1)
        self._mark(pending, self._after[window.stages[-1]], window.arcs_out)
        place = pending.find(1, 0, end)
        while place >= 0:
            stage = self._order[place]
            new = self._ready(stage, self._arcs_in[stage]) + self._time[stage]
            if new != finish[stage]:
                for operator in self._members[stage]:
                    before.append((operator, finish[operator]))
                    finish[operator] = new
                self._mark(pending, self._after[stage], self._arcs_out[stage])
            place = pending.find(1, place + 1, end)

    def _mark(self, pending: bytearray, neighbor: int, arcs: Iterable[_Arc]) -> None:
        pending[self._place[neighbor]] = 1
        for other, _ in arcs:
            pending[self._place[other]] = 1

    def _merge(self, window: Window, time: float, below: set[int]) -> None:
        """Line 15: make a window a stage, whose finish times are there already."""
        merged, last = window.stages[0], window.stages[-1]
        self._after[merged] = self._after[last]
        self._members[merged] = window.members
        self._time[merged] = time
        self._arcs_in[merged], self._arcs_out[merged] = window.arcs_in, window.arcs_out
        span = slice(self._place[merged], self._place[last] + 1)
        others = [stage for stage in self._order[span] if stage >= 0 and stage not in window.stages]
        moved = [stage for stage in others if stage not in below] + [merged] + [s for s in others if s in below]
        free = span.stop - span.start - len(moved)
        for place in range(span.start, span.start + free):
            self._order[place] = -1
        for place, stage in enumerate(moved, span.start + free):
            self._order[place] = stage
            for operator in self._members[stage]:
                self._place[operator] = place
        self._extend(merged)

    def _extend(self, merged: int) -> None:
        """Bring the reach of a new stage and of those before it up to date, down to stages passed by."""
        pending = bytearray(len(self._place))
        place = self._place[merged]
        while place >= 0:
            stage = self._order[place]
            reach = self._time[stage] + self._tail(stage, self._arcs_out[stage])
            if reach != self._reach[stage] or stage == merged:
                for operator in self._members[stage]:
                    self._reach[operator] = reach
                self._mark(pending, self._before[stage], self._arcs_in[stage])
            place = pending.rfind(1, self._first, place)


class CompiledStageGraph(StageGraph):
    """`StageGraph` that finds the latency with a window as one stage by compiled code."""

    def __init__(self, problem: Problem, plan: StagedPlan) -> None:
        from hios.schedulers import propagation_kernel

        super().__init__(problem, plan)
        self._kernel = kernel = propagation_kernel
        size = len(self._time)
        self._arrays = arrays = kernel.StageArrays(
            kernel.edge_arrays(self._arcs_in),
            kernel.edge_arrays(self._arcs_out),
            kernel.floats(self._time),
            kernel.floats(self._finish),
            before=kernel.integers(self._before),
            after=kernel.integers(self._after),
            order=kernel.integers(self._order),
            place=kernel.integers(self._place),
            next=kernel.integers([-1] * size),
            ends=kernel.integers([last for _, last in self._ends]),
            pending=kernel.flags(size),
            changed=kernel.integers([0] * size),
            previous=kernel.floats([0.0] * size),
        )
        self._time, self._finish = kernel.views(arrays.time, arrays.finish)
        self._before, self._after = kernel.views(arrays.before, arrays.after)
        self._order, self._place = kernel.views(arrays.order, arrays.place)

    def _shortened(self, window: Window, time: float) -> bool:
        below = self._latency * (1 - ROUNDING)
        members, after = self._kernel.integers(window.members), self._after[window.stages[-1]]
        latency = float(self._kernel.latency_with(self._arrays, members, after, window.ready + time, below))
        if latency < below:
            self._latency = latency
            return True
        return False

    def _merge(self, window: Window, time: float, below: set[int]) -> None:
        super()._merge(window, time, below)
        for operator, following in pairwise((*window.members, -1)):
            self._arrays.next[operator] = following
