"""The reference simulator: discrete events, written for the reader, with a heap of events and queues of tasks.

TOP section VI-A as events, with what the paper leaves open decided as docs/serving.md says. The simulator of hios does
the same, event by event.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hios.serving.measures import variance
from hios.serving.pipeline import Pipeline, QueueRules, SubBlock
from hios.serving.scenario import Trace
from hios.serving.simulator import (
    COMPLETED,
    DROPPED,
    EXPIRED,
    IN_FLIGHT,
    OFFERED,
    WAITING,
    BlockRun,
    Simulation,
    SimulationRecord,
    next_tick,
)

#: Kinds of events, in the order in which those of one moment count; then runs start.
_FINISH, _EXPIRE, _ARRIVE, _TICK = range(4)


#: By model and block: tasks whose instance waits for the block, the oldest first, with the time since when.
Slots = list[list[deque[tuple[Any, float]]]]


class _Going(NamedTuple):
    """A run that goes on: its number, its combined block by its number in the present pipeline, its first sub-block."""

    number: int
    combined: int
    first: SubBlock


def _present(pipeline: Pipeline, combined: int, present: int) -> list[SubBlock]:
    return [own for place, own in enumerate(pipeline.combined[combined]) if present >> place & 1]


def ready(pipeline: Pipeline, slots: Slots, running: Sequence[Sequence[bool]], combined: int) -> int:
    """The sub-blocks that could run now, as bits; 0 where a strict run would wait for others.

    A sub-block can run if it has an instance and the one after it has room for the result, also if that itself takes
    its input out in this very run (D6). ``running`` says by model and block whether no other instance may start.
    """
    present, able = 0, set()
    members = pipeline.combined[combined]
    for place in reversed(range(len(members))):
        model, block = members[place]
        if not slots[model][block] or running[model][block]:
            continue
        last = block + 1 == pipeline.blocks[model]
        if last or len(slots[model][block + 1]) < pipeline.slots or (model, block + 1) in able:
            able.add((model, block))
            present |= 1 << place
    return 0 if pipeline.strict and len(able) < len(members) else present


def following(
    pipeline: Pipeline, slots: Slots, due: list[tuple[int, int]], now: float
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of combined blocks with their sub-blocks that are present, the next, and the one that would be but for its wait.

    The highest effective input ratio, ties by what has least time left, if that counts, then by the oldest task. First
    of all what has waited too long (D3), by the oldest task.
    """
    ages, ranks = {}, {}
    for combined, present in due:
        members = _present(pipeline, combined, present)
        waiting = [slots[model][block][0] for model, block in members]
        left_s = [pipeline.left_s[model][block] for model, block in members if pipeline.left_s]
        ages[combined, present] = min(task for task, _ in waiting), min(since for _, since in waiting)
        ranks[combined, present] = -len(members) / len(pipeline.combined[combined]), min(left_s, default=0.0)
    by_ratio = min(due, key=lambda entry: (*ranks[entry], *ages[entry]))
    late = [entry for entry in due if now - ages[entry][1] > pipeline.max_wait_s]
    return min(late, key=ages.__getitem__) if late else by_ratio, by_ratio


