"""The simulator compiled by numba: the same runs and the same ends of tasks as the reference, to the last bit.

The functions have the names of those of ``simulator.Simulation`` and do the same, on arrays. Imported only where it
runs: numba is not light.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit

from hios.formats.base import MOST_SUB_BLOCKS
from hios.serving.arrivals import Trace
from hios.serving.pipeline import Pipeline, QueueRules
from hios.serving.simulator import (
    COMPLETED,
    DROPPED,
    EXPIRED,
    IN_FLIGHT,
    OFFERED,
    WAITING,
    BlockRun,
    Record,
    first_tick,
)

#: An array; the conventions below tell its type.
Array: TypeAlias = Any

#: Whole numbers of a state: the lanes that are idle, the next task, the runs that started, those that were promoted,
#: the tasks in flight.
_IDLE, _NEXT, _RUNS, _PROMOTED, _IN_FLIGHT = range(5)
#: Of a run that goes on: its number, lanes, instances, and its combined block by its number in the present pipeline; -1
#: as number where there is none.
_NUMBER, _LANES, _COUNT, _COMBINED = range(4)
#: Ways to take lanes.
_TAKE = {"all": 0, "one": 1, "shared": 2}
_ALL, _SHARED = _TAKE["all"], _TAKE["shared"]


class Given(NamedTuple):
    """What does not change. W models, B blocks of all models, C combined blocks, m sub-blocks of all, n tasks."""

    task_times: Array  # (n,) float
    task_models: Array  # (n,) int
    first_task: Array  # (W,) int: where the queue of a model begins in State.queue
    capacity: Array  # (W,) int
    drop_oldest: Array  # (W,) bool
    deadline: Array  # (W,) float
    interval: Array  # (W,) float
    due: Array  # (W,) float
    first_block: Array  # (W,) int: number of the model's first block among all
    last: Array  # (B,) bool: whether it is the last of its model
    first_member: Array  # (C + 1,) int: where the sub-blocks of a combined block begin in member
    member: Array  # (m,) int: number of the block among all
    first_time: Array  # (C,) int: where the times of a combined block begin in times
    times: Array  # float: by combined block, present sub-blocks and lanes
    widest: Array  # int: by combined block and present sub-blocks, the most lanes that a run takes
    lanes: int
    take: int
    left: Array  # (B,) float: time that a task has left before a block; 0 where that does not count
    crowd: int
    strict: bool
    several: bool
    slots: int
    in_flight: int  # 0: no limit
    max_wait: float
    duration: float
    beside: Array  # (C, C) float; (0, 0) where runs do not slow each other down
    jitter: Array  # (k,) float; [1] for none


class State(NamedTuple):
    """What changes."""

    numbers: Array  # (5,) int: _IDLE and the following
    clock: Array  # (2,) float: the time, and the integral of the variance
    queue: Array  # (n,) int: tasks of every model's queue, one model after another
    head: Array  # (W,) int
    tail: Array  # (W,) int
    ticks: Array  # (W,) int: number of the next tick
    due_tick: Array  # (W,) bool
    present: Array  # (W,) int
    slot_task: Array  # (B, slots) int
    slot_since: Array  # (B, slots) float
    slot_head: Array  # (B,) int
    slot_count: Array  # (B,) int
    running: Array  # (B,) bool
    able: Array  # (m,) bool
    going: Array  # (lanes, 4) int: _NUMBER and the following
    going_finish: Array  # (lanes,) float: infinite where there is none
    going_task: Array  # (lanes, most sub-blocks) int
    going_block: Array  # (lanes, most sub-blocks) int: number of the block among all
    task_state: Array  # (n,) int
    task_finish: Array  # (n,) float
    task_launch: Array  # (n,) float
    queued: Array  # (W,) float
    present_s: Array  # (W,) float
    runs: Array  # (most runs, 3) int: combined block, present sub-blocks, lanes
    run_times: Array  # (most runs, 2) float: start, finish


def _compiled(function: Any) -> Any:
    """Compile, and keep the result on disk where there is a place for it.

    Without reference counts (``_nrt``), which would take most of the time: these functions make no arrays, and those in
    a tuple are counted at every use.
    """
    options: dict[str, Any] = {"nogil": True, "_nrt": False}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # neither this folder nor a cache folder of the user can be written
        return njit(**options)(function)


@_compiled
def _end(given: Given, state: State, task: int, how: int) -> None:
    state.task_state[task] = how
    state.task_finish[task] = state.clock[0]
    state.present[given.task_models[task]] -= 1


@_compiled
def _advance(given: Given, state: State, now: float) -> None:
    passed = now - state.clock[0]
    models = len(state.head)
    mean = 0.0
    for model in range(models):
        mean += state.tail[model] - state.head[model]
    mean /= models
    variance = 0.0
    for model in range(models):
        length = state.tail[model] - state.head[model]
        state.queued[model] += passed * length
        state.present_s[model] += passed * state.present[model]
        variance += (length - mean) ** 2
    state.clock[1] += passed * (variance / models)
    state.clock[0] = now


@_compiled
def _next_moment(given: Given, state: State) -> float:
    now = np.inf
    for place in range(given.lanes):
        now = min(now, state.going_finish[place])
    if state.numbers[_NEXT] < len(given.task_times):
        now = min(now, given.task_times[state.numbers[_NEXT]])
    for model in range(len(state.head)):
        if state.head[model] < state.tail[model]:
            now = min(now, given.task_times[state.queue[state.head[model]]] + given.deadline[model])
        if given.interval[model] > 0:
            now = min(now, state.ticks[model] * given.interval[model])
    return now


@_compiled
def _arrive(given: Given, state: State, task: int) -> None:
    model = given.task_models[task]
    state.present[model] += 1
    if state.tail[model] - state.head[model] == given.capacity[model]:
        if not given.drop_oldest[model]:
            _end(given, state, task, DROPPED)
            return
        _end(given, state, state.queue[state.head[model]], DROPPED)
        state.head[model] += 1
    state.task_state[task] = WAITING
    state.queue[state.tail[model]] = task
    state.tail[model] += 1


@_compiled
def _put(given: Given, state: State, block: int, task: int) -> None:
    place = (state.slot_head[block] + state.slot_count[block]) % given.slots
    state.slot_task[block, place] = task
    state.slot_since[block, place] = state.clock[0]
    state.slot_count[block] += 1


@_compiled
def _can_launch(given: Given, state: State, model: int) -> bool:
    if given.in_flight > 0 and state.numbers[_IN_FLIGHT] >= given.in_flight:
        return False
    return bool(state.head[model] < state.tail[model] and state.slot_count[given.first_block[model]] < given.slots)


@_compiled
def _launch(given: Given, state: State, model: int) -> None:
    task = state.queue[state.head[model]]
    state.head[model] += 1
    state.numbers[_IN_FLIGHT] += 1
    state.due_tick[model] = False
    state.task_state[task] = IN_FLIGHT
    state.task_launch[task] = state.clock[0]
    _put(given, state, given.first_block[model], task)


@_compiled
def _could_start(given: Given, state: State, model: int) -> bool:
    block = given.first_block[model]
    if given.in_flight == 0 or given.strict or state.slot_count[block] > 0 or state.running[block]:
        return False
    if state.head[model] == state.tail[model]:
        return False
    return bool(given.last[block] or state.slot_count[block + 1] < given.slots)


@_compiled
def _launch_first(given: Given, state: State, beyond: bool) -> bool:
    chosen, earliest, oldest = -1, np.inf, -1
    for model in range(len(state.head)):
        able = _could_start(given, state, model) if beyond else _can_launch(given, state, model)
        if able and (given.interval[model] == 0 or state.due_tick[model]):
            task = state.queue[state.head[model]]
            due = given.task_times[task] + given.due[model]
            if chosen < 0 or due < earliest or (due == earliest and task < oldest):
                chosen, earliest, oldest = model, due, task
    if chosen >= 0:
        _launch(given, state, chosen)
    return chosen >= 0


@_compiled
def _launch_all(given: Given, state: State) -> None:
    while _launch_first(given, state, False):
        pass


@_compiled
def _finish(given: Given, state: State, place: int) -> None:
    state.numbers[_IDLE] += state.going[place, _LANES]
    state.going[place, _NUMBER] = -1
    state.going_finish[place] = np.inf
    for number in range(state.going[place, _COUNT]):
        block, task = state.going_block[place, number], state.going_task[place, number]
        state.running[block] = False
        if given.last[block]:
            state.numbers[_IN_FLIGHT] -= 1
            _end(given, state, task, COMPLETED)
        else:
            _put(given, state, block + 1, task)


@_compiled
def _next(given: Given, state: State) -> Any:
    """The combined block to run, its sub-blocks that are present, and how many combined blocks could run.

    ``Simulation._ready``, ``_age`` and ``_next`` in one.
    """
    member, last, slots, first_member = given.member, given.last, given.slots, given.first_member
    held, running, able, slot_head = state.slot_count, state.running, state.able, state.slot_head
    slot_task, slot_since = state.slot_task, state.slot_since
    now, max_wait, nothing = state.clock[0], given.max_wait, np.int64(len(given.task_times))
    due, best, late = 0, -1, -1
    best_present, late_present, best_ratio = 0, 0, 0.0
    best_left, best_oldest, best_since, late_oldest, late_since = np.inf, nothing, np.inf, nothing, np.inf
    for combined in range(len(first_member) - 1):
        first, end = first_member[combined], first_member[combined + 1]
        present, count, oldest, since, left = 0, 0, nothing, np.inf, np.inf
        for place in range(end - 1, first - 1, -1):
            block = member[place]
            able[place] = False
            if held[block] == 0 or running[block]:
                continue
            follows = place + 1 < end and member[place + 1] == block + 1 and able[place + 1]
            if last[block] or held[block + 1] < slots or follows:
                able[place] = True
                present |= 1 << (place - first)
                count += 1
                oldest = min(oldest, slot_task[block, slot_head[block]])
                since = min(since, slot_since[block, slot_head[block]])
                left = min(left, given.left[block])
        if count == 0 or (given.strict and count < end - first):
            continue
        due += 1
        ratio = count / (end - first)
        older = oldest < best_oldest or (oldest == best_oldest and since < best_since)
        sooner = left < best_left or (left == best_left and older)
        if best < 0 or ratio > best_ratio or (ratio == best_ratio and sooner):
            best, best_present, best_ratio, best_left = combined, present, ratio, left
            best_oldest, best_since = oldest, since
        older = oldest < late_oldest or (oldest == late_oldest and since < late_since)
        if now - since > max_wait and (late < 0 or older):
            late, late_present, late_oldest, late_since = combined, present, oldest, since
    if late >= 0:
        state.numbers[_PROMOTED] += late != best
        return late, late_present, due
    return best, best_present, due


@_compiled
def _stretch(given: Given, state: State, combined: int, run: int) -> float:
    factor = 1.0
    if len(given.beside):
        for place in range(given.lanes):
            if state.going[place, _NUMBER] >= 0:
                factor += given.beside[combined, state.going[place, _COMBINED]] - 1.0
    return factor * given.jitter[run % len(given.jitter)]


@_compiled
def _start(given: Given, state: State, combined: int, present: int, due: int) -> None:
    lanes = given.widest[given.first_time[combined] // given.lanes + present]
    if given.take == _SHARED:
        idle = state.numbers[_IDLE]
        lanes = min(lanes, idle, max(1, idle * given.crowd // due))
    place = 0
    while state.going[place, _NUMBER] >= 0:
        place += 1
    first, count = given.first_member[combined], 0
    for number in range(given.first_member[combined + 1] - first):
        if present >> number & 1:
            block = given.member[first + number]
            state.going_block[place, count] = block
            state.going_task[place, count] = state.slot_task[block, state.slot_head[block]]
            count += 1
            state.slot_head[block] = (state.slot_head[block] + 1) % given.slots
            state.slot_count[block] -= 1
            state.running[block] = not given.several
    run = state.numbers[_RUNS]
    time = given.times[given.first_time[combined] + present * given.lanes + lanes - 1]
    finish = state.clock[0] + time * _stretch(given, state, combined, run)
    state.going[place, _NUMBER], state.going[place, _LANES] = run, lanes
    state.going[place, _COUNT], state.going[place, _COMBINED] = count, combined
    state.going_finish[place] = finish
    state.runs[run, 0], state.runs[run, 1], state.runs[run, 2] = combined, present, lanes
    state.run_times[run, 0], state.run_times[run, 1] = state.clock[0], finish
    state.numbers[_RUNS] += 1
    state.numbers[_IDLE] -= lanes


@_compiled
def start_all(given: Given, state: State) -> None:
    """Start runs until no lane is idle or no instance is waiting."""
    while True:
        _launch_all(given, state)
        idle = state.numbers[_IDLE]
        if idle == 0 or (given.take == _ALL and idle < given.lanes):
            return
        combined, present, due = _next(given, state)
        if due > 0:
            _start(given, state, combined, present, due)
        elif not _launch_first(given, state, True):
            return


@_compiled
def _finish_due(given: Given, state: State, now: float) -> None:
    """End the runs that are over, in the order in which they started."""
    while True:
        chosen = -1
        for place in range(given.lanes):
            if state.going_finish[place] == now and (
                chosen < 0 or state.going[place, _NUMBER] < state.going[chosen, _NUMBER]
            ):
                chosen = place
        if chosen < 0:
            return
        _finish(given, state, chosen)


@_compiled
def run_to_end(given: Given, state: State) -> None:
    """Carry out all events up to ``Given.duration``, those of that moment included."""
    now = _next_moment(given, state)
    while now <= given.duration:
        _advance(given, state, now)
        _finish_due(given, state, now)
        for model in range(len(state.head)):
            while state.head[model] < state.tail[model]:
                task = state.queue[state.head[model]]
                if given.task_times[task] + given.deadline[model] != now:
                    break
                state.head[model] += 1
                _end(given, state, task, EXPIRED)
                state.due_tick[model] = state.due_tick[model] and state.head[model] < state.tail[model]
        while state.numbers[_NEXT] < len(given.task_times) and given.task_times[state.numbers[_NEXT]] == now:
            _arrive(given, state, state.numbers[_NEXT])
            state.numbers[_NEXT] += 1
        for model in range(len(state.head)):
            if given.interval[model] > 0 and state.ticks[model] * given.interval[model] == now:
                state.ticks[model] += 1
                if given.in_flight > 0:
                    state.due_tick[model] = state.head[model] < state.tail[model]
                elif _can_launch(given, state, model):
                    _launch(given, state, model)
        start_all(given, state)
        now = _next_moment(given, state)
    _advance(given, state, given.duration)


def carried_out(
    pipeline: Pipeline, queues: Sequence[QueueRules], trace: Trace, duration_s: float
) -> tuple[Given, State]:
    """Carry out a repeat; arrays of what happened."""
    given = given_of(pipeline, queues, trace, duration_s)
    state = state_of(given, pipeline)
    run_to_end(given, state)
    return given, state


def compiled(pipeline: Pipeline, queues: Sequence[QueueRules], trace: Trace, duration_s: float) -> Record:
    """One repeat by the compiled simulator: the record that the reference makes."""
    return record_of(carried_out(pipeline, queues, trace, duration_s)[1])


def runs_of(state: State) -> int:
    """How many runs have started."""
    return int(state.numbers[_RUNS])


def record_of(state: State) -> Record:
    """What a state tells of what happened."""
    count = runs_of(state)
    times, runs = state.run_times[:count].tolist(), state.runs[:count].tolist()
    return Record(
        state.task_state.tolist(),
        state.task_finish.tolist(),
        [BlockRun(*time, *run) for time, run in zip(times, runs, strict=True)],
        state.queued.tolist(),
        state.present_s.tolist(),
        float(state.clock[1]),
        int(state.numbers[_PROMOTED]),
        state.task_launch.tolist(),
    )


def given_of(pipeline: Pipeline, queues: Sequence[QueueRules], trace: Trace, duration_s: float) -> Given:
    """A repeat as arrays."""
    task_models = np.array(trace.models, np.int64)
    first_block = np.concatenate(([0], np.cumsum(pipeline.blocks)))
    tasks = np.bincount(task_models, minlength=len(queues))
    last = np.zeros(first_block[-1], np.bool_)
    last[first_block[1:] - 1] = True
    return Given(
        np.array(trace.times_s, np.float64),
        task_models,
        np.concatenate(([0], np.cumsum(tasks)))[:-1].astype(np.int64),
        np.array([rules.capacity for rules in queues], np.int64),
        np.array([rules.drop_oldest for rules in queues], np.bool_),
        np.array([rules.deadline_s for rules in queues], np.float64),
        np.array([rules.interval_s for rules in queues], np.float64),
        np.array([rules.due_s for rules in queues], np.float64),
        first_block[:-1].astype(np.int64),
        last,
        *_combined_arrays(pipeline),
        pipeline.lanes,
        _TAKE[pipeline.take],
        _left(pipeline),
        pipeline.crowd,
        pipeline.strict,
        pipeline.several,
        pipeline.slots,
        pipeline.in_flight or 0,
        pipeline.max_wait_s,
        duration_s,
        _beside(pipeline),
        np.array(pipeline.jitter or (1.0,), np.float64),
    )


def _combined_arrays(pipeline: Pipeline) -> tuple[Array, Array, Array, Array, Array]:
    """``first_member``, ``member``, ``first_time``, ``times`` and ``widest`` of Given."""
    first_block = np.concatenate(([0], np.cumsum(pipeline.blocks)))
    sizes = [len(members) for members in pipeline.combined]
    lengths = [len(rows) * pipeline.lanes for rows in pipeline.times_s]
    return (
        np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        np.array([first_block[model] + block for members in pipeline.combined for model, block in members], np.int64),
        np.concatenate(([0], np.cumsum(lengths)))[:-1].astype(np.int64),
        np.array([time for rows in pipeline.times_s for row in rows for time in row], np.float64),
        np.array(
            [
                pipeline.most_lanes(c, present)
                for c, rows in enumerate(pipeline.times_s)
                for present in range(len(rows))
            ],
            np.int64,
        ),
    )


def _left(pipeline: Pipeline) -> Array:
    every = [time for own in pipeline.left_s for time in own]
    return np.array(every or [0.0] * sum(pipeline.blocks), np.float64)


def _beside(pipeline: Pipeline) -> Array:
    return np.array(pipeline.beside or np.zeros((0, 0)), np.float64)


def _owners(first_member: Array) -> Array:
    """By sub-block of all combined blocks, the number of its combined block."""
    return np.repeat(np.arange(len(first_member) - 1), np.diff(first_member))


def changed(given: Given, state: State, pipeline: Pipeline, queues: Sequence[QueueRules]) -> Given:
    """Go on with other combined blocks and intervals, as ``Simulation.change``."""
    first_member, member, first_time, times, widest = _combined_arrays(pipeline)
    interval = np.array([rules.interval_s for rules in queues], np.float64)
    home = {int(block): number for number, block in zip(_owners(first_member), member, strict=True)}
    for place in range(given.lanes):
        if state.going[place, _NUMBER] >= 0:
            state.going[place, _COMBINED] = home[int(state.going_block[place, 0])]
    for model, rules in enumerate(queues):
        if rules.interval_s > 0:
            state.ticks[model] = first_tick(float(state.clock[0]), rules.interval_s)
    after = given._replace(
        interval=interval,
        first_member=first_member,
        member=member,
        first_time=first_time,
        times=times,
        widest=widest,
        left=_left(pipeline),
        crowd=pipeline.crowd,
        in_flight=pipeline.in_flight or 0,
        max_wait=pipeline.max_wait_s,
        beside=_beside(pipeline),
    )
    start_all(after, state)
    return after


def state_of(given: Given, pipeline: Pipeline) -> State:
    """The state in which a repeat begins."""
    models, blocks, count = len(given.capacity), len(given.last), len(given.task_times)
    # Every run takes at least one task through one block.
    most = int(sum(pipeline.blocks[model] for model in given.task_models.tolist()))
    largest = max(MOST_SUB_BLOCKS, *map(len, pipeline.combined))
    return State(
        np.array([given.lanes, 0, 0, 0, 0], np.int64),
        np.zeros(2),
        np.zeros(count, np.int64),
        given.first_task.copy(),
        given.first_task.copy(),
        np.zeros(models, np.int64),
        np.zeros(models, np.bool_),
        np.zeros(models, np.int64),
        np.zeros((blocks, given.slots), np.int64),
        np.zeros((blocks, given.slots)),
        np.zeros(blocks, np.int64),
        np.zeros(blocks, np.int64),
        np.zeros(blocks, np.bool_),
        np.zeros(len(given.member), np.bool_),
        np.full((given.lanes, 4), -1, np.int64),
        np.full(given.lanes, np.inf),
        np.zeros((given.lanes, largest), np.int64),
        np.zeros((given.lanes, largest), np.int64),
        np.full(count, OFFERED, np.int64),
        np.full(count, np.inf),
        np.full(count, np.inf),
        np.zeros(models),
        np.zeros(models),
        np.zeros((most, 3), np.int64),
        np.zeros((most, 2)),
    )
