"""A pipeline simulated event by event: what happens when, and what a simulation records.

The events are plain functions over rows of numbers, which numba compiles where there is much to simulate. The rows are
lists, or arrays for the compiled functions; both give the same, to the last bit. A `Simulation` runs in steps: between
them it is looked at, and goes on with other combined blocks and intervals.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import itertools
import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

from hios.core.sums import add_up
from hios.files.base import MOST_SUB_BLOCKS
from hios.serving import rules as rules_module
from hios.serving.measures import RepeatOutcome, Tally, variance
from hios.serving.pipeline import Pipeline, QueueRules
from hios.serving.rules import (
    KERNELS,
    Rules,
    could_start,
    has_room,
    kernel,
    rank,
    ready,
    rules_of,
    shared_lanes,
)
from hios.serving.scenario import Trace

#: What becomes of a task.
OFFERED, WAITING, IN_FLIGHT, COMPLETED, DROPPED, EXPIRED = range(6)

#: A list or an array of numbers.
Row: TypeAlias = Any

#: Whole numbers of a state: the lanes that are idle, the next task, the runs that started, those that were promoted,
#: the tasks in flight.
_IDLE, _NEXT, RUNS, PROMOTED, _IN_FLIGHT = range(5)
#: Of a run that goes on: its number, lanes, instances, and its combined block by its number in the present pipeline; -1
#: as number where there is none.
_NUMBER, _LANES, _COUNT, _COMBINED, _WORDS = range(5)
#: Ways to take lanes.
_TAKE = {"all": 0, "one": 1, "shared": 2}
_ALL, _SHARED = _TAKE["all"], _TAKE["shared"]


class Given(NamedTuple):
    """What does not change. W models, B blocks of all models, C combined blocks, n tasks."""

    rules: Rules
    task_times: Row  # (n,) float
    task_models: Row  # (n,) int
    first_task: Row  # (W,) int: where the queue of a model begins in SimulationState.queue
    capacity: Row  # (W,) int
    drop_oldest: Row  # (W,) int
    deadline: Row  # (W,) float
    interval: Row  # (W,) float
    due: Row  # (W,) float
    first_time: Row  # (C,) int: where the times of a combined block begin in times
    times: Row  # float: by combined block, present sub-blocks and lanes
    widest: Row  # int: by combined block and present sub-blocks, the most lanes that a run takes
    lanes: int
    take: int
    crowd: int
    most: int  # sub-blocks of the largest combined block, also of those that may follow
    max_wait: float
    duration: float
    beside: Row  # (C * C,) float; empty where runs do not slow each other down
    jitter: Row  # (k,) float; [1] for none


class SimulationState(NamedTuple):
    """What changes. The sub-blocks of a run that goes on are `Given.most` places of ``going_task`` and so on."""

    numbers: Row  # (5,) int: _IDLE and the following
    clock: Row  # (2,) float: the time, and the integral of the variance
    queue: Row  # (n,) int: tasks of every model's queue, one model after another
    head: Row  # (W,) int
    tail: Row  # (W,) int
    ticks: Row  # (W,) int: number of the next tick
    due_tick: Row  # (W,) int: whether a tick waits for room for a task; with a limit of tasks in flight
    present: Row  # (W,) int
    slot_task: Row  # (B * slots,) int
    slot_since: Row  # (B * slots,) float
    slot_head: Row  # (B,) int
    held: Row  # (B,) int: instances that wait
    oldest: Row  # (B,) int: the first of them
    since: Row  # (B,) float: since when that has waited
    running: Row  # (B,) int
    going: Row  # (lanes * 4,) int: _NUMBER and the following
    going_finish: Row  # (lanes,) float: infinite where there is none
    going_task: Row  # (lanes * most,) int
    going_block: Row  # (lanes * most,) int: number of the block among all
    task_state: Row  # (n,) int
    task_finish: Row  # (n,) float
    task_launch: Row  # (n,) float
    queued: Row  # (W,) float
    present_s: Row  # (W,) float
    runs: Row  # (most runs * 3,) int: combined block, present sub-blocks, lanes
    run_times: Row  # (most runs * 2,) float: start, finish


@kernel
def _end(given: Given, state: SimulationState, task: int, how: int) -> None:
    state.task_state[task] = how
    state.task_finish[task] = state.clock[0]
    state.present[given.task_models[task]] -= 1


@kernel
def _advance(given: Given, state: SimulationState, now: float) -> None:
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


@kernel
def _next_moment(given: Given, state: SimulationState) -> float:
    now = math.inf
    for finish in state.going_finish:
        now = min(now, finish)
    if state.numbers[_NEXT] < len(given.task_times):
        now = min(now, given.task_times[state.numbers[_NEXT]])
    for model in range(len(state.head)):
        if state.head[model] < state.tail[model]:
            now = min(now, given.task_times[state.queue[state.head[model]]] + given.deadline[model])
        if given.interval[model] > 0:
            now = min(now, state.ticks[model] * given.interval[model])
    return now


@kernel
def _arrive(given: Given, state: SimulationState, task: int) -> None:
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


@kernel
def _put(given: Given, state: SimulationState, block: int, task: int) -> None:
    slots = given.rules.slots
    place = block * slots + (state.slot_head[block] + state.held[block]) % slots
    state.slot_task[place] = task
    state.slot_since[place] = state.clock[0]
    if state.held[block] == 0:
        state.oldest[block], state.since[block] = task, state.clock[0]
    state.held[block] += 1


@kernel
def _taken(given: Given, state: SimulationState, block: int) -> int:
    """The first instance that waits for a block, which then waits no more."""
    slots = given.rules.slots
    task = state.oldest[block]
    state.slot_head[block] = (state.slot_head[block] + 1) % slots
    state.held[block] -= 1
    if state.held[block] > 0:
        place = block * slots + state.slot_head[block]
        state.oldest[block], state.since[block] = state.slot_task[place], state.slot_since[place]
    return task


@kernel
def _launch(given: Given, state: SimulationState, model: int) -> None:
    task = state.queue[state.head[model]]
    state.head[model] += 1
    state.numbers[_IN_FLIGHT] += 1
    state.due_tick[model] = 0
    state.task_state[task] = IN_FLIGHT
    state.task_launch[task] = state.clock[0]
    _put(given, state, given.rules.first_block[model], task)


@kernel
def _launch_first(given: Given, state: SimulationState, beyond: bool) -> bool:
    """Launch the task that is due first of those that have room, or could start ``beyond`` it; whether there is one."""
    chosen, earliest, oldest = -1, math.inf, -1
    for model in range(len(state.head)):
        if state.head[model] == state.tail[model] or not (given.interval[model] == 0 or state.due_tick[model]):
            continue
        if beyond:
            able = could_start(given.rules, state.held, state.running, model)
        else:
            able = has_room(given.rules, state.held, state.numbers[_IN_FLIGHT], model)
        if able:
            task = state.queue[state.head[model]]
            due = given.task_times[task] + given.due[model]
            if chosen < 0 or due < earliest or (due == earliest and task < oldest):
                chosen, earliest, oldest = model, due, task
    if chosen >= 0:
        _launch(given, state, chosen)
    return chosen >= 0


@kernel
def _finish(given: Given, state: SimulationState, place: int) -> None:
    """End a run: every instance goes to the next block of its model, or its task is complete."""
    run = place * _WORDS
    state.numbers[_IDLE] += state.going[run + _LANES]
    state.going[run + _NUMBER] = -1
    state.going_finish[place] = math.inf
    for member in range(place * given.most, place * given.most + state.going[run + _COUNT]):
        block, task = state.going_block[member], state.going_task[member]
        state.running[block] = 0
        if given.rules.last[block] > 0:
            state.numbers[_IN_FLIGHT] -= 1
            _end(given, state, task, COMPLETED)
        else:
            _put(given, state, block + 1, task)


@kernel
def _next(given: Given, state: SimulationState) -> tuple[int, int, int]:
    """The combined block to run, its sub-blocks that are present, and how many combined blocks could run.

    The one with the least rank, except that what has waited too long goes first of all (D3).
    """
    due, best, best_present, late, late_present = 0, -1, 0, -1, 0
    nothing = (math.inf, math.inf, math.inf, math.inf)
    best_rank = late_rank = nothing
    for combined in range(len(given.first_time)):
        present = ready(given.rules, state.held, state.running, combined)
        if present == 0:
            continue
        due += 1
        own = rank(given.rules, state.oldest, state.since, combined, present)
        if best < 0 or own < best_rank:
            best, best_present, best_rank = combined, present, own
        if state.clock[0] - own[3] > given.max_wait and (late < 0 or own[2:] < late_rank[2:]):
            late, late_present, late_rank = combined, present, own
    if late >= 0:
        state.numbers[PROMOTED] += late != best
        return late, late_present, due
    return best, best_present, due


@kernel
def _stretch(given: Given, state: SimulationState, combined: int, run: int) -> float:
    """How many times as long a run takes as alone and without jitter."""
    factor = 1.0
    if len(given.beside) > 0:
        for place in range(0, given.lanes * _WORDS, _WORDS):
            if state.going[place + _NUMBER] >= 0:
                other = state.going[place + _COMBINED]
                factor += given.beside[combined * len(given.first_time) + other] - 1.0
    return factor * given.jitter[run % len(given.jitter)]


@kernel
def _start(given: Given, state: SimulationState, combined: int, present: int, due: int) -> None:
    """Start a run: it takes lanes, and the instances leave their slots."""
    lanes = given.widest[given.first_time[combined] // given.lanes + present]
    if given.take == _SHARED:
        lanes = shared_lanes(lanes, state.numbers[_IDLE], due, given.crowd)
    place = 0
    while state.going[place * _WORDS + _NUMBER] >= 0:
        place += 1
    first, count = given.rules.first_member[combined], 0
    for number in range(given.rules.first_member[combined + 1] - first):
        if present >> number & 1:
            block = given.rules.member[first + number]
            state.going_block[place * given.most + count] = block
            state.going_task[place * given.most + count] = _taken(given, state, block)
            state.running[block] = not given.rules.several
            count += 1
    run, going = state.numbers[RUNS], place * _WORDS
    time = given.times[given.first_time[combined] + present * given.lanes + lanes - 1]
    finish = state.clock[0] + time * _stretch(given, state, combined, run)
    state.going[going + _NUMBER], state.going[going + _LANES] = run, lanes
    state.going[going + _COUNT], state.going[going + _COMBINED] = count, combined
    state.going_finish[place] = finish
    state.runs[3 * run], state.runs[3 * run + 1], state.runs[3 * run + 2] = combined, present, lanes
    state.run_times[2 * run], state.run_times[2 * run + 1] = state.clock[0], finish
    state.numbers[RUNS] += 1
    state.numbers[_IDLE] -= lanes


@kernel
def start_all(given: Given, state: SimulationState) -> None:
    """Launch tasks as long as there is room, and start runs until no lane is idle or no instance is waiting."""
    while True:
        while _launch_first(given, state, False):
            pass
        idle = state.numbers[_IDLE]
        if idle == 0 or (given.take == _ALL and idle < given.lanes):
            return
        combined, present, due = _next(given, state)
        if due > 0:
            _start(given, state, combined, present, due)
        elif not _launch_first(given, state, True):  # tasks in flight wait for each other, and a lane is idle
            return


@kernel
def _finish_due(given: Given, state: SimulationState, now: float) -> None:
    """End the runs that are over, in the order in which they started."""
    while True:
        chosen = -1
        for place in range(given.lanes):
            if state.going_finish[place] == now and (
                chosen < 0 or state.going[place * _WORDS + _NUMBER] < state.going[chosen * _WORDS + _NUMBER]
            ):
                chosen = place
        if chosen < 0:
            return
        _finish(given, state, chosen)


@kernel
def _expire(given: Given, state: SimulationState, model: int, now: float) -> None:
    """End the tasks whose deadline is now."""
    while state.head[model] < state.tail[model]:
        task = state.queue[state.head[model]]
        if given.task_times[task] + given.deadline[model] != now:
            return
        state.head[model] += 1
        _end(given, state, task, EXPIRED)
        if state.head[model] == state.tail[model]:
            state.due_tick[model] = 0


@kernel
def _tick(given: Given, state: SimulationState, model: int) -> None:
    """A tick that finds no task or no room is lost (D2).

    Where the number of tasks in flight is limited, a tick that finds a task but no room waits, as long as there is a
    task.
    """
    state.ticks[model] += 1
    waiting = state.head[model] < state.tail[model]
    if given.rules.in_flight > 0:
        state.due_tick[model] = waiting
    elif waiting and has_room(given.rules, state.held, state.numbers[_IN_FLIGHT], model):
        _launch(given, state, model)


@kernel
def run_to_end(given: Given, state: SimulationState) -> None:
    """Carry out all events up to ``Given.duration``, those of that moment included.

    Of the events of one moment, runs end first; then tasks expire, arrive, and launchers tick; then runs start.
    """
    now = _next_moment(given, state)
    while now <= given.duration:
        _advance(given, state, now)
        _finish_due(given, state, now)
        for model in range(len(state.head)):
            _expire(given, state, model, now)
        while state.numbers[_NEXT] < len(given.task_times) and given.task_times[state.numbers[_NEXT]] == now:
            _arrive(given, state, state.numbers[_NEXT])
            state.numbers[_NEXT] += 1
        for model in range(len(state.head)):
            if given.interval[model] > 0 and state.ticks[model] * given.interval[model] == now:
                _tick(given, state, model)
        start_all(given, state)
        now = _next_moment(given, state)
    _advance(given, state, given.duration)


def has_numba() -> bool:
    """Whether the functions can be compiled here."""
    return importlib.util.find_spec("numba") is not None


@functools.cache
def compiled_kernels() -> dict[str, Any]:
    """The functions of the rules and of the events compiled by numba, by name.

    Without reference counts (``_nrt``), which would take most of the time: these functions make no arrays, and those in
    a tuple are counted at every use. The result is kept on disk where there is a place for it, under a name that has
    the contents of both files in it: numba itself only looks whether the file of a function changed, not those of the
    functions that it calls.
    """
    from numba import njit

    options: dict[str, Any] = {"nogil": True, "_nrt": False}
    sources = hashlib.sha256(b"".join(Path(str(file)).read_bytes() for file in (rules_module.__file__, __file__)))
    names = {**vars(rules_module), **globals()}
    for name, function in KERNELS.items():
        copied = FunctionType(function.__code__, names, name)
        copied.__qualname__ = f"{name}_{sources.hexdigest()[:16]}"
        try:
            names[name] = njit(cache=True, **options)(copied)
        except RuntimeError:  # neither this folder nor a cache folder of the user can be written
            names[name] = njit(**options)(copied)
    return names


#: Makes a list or an array of numbers: of type ``q``, whole ones, or ``d``.
MakeRow: TypeAlias = Callable[[str, Sequence[float]], Row]


def list_row(kind: str, values: Sequence[float]) -> Row:
    """A row for the functions as they are."""
    return array(kind, values).tolist()


def array_row(kind: str, values: Sequence[float]) -> Row:
    """A row for the compiled functions."""
    import numpy as np

    return np.array(values, np.int64 if kind == "q" else np.float64)


#: Tasks that no queue ever holds.
_NO_LIMIT = 1 << 62


def given_of(pipeline: Pipeline, queues: Sequence[QueueRules], trace: Trace, duration_s: float, row: MakeRow) -> Given:
    """A repeat as rows, lists or arrays."""
    tasks = [trace.models.count(model) for model in range(len(queues))]
    return Given(
        rules=rules_of(pipeline, row),
        task_times=row("d", trace.times_s),
        task_models=row("q", trace.models),
        first_task=row("q", list(accumulate(tasks, initial=0))[:-1]),
        capacity=row("q", [min(rules.capacity, _NO_LIMIT) for rules in queues]),
        drop_oldest=row("q", [rules.drop_oldest for rules in queues]),
        deadline=row("d", [rules.deadline_s for rules in queues]),
        due=row("d", [rules.due_s for rules in queues]),
        lanes=pipeline.lanes,
        take=_TAKE[pipeline.take],
        most=max(MOST_SUB_BLOCKS, *map(len, pipeline.combined)),
        duration=duration_s,
        jitter=row("d", pipeline.jitter or (1.0,)),
        **_changing(pipeline, queues, row),
    )


def _changing(pipeline: Pipeline, queues: Sequence[QueueRules], row: MakeRow) -> dict[str, Any]:
    """What other combined blocks and intervals change of `Given`, but for the rules."""
    lengths = [len(own) * pipeline.lanes for own in pipeline.times_s]
    return {
        "interval": row("d", [rules.interval_s for rules in queues]),
        "first_time": row("q", list(accumulate(lengths, initial=0))[:-1]),
        "times": row("d", [time for own in pipeline.times_s for by_lanes in own for time in by_lanes]),
        "widest": row(
            "q",
            [
                pipeline.most_lanes(combined, present)
                for combined, own in enumerate(pipeline.times_s)
                for present in range(len(own))
            ],
        ),
        "crowd": pipeline.crowd,
        "max_wait": pipeline.max_wait_s,
        "beside": row("d", [factor for own in pipeline.beside for factor in own]),
    }


def next_tick(now: float, interval_s: float) -> int:
    """Number of the first tick of a launcher after a moment."""
    number = math.floor(now / interval_s)
    while number * interval_s <= now:  # the quotient is rounded, in either direction
        number += 1
    return number


def state_of(given: Given, pipeline: Pipeline, trace: Trace, row: MakeRow) -> SimulationState:
    """The state in which a repeat begins."""
    models, blocks, tasks = len(given.capacity), len(given.rules.last), len(given.task_times)
    places = blocks * given.rules.slots

    def full(kind: str, count: int, value: float = 0) -> Row:
        """A row of equal numbers."""
        return row(kind, array(kind, [value]) * count)

    # Every run takes at least one task through one block.
    most_runs = sum(count * trace.models.count(model) for model, count in enumerate(pipeline.blocks))
    return SimulationState(
        numbers=row("q", [given.lanes, 0, 0, 0, 0]),
        clock=full("d", 2),
        queue=full("q", tasks),
        head=given.first_task.copy(),
        tail=given.first_task.copy(),
        ticks=full("q", models),
        due_tick=full("q", models),
        present=full("q", models),
        slot_task=full("q", places),
        slot_since=full("d", places),
        slot_head=full("q", blocks),
        held=full("q", blocks),
        oldest=full("q", blocks),
        since=full("d", blocks),
        running=full("q", blocks),
        going=full("q", given.lanes * _WORDS, -1),
        going_finish=full("d", given.lanes, math.inf),
        going_task=full("q", given.lanes * given.most),
        going_block=full("q", given.lanes * given.most),
        task_state=full("q", tasks, OFFERED),
        task_finish=full("d", tasks, math.inf),
        task_launch=full("d", tasks, math.inf),
        queued=full("d", models),
        present_s=full("d", models),
        runs=full("q", 3 * most_runs),
        run_times=full("d", 2 * most_runs),
    )


class BlockRun(NamedTuple):
    """A run of a combined block: ``present`` has bit k where its k-th sub-block had an instance."""

    start_s: float
    finish_s: float
    combined: int
    present: int
    lanes: int


@dataclass
class SimulationRecord:
    """All that happened.

    Attributes:
        state: by task, what became of it by the end.
        finish_s: by task, when it was completed, dropped or expired; infinite where it was not.
        runs: in the order in which they started.
        queued_s: by model, integral over time of the number of tasks in the queue.
        present_s: by model, integral over time of the number of tasks in the queue or in flight.
        variance_s: integral over time of the variance of the queues' lengths.
        promoted: runs that went first as an instance had waited too long, before another that was due.
        launched_s: by task, when it left the queue for its first block; infinite where it did not.
        changes: pipelines that took over on the way, each with the number of runs that had started by then.
    """

    state: list[int]
    finish_s: list[float]
    runs: list[BlockRun] = field(default_factory=list)
    queued_s: list[float] = field(default_factory=list)
    present_s: list[float] = field(default_factory=list)
    variance_s: float = 0.0
    promoted: int = 0
    launched_s: list[float] = field(default_factory=list)
    changes: list[tuple[int, Pipeline]] = field(default_factory=list)


def _busy_s(run: BlockRun, pipeline: Pipeline, duration_s: float) -> float:
    """Time of lanes that a run takes before the end."""
    busy = pipeline.busy_s[run.combined][run.present][run.lanes - 1]
    if (pipeline.beside or pipeline.jitter) and (
        planned := pipeline.times_s[run.combined][run.present][run.lanes - 1]
    ) > 0:
        busy *= (run.finish_s - run.start_s) / planned
    if run.finish_s <= duration_s:
        return busy
    return busy * (duration_s - run.start_s) / (run.finish_s - run.start_s)


@dataclass(frozen=True)
class StepMeasures:
    """What a step brought, as the reward (2) of TOP takes it.

    Attributes:
        utilisation: mean share of the lanes that was busy.
        latencies_ms: by model, mean of its tasks that were completed in the step and, as far as they have come, of
            those that are still present; 0 without any.
        variance: of the tasks that remain in the queues.
        good: by model, its tasks that were completed in the step within their SLO.
    """

    utilisation: float
    latencies_ms: tuple[float, ...]
    variance: float
    good: tuple[int, ...] = ()

    @property
    def row(self) -> list[float]:
        """What the reward consists of: utilisation, latency of every model, variance."""
        return [self.utilisation, *self.latencies_ms, self.variance]


class Simulation:
    """One repeat: all tasks of a trace through a pipeline, with a queue for each model, until ``duration_s``.

    numba compiles it if ``compiled``, or if that is None and numba is installed. It does the same either way.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        queues: Sequence[QueueRules],
        trace: Trace,
        duration_s: float,
        *,
        compiled: bool | None = None,
    ) -> None:
        if compiled is None:
            compiled = has_numba()
        self.first = self.pipeline = pipeline
        self.trace = trace
        self.now = 0.0
        self._has_begun = False
        self._changes: list[tuple[int, Pipeline]] = []
        self._counted = 0
        functions = compiled_kernels() if compiled else KERNELS
        self._run_to_end, self._start_all = functions["run_to_end"], functions["start_all"]
        self._row: MakeRow = array_row if compiled else list_row
        self.given = given_of(pipeline, queues, trace, duration_s, self._row)
        self.state = state_of(self.given, pipeline, trace, self._row)

    def run(self) -> SimulationRecord:
        """Carry out all events up to the end."""
        self.run_to(self.given.duration)
        return self.record()

    def outcome(self) -> RepeatOutcome:
        """What all that happened amounts to, at the end; runs count as busy up to it."""
        record, trace, duration_s = self.record(), self.trace, self.given.duration
        tallies = [Tally(queued_s=q, present_s=p) for q, p in zip(record.queued_s, record.present_s, strict=True)]
        ended = []
        for task, (state, model) in enumerate(zip(record.state, trace.models, strict=True)):
            tally = tallies[model]
            tally.offered += 1
            tally.dropped += state == DROPPED
            tally.expired += state == EXPIRED
            tally.waiting += state == WAITING
            tally.in_flight += state == IN_FLIGHT
            if state == COMPLETED:
                ended.append((record.finish_s[task], task))
        for finish, task in sorted(ended):
            tallies[trace.models[task]].latencies_ms.append((finish - trace.times_s[task]) * 1e3)
        changes = [(0, self.first), *record.changes, (len(record.runs), self.pipeline)]
        busy = add_up(
            _busy_s(run, pipeline, duration_s)
            for (first, pipeline), (end, _) in itertools.pairwise(changes)
            for run in record.runs[first:end]
        )
        blocks = sum(run.present.bit_count() for run in record.runs)
        return RepeatOutcome(tallies, busy, record.variance_s / duration_s, record.promoted, blocks)

    def run_to(self, until_s: float) -> None:
        """Carry out all events up to a moment, those of the moment itself included."""
        self._has_begun = True  # a tick at this moment was carried out
        self.given = self.given._replace(duration=until_s)
        self._run_to_end(self.given, self.state)
        self.now = until_s

    def change(self, pipeline: Pipeline, queues: Sequence[QueueRules]) -> None:
        """Go on with other combined blocks of the same models, blocks, lanes and slots, and other intervals (D13).

        Runs that have started end as they would have, and slow others down as the combined block that now holds their
        first sub-block; instances keep their places. A launcher with a new interval begins with the first multiple of
        it that is still to come. Nothing else of the queues may differ.
        """
        self.pipeline = pipeline
        self._changes.append((self.runs, pipeline))
        given, state, rules = self.given, self.state, rules_of(pipeline, self._row)
        home = [0] * len(rules.last)
        for combined in range(len(pipeline.combined)):
            for place in range(rules.first_member[combined], rules.first_member[combined + 1]):
                home[rules.member[place]] = combined
        for place in range(given.lanes):
            if state.going[place * _WORDS + _NUMBER] >= 0:
                state.going[place * _WORDS + _COMBINED] = home[state.going_block[place * given.most]]
        for model, own in enumerate(queues):
            if own.interval_s > 0 and own.interval_s != given.interval[model]:
                state.ticks[model] = next_tick(float(state.clock[0]), own.interval_s) if self._has_begun else 0
        self.given = given._replace(rules=rules, **_changing(pipeline, queues, self._row))
        self._start_all(self.given, state)

    @property
    def runs(self) -> int:
        """How many runs have started."""
        return int(self.state.numbers[RUNS])

    def lengths(self) -> list[int]:
        """Tasks in every queue."""
        return [int(tail - head) for head, tail in zip(self.state.head, self.state.tail, strict=True)]

    def progress(self) -> list[bool]:
        """Of every block of all models, whether an instance waits before it or runs in it (P_t)."""
        return [bool(held or running) for held, running in zip(self.state.held, self.state.running, strict=True)]

    def record(self) -> SimulationRecord:
        """All that happened."""
        state = self.state
        times = _plain(state.run_times[: 2 * self.runs])
        return SimulationRecord(
            _plain(state.task_state),
            _plain(state.task_finish),
            [BlockRun(times[2 * n], times[2 * n + 1], *run) for n, run in enumerate(self._runs_from(0))],
            _plain(state.queued),
            _plain(state.present_s),
            float(state.clock[1]),
            int(state.numbers[PROMOTED]),
            _plain(state.task_launch),
            self._changes,
        )

    def _runs_from(self, first: int) -> list[tuple[int, int, int]]:
        """Combined block, present sub-blocks and lanes of the runs from a number on."""
        numbers = _plain(self.state.runs[3 * first : 3 * self.runs])
        return [(numbers[n], numbers[n + 1], numbers[n + 2]) for n in range(0, len(numbers), 3)]

    def _tasks(self) -> tuple[Any, ...]:
        """Arrays by task: what became of it, when it arrived, left the queue and ended, and its model.

        A moment is infinite where it did not come.
        """
        import numpy as np

        state, trace = self.state, self.trace
        rows = (state.task_state, trace.times_s, state.task_launch, state.task_finish, trace.models)
        return tuple(map(np.asarray, rows))

    def measured(self, since_s: float, latency: str = "arrival", slos_ms: Sequence[float] = ()) -> StepMeasures:
        """What the time since a moment brought; call it once for every step, before the next change.

        A run counts as busy in the step in which it starts. Latencies count from the ``arrival`` of a task or from when
        it left the queue (``inference``), those of SLOs always from its arrival.
        """
        runs = self._runs_from(self._counted)
        self._counted += len(runs)
        busy = add_up(self.pipeline.busy_s[combined][present][lanes - 1] for combined, present, lanes in runs)
        share = min(1.0, busy / (self.pipeline.lanes * (self.now - since_s)))
        state, arrived, launched, ended, models = self._tasks()
        begin = arrived if latency == "arrival" else launched
        done = (state == COMPLETED) & (ended > since_s)
        left = (state == IN_FLIGHT) | ((state == WAITING) & (latency == "arrival"))
        means, good = [], []
        for model in range(len(self.pipeline.blocks)):
            own = models == model
            completed, present = own & done, own & left
            if slos_ms:
                good.append(int((ended[completed] - arrived[completed] <= slos_ms[model] / 1e3).sum()))
            total = float((ended[completed] - begin[completed]).sum() + (self.now - begin[present]).sum())
            means.append(1e3 * total / max(1, int(completed.sum() + present.sum())))
        return StepMeasures(share, tuple(means), variance(self.lengths()), tuple(good))

    def waits_s(self) -> float:
        """Mean time since the arrival of the tasks that wait in the queues; 0 without any."""
        state, arrived, *_ = self._tasks()
        waiting = arrived[state == WAITING]
        return float(self.now - waiting.mean()) if len(waiting) else 0.0


def _plain(row: Row) -> list[Any]:
    """A row as a list of its own."""
    return list(row) if isinstance(row, list) else row.tolist()