class ReferenceSimulation(Simulation):
    """One repeat: all tasks of a trace through a pipeline.

    Args:
        pipeline: what runs.
        queues: by model.
        trace: when tasks arrive.
        duration_s: when it ends.
        watch: is called after the events of every moment.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        queues: Sequence[QueueRules],
        trace: Trace,
        duration_s: float,
        watch: Callable[[ReferenceSimulation], None] = lambda simulation: None,
    ) -> None:
        super().__init__(pipeline, queues, trace, duration_s, compiled=False)
        self.queues, self._watch = queues, watch
        self.idle = pipeline.lanes
        self.queue: list[deque[int]] = [deque() for _ in queues]
        self.slots: Slots = [[deque() for _ in range(n)] for n in pipeline.blocks]
        self.running = [[False] * count for count in pipeline.blocks]
        self.present = [0] * len(queues)
        self.in_flight = 0
        #: By model, whether a tick of its launcher waits for room for a task; with a limit of tasks in flight.
        self.due_tick = [False] * len(queues)
        #: The runs that go on, by place; a run takes the first free place.
        self._going: dict[int, _Going] = {}
        count = len(queues)
        never = [math.inf] * len(trace)
        self._kept = SimulationRecord(
            [OFFERED] * len(trace), never, [], [0.0] * count, [0.0] * count, launched_s=never.copy()
        )
        self._events: list[tuple[float, int, int, tuple[Any, ...]]] = []
        if len(trace):
            heapq.heappush(self._events, (trace.times_s[0], _ARRIVE, 0, ()))
        for model, rules in enumerate(queues):
            if rules.interval_s > 0:
                heapq.heappush(self._events, (0.0, _TICK, model, (0,)))

    def run_to(self, until_s: float) -> None:
        """Carry out all events up to a moment, those of the moment itself included."""
        handle: dict[int, Callable[..., None]] = {
            _FINISH: self._finish,
            _EXPIRE: self._expire,
            _ARRIVE: self._arrive,
            _TICK: self._tick,
        }
        self._has_begun = True
        while self._events and self._events[0][0] <= until_s:
            self._advance(self._events[0][0])
            while self._events and self._events[0][0] == self.now:
                _, kind, subject, more = heapq.heappop(self._events)
                handle[kind](subject, *more)
            self._start_runs()
            self._watch(self)
        self._advance(until_s)

    def change(self, pipeline: Pipeline, queues: Sequence[QueueRules]) -> None:
        """Go on with other combined blocks and intervals (D13).

        Runs that have started end as they would have, and slow others down as the combined block that now holds their
        first sub-block; instances keep their places. A launcher with a new interval begins with the first multiple of
        it that is still to come.
        """
        self._kept.changes.append((len(self._kept.runs), pipeline))
        kept = {
            model
            for model, (old, new) in enumerate(zip(self.queues, queues, strict=True))
            if old.interval_s == new.interval_s
        }
        self.pipeline, self.queues = pipeline, queues
        home = {member: number for number, members in enumerate(pipeline.combined) for member in members}
        self._going = {place: run._replace(combined=home[run.first]) for place, run in self._going.items()}
        self._events = [event for event in self._events if event[1] != _TICK or event[2] in kept]
        heapq.heapify(self._events)
        for model, rules in enumerate(queues):
            if rules.interval_s > 0 and model not in kept:
                number = next_tick(self.now, rules.interval_s) if self._has_begun else 0
                heapq.heappush(self._events, (number * rules.interval_s, _TICK, model, (number,)))
        self._start_runs()

    def _advance(self, now: float) -> None:
        passed = now - self.now
        for model, queue in enumerate(self.queue):
            self._kept.queued_s[model] += passed * len(queue)
            self._kept.present_s[model] += passed * self.present[model]
        self._kept.variance_s += passed * variance([len(queue) for queue in self.queue])
        self.now = now

    def _arrive(self, task: int) -> None:
        if task + 1 < len(self.trace):
            heapq.heappush(self._events, (self.trace.times_s[task + 1], _ARRIVE, task + 1, ()))
        model = self.trace.models[task]
        queue, rules = self.queue[model], self.queues[model]
        self.present[model] += 1
        if len(queue) == rules.capacity:
            if not rules.drop_oldest:
                self._end(task, DROPPED)
                return
            self._end(queue.popleft(), DROPPED)
        self._kept.state[task] = WAITING
        queue.append(task)
        if rules.deadline_s < math.inf:
            heapq.heappush(self._events, (self.trace.times_s[task] + rules.deadline_s, _EXPIRE, task, ()))

    def _expire(self, task: int) -> None:
        if self._kept.state[task] == WAITING:  # then it is the oldest of its queue
            model = self.trace.models[task]
            self._end(self.queue[model].popleft(), EXPIRED)
            self.due_tick[model] &= bool(self.queue[model])

    def _tick(self, model: int, number: int) -> None:
        """A tick that finds no task or no room is lost (D2).

        Where the number of tasks in flight is limited, a tick that finds a task but no room waits, as long as there is
        a task.
        """
        heapq.heappush(self._events, ((number + 1) * self.queues[model].interval_s, _TICK, model, (number + 1,)))
        if self.pipeline.in_flight is not None:
            self.due_tick[model] = bool(self.queue[model])
        elif self.queue[model] and self._has_room(model):
            self._launch(model)

    def _launch(self, model: int) -> None:
        """Take a task out of its queue to its first block."""
        task = self.queue[model].popleft()
        self.in_flight += 1
        self.due_tick[model] = False
        self._kept.state[task], self._kept.launched_s[task] = IN_FLIGHT, self.now
        self.slots[model][0].append((task, self.now))

    def _has_room(self, model: int) -> bool:
        """Whether the first block of a model has a free slot, and the pipeline takes another task."""
        limit = self.pipeline.in_flight
        return len(self.slots[model][0]) < self.pipeline.slots and (limit is None or self.in_flight < limit)

    def _launch_all(self) -> None:
        """Launch tasks as long as there is room, the one that is due first before others."""
        while self._launch_first(self._has_room):
            pass

    def _launch_first(self, able: Callable[[int], bool]) -> bool:
        """Launch the task that is due first, of the models that are able to; whether there is one."""
        able_now = [
            (self.trace.times_s[queue[0]] + rules.due_s, queue[0], model)
            for model, (queue, rules) in enumerate(zip(self.queue, self.queues, strict=True))
            if queue and (rules.interval_s == 0 or self.due_tick[model]) and able(model)
        ]
        if able_now:
            self._launch(min(able_now)[2])
        return bool(able_now)

    def _could_start(self, model: int) -> bool:
        """Whether a task could start at once, were it not for the limit of tasks in flight."""
        pipeline, slots = self.pipeline, self.slots[model]
        if pipeline.in_flight is None or pipeline.strict or slots[0] or self.running[model][0]:
            return False
        return len(slots) == 1 or len(slots[1]) < pipeline.slots

    def _start_runs(self) -> None:
        """Start runs until no lane is idle or no instance is waiting."""
        while True:
            self._launch_all()
            if not self.idle or (self.pipeline.take == "all" and self.idle < self.pipeline.lanes):
                return
            every = ((c, ready(self.pipeline, self.slots, self.running, c)) for c in range(len(self.pipeline.combined)))
            due = [(combined, present) for combined, present in every if present]
            if due:
                chosen, by_ratio = following(self.pipeline, self.slots, due, self.now)
                self._kept.promoted += chosen != by_ratio
                self._start(*chosen, len(due))
            elif not self._launch_first(self._could_start):  # tasks in flight wait for each other, and a lane is idle
                return

    def _start(self, combined: int, present: int, due: int) -> None:
        """Start a run: it takes lanes, and the instances leave their slots."""
        lanes = self.pipeline.most_lanes(combined, present)
        if self.pipeline.take == "shared":
            lanes = min(lanes, self.idle, max(1, self.idle * self.pipeline.crowd // due))
        instances = []
        for model, block in _present(self.pipeline, combined, present):
            instances.append((self.slots[model][block].popleft()[0], model, block))
            self.running[model][block] = not self.pipeline.several
        self.idle -= lanes
        number = len(self._kept.runs)
        finish = self.now + self.pipeline.times_s[combined][present][lanes - 1] * self._stretch(combined, number)
        free = next(place for place in itertools.count() if place not in self._going)
        self._going[free] = _Going(number, combined, instances[0][1:])
        self._kept.runs.append(BlockRun(self.now, finish, combined, present, lanes))
        heapq.heappush(self._events, (finish, _FINISH, number, tuple(instances)))

    def _stretch(self, combined: int, number: int) -> float:
        """How many times as long a run takes as alone and without jitter."""
        factor = 1.0
        if self.pipeline.beside:
            for _, other in sorted(self._going.items()):
                factor += self.pipeline.beside[combined][other.combined] - 1.0
        if self.pipeline.jitter:
            factor *= self.pipeline.jitter[number % len(self.pipeline.jitter)]
        return factor

    def _finish(self, number: int, *instances: tuple[int, int, int]) -> None:
        """End a run: every instance goes to the next block of its model, or its task is complete."""
        self.idle += self._kept.runs[number].lanes
        self._going = {place: other for place, other in self._going.items() if other.number != number}
        for task, model, block in instances:
            self.running[model][block] = False
            if block + 1 == self.pipeline.blocks[model]:
                self.in_flight -= 1
                self._end(task, COMPLETED)
            else:
                self.slots[model][block + 1].append((task, self.now))

    def _end(self, task: int, state: int) -> None:
        self._kept.state[task], self._kept.finish_s[task] = state, self.now
        self.present[self.trace.models[task]] -= 1

    def lengths(self) -> list[int]:
        """Tasks in every queue."""
        return list(map(len, self.queue))

    def progress(self) -> list[bool]:
        """Of every block, whether it holds an instance."""
        return [
            bool(waiting) or running
            for slots, flags in zip(self.slots, self.running, strict=True)
            for waiting, running in zip(slots, flags, strict=True)
        ]

    def record(self) -> SimulationRecord:
        """All that happened."""
        return self._kept

    def _runs_from(self, first: int) -> list[tuple[int, int, int]]:
        return [(run.combined, run.present, run.lanes) for run in self._kept.runs[first:]]

    def _tasks(self) -> tuple[Any, ...]:
        kept = self._kept
        rows = (kept.state, self.trace.times_s, kept.launched_s, kept.finish_s, self.trace.models)
        return tuple(map(np.asarray, rows))
