"""Propagating changed start times through a large graph, compiled: for HIOS-LP and for windows.

The same loops as in `hios.schedulers.path_times` and `hios.schedulers.parallelize`, with sums in the same order, so
that schedules are identical to the last bit (tests check that). Mapping a path or merging a window
changes the times of a large part of the graph, so this work grows with the square of the number of operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hios.schedulers.opt.moves import Array, compiled, kept


class Edges(NamedTuple):
    """Edges of every operator: those of operator v are at first[v] .. first[v + 1] - 1; transfers in milliseconds."""

    first: Array  # int
    other: Array  # int
    transfer: Array  # float


class MappingArrays(NamedTuple):
    """Operators, by their place in descending order of priority, on rows of devices; see `PathTimetable`."""

    edges_in: Edges
    edges_out: Edges
    time: Array  # float
    start: Array  # float
    reach: Array  # float
    device: Array  # int
    before: Array  # int
    after: Array  # int
    late: Array  # flags
    longer: Array  # flags
    pending: Array  # flags: what is to delay others on a device that is tried; none before and after
    delayed: Array  # int: what was delayed there
    earlier: Array  # float: its starts before


class StageArrays(NamedTuple):
    """A plan as a graph of stages; see `StageGraph`."""

    edges_in: Edges
    edges_out: Edges
    time: Array  # float
    finish: Array  # float
    before: Array  # int
    after: Array  # int
    order: Array  # int
    place: Array  # int
    next: Array  # int: leads through the operators of a stage, -1 at its end
    ends: Array  # int
    pending: Array  # flags: places whose stages are to be looked at; none before and after
    changed: Array  # int: operators whose finish changes
    previous: Array  # float: their finish before


def edge_arrays(neighbors: Sequence[Sequence[tuple[int, float]]]) -> Edges:
    """The edges of every operator, given by their other ends and transfers."""
    pairs = [pair for row in neighbors for pair in row]
    return Edges(
        np.cumsum([0, *(len(row) for row in neighbors)], dtype=np.int64),
        integers([v for v, _ in pairs]),
        floats([ms for _, ms in pairs]),
    )


def integers(values: Sequence[int]) -> Array:
    """An array of integers."""
    return np.array(values, dtype=np.int64)


def floats(values: Sequence[float]) -> Array:
    """An array of numbers."""
    return np.array(values, dtype=float)


def flags(count: int) -> Array:
    """So many flags, none set."""
    return np.zeros(count, np.uint8)


def views(*arrays: Array) -> list[Any]:
    """Arrays as Python reads and writes them fastest, a number at a time."""
    return [memoryview(array) for array in arrays]


@compiled
def _ready(mapping: MappingArrays, operator: int) -> float:
    """When a mapped operator can start: after the one before it on its row, and when inputs have arrived."""
    before = mapping.before[operator]
    ready: float = mapping.start[before] + mapping.time[before]
    for edge in range(mapping.edges_in.first[operator], mapping.edges_in.first[operator + 1]):
        other = mapping.edges_in.other[edge]
        if mapping.device[other] >= 0 and mapping.device[other] != mapping.device[operator]:
            ready = max(ready, mapping.start[other] + mapping.time[other] + mapping.edges_in.transfer[edge])
    return ready


@kept
def latency_on(mapping: MappingArrays, path: Array, latency: float, too_long: float, slack: float) -> float:
    """The latency with a linked path, or infinity where it is above ``too_long``; starts are then as before."""
    start, edges, pending = mapping.start, mapping.edges_out, mapping.pending
    delayed, earlier = mapping.delayed, mapping.earlier
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
def settle_starts(mapping: MappingArrays, last: int) -> None:
    """Pass on delays of starts before ``last``."""
    start, edges, late = mapping.start, mapping.edges_out, mapping.late
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
def settle_reaches(mapping: MappingArrays, first: int) -> None:
    """Pass on reaches that have become longer after ``first``."""
    reach, time, edges, longer = mapping.reach, mapping.time, mapping.edges_in, mapping.longer
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
def latency_with(stages: StageArrays, members: Array, after: int, finished: float, below: float) -> float:
    """The latency with a window as one stage; finish times stay as they are then where it is less than ``below``.

    The window of ``members``, before the stage ``after`` on its row, is ``finished`` at a time; all in milliseconds.
    """
    changed, previous, pending = stages.changed, stages.previous, stages.pending
    finish, end = stages.finish, len(stages.order)
    count, first, until = 0, end, -1
    for operator in members:
        changed[count], previous[count] = operator, finish[operator]
        count += 1
        finish[operator] = finished
        first, until = _mark(stages, operator, after, first, until)
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
                _, until = _mark(stages, operator, stages.after[stage], first, until)
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
def _stage_finish(stages: StageArrays, stage: int) -> float:
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
def _mark(stages: StageArrays, operator: int, after: int, first: int, until: int) -> tuple[int, int]:
    """Mark the stages that wait for an operator, ``after`` among them; the first and last place marked so far."""
    edges = stages.edges_out
    if after < len(stages.order):
        place = stages.place[after]
        stages.pending[place] = 1
        first, until = min(first, place), max(until, place)
    for edge in range(edges.first[operator], edges.first[operator + 1]):
        place = stages.place[edges.other[edge]]
        stages.pending[place] = 1
        first, until = min(first, place), max(until, place)
    return first, until
