"""Propagating changed start times through a large graph, compiled: for HIOS-LP and for windows.

The same loops as in `hios.schedulers.path_timetable` and `hios.schedulers.parallelize`, with sums in the same order, so
that schedules are identical to the last bit (tests check that). Mapping a path or merging a window
changes the times of a large part of the graph, so this work grows with the square of the number of operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hios.problem import Problem
from hios.schedule import StagedPlan
from hios.schedulers.opt.search_kernel.compiling import compiled, kept
from hios.schedulers.parallelize import ROUNDING as LEAST_GAIN
from hios.schedulers.parallelize import StageGraph, Window
from hios.schedulers.path_timetable import ROUNDING, PathTimetable

_Integers = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.uint8]


class _Edges(NamedTuple):
    """Edges of every operator: those of operator v are at first[v] .. first[v + 1] - 1; transfers in milliseconds."""

    first: _Integers
    other: _Integers
    transfer: _Floats


class _Mapping(NamedTuple):
    """Operators, by their place in descending order of priority, on rows of devices; see `PathTimetable`."""

    edges_in: _Edges
    edges_out: _Edges
    time: _Floats
    start: _Floats
    reach: _Floats
    device: _Integers
    before: _Integers
    after: _Integers


class _Stages(NamedTuple):
    """A plan as a graph of stages; see `StageGraph`. ``next`` leads through the operators of a stage, -1 at its end."""

    edges_in: _Edges
    edges_out: _Edges
    time: _Floats
    finish: _Floats
    before: _Integers
    after: _Integers
    order: _Integers
    place: _Integers
    next: _Integers
    ends: _Integers


def _edges(neighbors: Sequence[Sequence[tuple[int, float]]]) -> _Edges:
    first = np.cumsum([0, *(len(row) for row in neighbors)], dtype=np.int64)
    pairs = [pair for row in neighbors for pair in row]
    return _Edges(
        first, np.array([v for v, _ in pairs], dtype=np.int64), np.array([ms for _, ms in pairs], dtype=float)
    )


def _view(values: Any) -> Any:
    """An array as Python reads and writes it fastest, a number at a time."""
    return memoryview(values)


class CompiledTimetable(PathTimetable):
    """`PathTimetable` that passes on delays and reaches by compiled code."""

    def __init__(self, problem: Problem, order: list[int], devices: int) -> None:
        super().__init__(problem, order, devices)
        size = len(self._time)
        self._mapping = mapping = _Mapping(
            _edges(self._predecessors),
            _edges(self._successors),
            np.array(self._time),
            np.array(self._start),
            np.array(self._reach),
            np.full(size, -1, dtype=np.int64),
            np.full(size, self._begin, dtype=np.int64),
            np.full(size, self._end, dtype=np.int64),
        )
        self._start, self._reach, self._device = _view(mapping.start), _view(mapping.reach), _view(mapping.device)
        self._before, self._after = _view(mapping.before), _view(mapping.after)
        self._late_flags, self._longer_flags = np.zeros(size, dtype=np.uint8), np.zeros(size, dtype=np.uint8)
        self._late, self._longer = _view(self._late_flags), _view(self._longer_flags)
        # Of a device that is tried: operators that are to delay others, and those delayed with their starts before.
        self._pending = np.zeros(size, dtype=np.uint8)
        self._delayed, self._earlier = np.zeros(size, dtype=np.int64), np.zeros(size)

    def _join(self, before: int, after: int) -> None:
        super()._join(before, after)
        self._after[before], self._before[after] = after, before

    def _try(self, path: list[int], device: int, best: float) -> float:
        self._link(path, device)
        latency = _tried(
            self._mapping,
            np.array(path, dtype=np.int64),
            self._latency,
            best * (1 + ROUNDING),
            self._latency * (1 - ROUNDING),
            self._pending,
            self._delayed,
            self._earlier,
        )
        self._unlink(path)
        return float(latency)

    def _settle(self, first: int, last: int) -> None:
        _settle_starts(self._mapping, last, self._late_flags)
        _settle_reaches(self._mapping, first, self._longer_flags)


class CompiledStageGraph(StageGraph):
    """`StageGraph` that finds the latency with a window as one stage by compiled code."""

    def __init__(self, problem: Problem, plan: StagedPlan) -> None:
        super().__init__(problem, plan)
        count = len(problem)
        self._stages = stages = _Stages(
            _edges(self._arcs_in),
            _edges(self._arcs_out),
            np.array(self._time),
            np.array(self._finish),
            np.array(self._before, dtype=np.int64),
            np.array(self._after, dtype=np.int64),
            np.array(self._order, dtype=np.int64),
            np.array(self._place, dtype=np.int64),
            np.full(count, -1, dtype=np.int64),
            np.array([last for _, last in self._ends], dtype=np.int64),
        )
        self._time, self._finish = _view(stages.time), _view(stages.finish)
        self._before, self._after = _view(stages.before), _view(stages.after)
        self._order, self._place = _view(stages.order), _view(stages.place)
        self._pending = np.zeros(count, dtype=np.uint8)
        self._changed, self._previous = np.zeros(count, dtype=np.int64), np.zeros(count)

    def _shortened(self, window: Window, time: float) -> bool:
        below = self._latency * (1 - LEAST_GAIN)
        latency = float(
            _latency_with(
                self._stages,
                np.array(window.members, dtype=np.int64),
                self._after[window.stages[-1]],
                window.ready + time,
                below,
                self._pending,
                self._changed,
                self._previous,
            )
        )
        if latency < below:
            self._latency = latency
            return True
        return False

    def _merge(self, window: Window, time: float, below: set[int]) -> None:
        super()._merge(window, time, below)
        for operator, following in pairwise((*window.members, -1)):
            self._stages.next[operator] = following


@compiled
def _ready(mapping: _Mapping, operator: int) -> float:
    """When a mapped operator can start: after the one before it on its row, and when inputs have arrived."""
    before = mapping.before[operator]
    ready: float = mapping.start[before] + mapping.time[before]
    for edge in range(mapping.edges_in.first[operator], mapping.edges_in.first[operator + 1]):
        other = mapping.edges_in.other[edge]
        if mapping.device[other] >= 0 and mapping.device[other] != mapping.device[operator]:
            ready = max(ready, mapping.start[other] + mapping.time[other] + mapping.edges_in.transfer[edge])
    return ready


@kept
def _tried(
    mapping: _Mapping,
    path: _Integers,
    latency: float,
    too_long: float,
    slack: float,
    pending: _Flags,
    delayed: _Integers,
    earlier: _Floats,
) -> float:
    """The latency with a linked path, or infinity where it is above ``too_long``; starts are then as before."""
    start, edges = mapping.start, mapping.edges_out
    for operator in path:
        start[operator] = _ready(mapping, operator)
        pending[operator] = 1
    operator, last, until, count = path[0], path[-1], path[-1], 0
    while operator <= until and latency < np.inf:
        if pending[operator]:
            pending[operator] = 0
            finish = start[operator] + mapping.time[operator]
            latency = max(latency, finish)
            first = edges.first[operator]
            for edge in range(first - 1, edges.first[operator + 1]):
                # The one after it on its row comes first.
                other, arrival = mapping.after[operator], finish
                if edge >= first:
                    other = edges.other[edge]
                    if mapping.device[other] < 0 or mapping.device[other] == mapping.device[operator]:
                        continue
                    arrival = finish + edges.transfer[edge]
                if arrival > start[other]:
                    length = arrival + mapping.reach[other]
                    if length > too_long:
                        latency = np.inf
                        break
                    if length > slack or other <= last:
                        if not pending[other]:
                            delayed[count], earlier[count] = other, start[other]
                            count += 1
                            pending[other] = 1
                        start[other] = arrival
                        until = max(until, other)
        operator += 1
    pending[path[0] : until + 1] = 0
    for number in range(count):
        start[delayed[number]] = earlier[number]
    return latency


@kept
def _settle_starts(mapping: _Mapping, last: int, late: _Flags) -> None:
    """Pass on delays of starts before ``last``."""
    start, edges = mapping.start, mapping.edges_out
    for operator in range(last):
        if late[operator]:
            late[operator] = 0
            finish = start[operator] + mapping.time[operator]
            after = mapping.after[operator]
            if finish > start[after]:
                start[after] = finish
                late[after] = 1
            for edge in range(edges.first[operator], edges.first[operator + 1]):
                other = edges.other[edge]
                if mapping.device[other] >= 0 and mapping.device[other] != mapping.device[operator]:
                    arrival = finish + edges.transfer[edge]
                    if arrival > start[other]:
                        start[other] = arrival
                        late[other] = 1


@kept
def _settle_reaches(mapping: _Mapping, first: int, longer: _Flags) -> None:
    """Pass on reaches that have become longer after ``first``."""
    reach, time, edges = mapping.reach, mapping.time, mapping.edges_in
    for operator in range(len(edges.first) - 2, first, -1):
        if longer[operator]:
            longer[operator] = 0
            before = mapping.before[operator]
            length = time[before] + reach[operator]
            if length > reach[before]:
                reach[before] = length
                longer[before] = 1
            for edge in range(edges.first[operator], edges.first[operator + 1]):
                other = edges.other[edge]
                if mapping.device[other] >= 0 and mapping.device[other] != mapping.device[operator]:
                    length = time[other] + edges.transfer[edge] + reach[operator]
                    if length > reach[other]:
                        reach[other] = length
                        longer[other] = 1


@kept
def _latency_with(
    stages: _Stages,
    members: _Integers,
    after: int,
    finished: float,
    below: float,
    pending: _Flags,
    changed: _Integers,
    previous: _Floats,
) -> float:
    """The latency with a window as one stage.

    Args:
        stages: the plan without it.
        members: its operators.
        after: the stage after it on its row.
        finished: when it ends, milliseconds.
        below: finish times stay as they are with the window where the latency is less, milliseconds.
        pending: of every place whether its stage is to be looked at; none is, before and after.
        changed: room for operators whose finish changes.
        previous: room for their finish times before.
    """
    finish, end = stages.finish, len(stages.order)
    count, first, until = 0, end, -1
    for operator in members:
        changed[count], previous[count] = operator, finish[operator]
        count += 1
        finish[operator] = finished
        first, until = _mark(stages, operator, after, pending, first, until)
    place = first
    while place <= until:
        if pending[place]:
            pending[place] = 0
            stage = stages.order[place]
            new = _stage_finish(stages, stage)
            operator = stage if new != finish[stage] else -1
            while operator >= 0:
                changed[count], previous[count] = operator, finish[operator]
                count += 1
                finish[operator] = new
                _, until = _mark(stages, operator, stages.after[stage], pending, first, until)
                operator = stages.next[operator]
        place += 1
    latency = 0.0
    for last in stages.ends:
        latency = max(latency, finish[last])
    if not latency < below:
        for number in range(count):
            finish[changed[number]] = previous[number]
    return latency


@compiled
def _stage_finish(stages: _Stages, stage: int) -> float:
    """When a stage ends that starts as early as can be."""
    edges = stages.edges_in
    ready: float = stages.finish[stages.before[stage]]
    operator = stage
    while operator >= 0:
        for edge in range(edges.first[operator], edges.first[operator + 1]):
            ready = max(ready, stages.finish[edges.other[edge]] + edges.transfer[edge])
        operator = stages.next[operator]
    ready += stages.time[stage]
    return ready


@compiled
def _mark(stages: _Stages, operator: int, after: int, pending: _Flags, first: int, until: int) -> tuple[int, int]:
    """Mark the stages that wait for an operator, ``after`` among them; the first and last place marked so far."""
    edges = stages.edges_out
    if after < len(stages.order):
        place = stages.place[after]
        pending[place] = 1
        first, until = min(first, place), max(until, place)
    for edge in range(edges.first[operator], edges.first[operator + 1]):
        place = stages.place[edges.other[edge]]
        pending[place] = 1
        first, until = min(first, place), max(until, place)
    return first, until
