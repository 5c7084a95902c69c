"""The control of the lanes: one thread that launches tasks, starts runs on lanes, and answers requests."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from hios.errors import HiosError
from hios.platforms.workloads import copy_alone
from hios.serving.admission import Admission, LiveTask, OperatorError, TaskFailedError
from hios.serving.instances import Instances, LiveRun
from hios.serving.lane import Answer, LaneEvent, LaneProcess
from hios.serving.pipeline import Pipeline, QueueRules
from hios.serving.rules import shared_lanes
from hios.serving.run_programs import RunPrograms
from hios.serving.simulator import next_tick
from hios.workers.arena import Arena
from hios.workers.ring import Bell
from hios.workers.worker import reason

if TYPE_CHECKING:
    from hios.serving.gpu_lane import GpuLane

#: Flag of the arena that has lanes give up waiting for each other.
_ABORT = 0
#: Longest sleep; whatever happens rings the bell.
_LONGEST_S = 0.5

#: Is told of every answer of a lane: the lane, the run, the parts of the run that it is about, and the answer.
Watch = Callable[[int, LiveRun, tuple[int, ...], Answer], None]


class Dispatcher:
    """Runs the tasks of all queues on the lanes, or on a GPU, by the rules of a pipeline.

    All state but the queues belongs to its thread; other threads ring the bell. Queues are by number of the model;
    where the pipeline has threads on all lanes, the worker that has them is the last of the lanes. A lane that takes
    longer than ``timeout_s`` for a run is ended. ``watch`` is told of every answer of a lane, ``told`` of every event
    that has been taken into account.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        programs: RunPrograms,
        queues: Sequence[Admission],
        lanes: Sequence[LaneProcess | GpuLane],
        arena: Arena,
        bell: Bell,
        timeout_s: float,
        watch: Watch | None = None,
        told: Callable[[LaneEvent], None] = lambda _: None,
    ) -> None:
        self._pipeline, self._programs, self._queues, self._lanes = pipeline, programs, queues, lanes
        self._arena, self.bell, self._timeout_s, self._watch = arena, bell, timeout_s, watch
        self._told = told
        self.instances = Instances(pipeline)
        self._values = programs.values
        #: Slots that are free, by number of the `Slots`. One always is where it is needed, by how many there are.
        self._free = {slots.number: list(range(len(slots.offsets))) for own in self._values for slots in own.slots}
        #: By model and block, numbers of the slots that nothing reads after the block.
        self._released = [
            [[slots.number for slots in own.slots if slots.last == block] for block in range(len(own.blocks))]
            for own in self._values
        ]
        self._buffers = {
            slots.number: [arena.tensor(offset, slots.shape, getattr(torch, slots.dtype)) for offset in slots.offsets]
            for own in self._values
            for slots in (*own.inputs, *own.outputs)
        }
        self._events: deque[LaneEvent] = deque()
        self._changes: deque[tuple[Pipeline, Sequence[QueueRules]]] = deque()
        #: Lanes that are up; those that never will be again; and those that have been.
        self._up: set[int] = set()
        self._gone: set[int] = set()
        self._begun: set[int] = set()
        self._runs: dict[int, LiveRun] = {}
        #: Numbers of runs on several lanes of which one has died; the others are to stop waiting for its values.
        self._given_up: set[int] = set()
        #: Tasks that have left their queues and are not answered yet, in this order.
        self._taken: dict[LiveTask, None] = {}
        #: By model, time between two ticks of its launcher, seconds; 0: as soon as there is room.
        self._intervals_s = [queue.rules.interval_s for queue in queues]
        self._began_s = time.perf_counter()
        self._ticks = [self._began_s] * len(queues)
        #: By model, whether a tick of its launcher waits for room for a task; with a limit of tasks in flight.
        self._due_tick = [False] * len(queues)
        self._ending = self._draining = False
        #: Why no run is possible any more; empty as long as runs are possible.
        self.lost = ""
        #: Requests that waited when their queues were closed.
        self._refused: list[LiveTask] = []
        self._thread = threading.Thread(target=self._loop, name="hios dispatcher", daemon=True)
        #: Time that its lanes were busy, seconds; processor time of the thread, seconds; and when it was noted.
        self.busy_s = self.control_s = 0.0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def event(self, event: LaneEvent) -> None:
        """Wake the thread because a lane changed its state; called from other threads."""
        self._events.append(event)
        self.bell.ring()

    def change(self, pipeline: Pipeline, queues: Sequence[QueueRules]) -> None:
        """Switch to other combined blocks, whose programs lanes have, and other intervals; called from other threads.

        Runs that have started end as they would have. A launcher with a new interval begins with the first multiple of
        it that is still to come. Nothing else of the queues may differ.
        """
        self._changes.append((pipeline, queues))
        self.bell.ring()

    def stop(self, *, drain: bool) -> None:
        """Stop the thread after all requests are answered, or at once, in which case the remaining ones fail."""
        self._draining, self._ending = drain, True
        self.bell.ring()
        if self._thread.ident is not None:
            self._thread.join()
        self._refuse("the server is closed")
        self._answer_rest("the server is closed")

    @property
    def up(self) -> int:
        """Number of lanes that are up."""
        return sum(lane < self._pipeline.lanes for lane in tuple(self._up))

    def _loop(self) -> None:
        try:
            self._serve()
        except Exception as error:  # whatever it is, callers must not wait for ever
            why = f"the dispatcher failed: {type(error).__name__}: {reason(error)}"
            self._lose(why)
            self._answer_rest(why)
            self._told(LaneEvent(0, "lost", why))

    def _serve(self) -> None:
        used = time.thread_time
        while not self.lost:
            now = time.perf_counter()
            self._read_answers(now)
            self._take_events(now)
            self._take_changes(now)
            wake = min(self._expire(now), self._launch(now), self._check_hanging(now))
            self._start_all(now)
            self.control_s = used()
            if self._ending and not (self._draining and self._has_work()):
                return
            self.bell.sleep(min(wake - time.perf_counter(), _LONGEST_S))

    def _has_work(self) -> bool:
        if self._runs or self.instances.due():
            return True
        # In strict rounds a task may wait for one of another model that never comes.
        return any(
            len(queue) and (not self._pipeline.strict or self.instances.has_room(model))
            for model, queue in enumerate(self._queues)
        )

    # Queues

    def _expire(self, now: float) -> float:
        return min((at for queue in self._queues if (at := queue.expire(now)) is not None), default=math.inf)

    def _launch(self, now: float) -> float:
        """Let tasks leave their queues; returns when the next tick is.

        A tick that finds no task or no room is lost (D2). Where the number of tasks in flight is limited, a tick that
        finds a task but no room waits, as long as there is a task.
        """
        following = math.inf
        for model, interval_s in enumerate(self._intervals_s):
            self._due_tick[model] &= len(self._queues[model]) > 0
            if interval_s > 0:
                if now >= self._ticks[model]:
                    if self._pipeline.in_flight is not None:
                        self._due_tick[model] = len(self._queues[model]) > 0
                    elif self.instances.has_room(model):
                        self._launch_one(model, now)
                    passed = math.floor((now - self._began_s) / interval_s) + 1
                    self._ticks[model] = self._began_s + passed * interval_s
                following = min(following, self._ticks[model])
        self._launch_all(now)
        return following

    def _launch_all(self, now: float) -> None:
        """Let tasks leave their queues as long as there is room; an empty queue is not locked for that."""
        if self._pipeline.in_flight is None:
            for model, (queue, interval_s) in enumerate(zip(self._queues, self._intervals_s, strict=True)):
                while interval_s == 0 and len(queue) and self.instances.has_room(model):
                    self._launch_one(model, now)
            return
        while self._launch_first(self.instances.has_room, now):
            pass

    def _launch_first(self, able: Callable[[int], bool], now: float) -> bool:
        """Let the task that is due first leave its queue, of the models that are able to; whether there is one."""
        able_now = [
            (queue.due(), model)
            for model, (queue, interval_s) in enumerate(zip(self._queues, self._intervals_s, strict=True))
            if len(queue) and (interval_s == 0 or self._due_tick[model]) and able(model)
        ]
        if able_now:
            self._launch_one(min(able_now)[1], now)
        return bool(able_now)

    def _launch_one(self, model: int, now: float) -> None:
        task = self._queues[model].take()
        if task is None:
            return
        self._due_tick[model] = False
        self._taken[task] = None
        try:
            self._copy_inputs(task)
        except Exception as error:  # its caller may have changed them: that is no reason to fail others
            self._answer(task, f"inputs: {reason(error)}")
            return
        self.instances.launch(task, now)

    def _copy_inputs(self, task: LiveTask) -> None:
        """Copy the inputs of a task into slots of the arena; HiosError if they are not those that were accepted."""
        for slots, value in zip(self._values[task.model].inputs, task.inputs, strict=True):
            slot = task.slots[slots.number] = self._free[slots.number].pop()
            buffer = self._buffers[slots.number][slot]
            if value.shape != buffer.shape or value.dtype != buffer.dtype:
                raise HiosError(f"found {list(value.shape)}; allowed: as they were sent, {list(buffer.shape)}")
            copy_alone(value, buffer)
        task.inputs = ()

    def _take_changes(self, now: float) -> None:
        while self._changes:
            self._pipeline, queues = self._changes.popleft()
            before, self._intervals_s = self._intervals_s, [rules.interval_s for rules in queues]
            self.instances.change(self._pipeline)
            passed = now - self._began_s
            for model, interval_s in enumerate(self._intervals_s):
                if interval_s != before[model]:
                    number = next_tick(passed, interval_s) if interval_s > 0 else 0
                    self._ticks[model] = self._began_s + number * interval_s if interval_s > 0 else now

    # Runs

    def _idle(self) -> list[int]:
        lanes = range(self._pipeline.lanes)
        busy = {lane for run in self._runs.values() for lane in run.orders}
        if len(lanes) in busy:  # the worker with a thread on every lane
            return []
        return [lane for lane in lanes if lane in self._up and lane not in busy]

    def _start_all(self, now: float) -> None:
        """Start runs until no lane is idle or no instance is waiting."""
        while (idle := self._idle()) and not (self._pipeline.take == "all" and self._runs):
            due = self.instances.due()
            if not due:  # perhaps tasks in flight wait for each other
                if not self._launch_first(self.instances.could_start, now):
                    return
                continue
            run = self.instances.start(*self.instances.first(due, now), now)
            self._runs[run.number] = run
            try:
                self._send(run, idle[0], together=self._takes_all(run, len(idle), len(due)))
            except HiosError as error:
                run.fail(tuple(range(len(run.members))), str(error))
            if any(block == 0 for _, block in run.members):  # the others leave no room for tasks in queues
                self._launch_all(now)

    def _takes_all(self, run: LiveRun, idle: int, due: int) -> bool:
        """Whether a run takes all lanes: they are idle, it gains by that, and not too much else could run on them."""
        if self._programs.joined:
            return True
        pipeline = self._pipeline
        if not 1 < pipeline.lanes == idle == pipeline.most_lanes(run.combined, run.present):
            return False
        if pipeline.take == "shared" and shared_lanes(pipeline.lanes, idle, due, pipeline.crowd) < idle:
            return False
        _, workers = self._programs.together[run.members]
        return self._up.issuperset(workers)

    def _send(self, run: LiveRun, lane: int, *, together: bool) -> None:
        """Send the orders of a run: to all lanes, or to one, block by block."""
        stated = self._programs.slots_of(run.members)
        for place, slots in stated:
            task = run.tasks[place]
            if slots.made == run.members[place][1]:
                task.slots[slots.number] = self._free[slots.number].pop()
        if together:
            program, lanes = self._programs.together[run.members]
            every = tuple(range(len(run.members)))
            chosen = [run.tasks[place].slots[slots.number] for place, slots in stated]
            for taking_part in lanes:
                run.orders[taking_part] = deque([every])
            for taking_part in lanes:
                self._lanes[taking_part].send(run.number, program, chosen)
            return
        run.orders[lane] = deque((place,) for place in range(len(run.members)))
        for place, member in enumerate(run.members):
            own = [run.tasks[place].slots[slots.number] for part, slots in stated if part == place]
            self._lanes[lane].send(run.number, self._programs.alone[member], own)

    def _check_hanging(self, now: float) -> float:
        """Stop lanes that exceed the time limit; returns when the next one will."""
        following = math.inf
        for run in self._runs.values():
            if now < run.began_s + self._timeout_s:
                following = min(following, run.began_s + self._timeout_s)
                continue
            run.fail(tuple(range(len(run.members))), f"it did not end within {self._timeout_s:g} s")
            run.began_s = now
            for lane in run.orders:
                self._lanes[lane].kill()
        return following

    # Answers

    def _read_answers(self, now: float) -> None:
        for lane in self._lanes:
            while (answer := lane.answer()) is not None:
                self._take_answer(lane.number, answer, now)

    def _take_answer(self, lane: int, answer: Answer, now: float) -> None:
        run = self._runs.get(answer.run)
        if run is None or lane not in run.orders:
            return
        places = run.orders[lane].popleft()
        taken = self._pipeline.lanes if lane == self._pipeline.lanes else 1
        self.busy_s += taken * (answer.ended_ns - answer.began_ns) / 1e9
        if answer.aborted:
            run.fail(places, answer.why)
        raised = tuple(place for bit, place in enumerate(places) if answer.failed >> bit & 1)
        for place in raised:
            run.tasks[place].raised |= place not in run.failed
        run.fail(raised, answer.why)
        if self._watch is not None:
            self._watch(lane, run, places, answer)
        if not run.orders[lane]:
            del run.orders[lane]
            self._finish_if_over(run, now)

    def _finish_if_over(self, run: LiveRun, now: float) -> None:
        if run.orders:
            return
        del self._runs[run.number]
        self._end_waiting(run)
        ended = self.instances.finish(run, now)
        gone = {id(task) for task, _ in ended}
        for (model, block), task in zip(run.members, run.tasks, strict=True):
            if id(task) not in gone:
                for number in self._released[model][block]:
                    self._free[number].append(task.slots.pop(number))
        for task, why in ended:
            self._answer(task, why)

    def _end_waiting(self, run: LiveRun) -> None:
        """Lower the abort flag after the last run that was given up.

        Until then a lane may be inside an operator, and wait for a value of such a run afterwards. No other run on
        several lanes can have started meanwhile, as that takes all lanes, and these are busy (`_takes_all`).
        """
        if run.number in self._given_up:
            self._given_up.discard(run.number)
            if not self._given_up:
                self._arena.write(_ABORT, 0)

    def _answer(self, task: LiveTask, why: str | None) -> None:
        """Answer a request, and free the slots of its instance."""
        outputs = []
        if why is None:
            for slots in self._values[task.model].outputs:
                buffer = self._buffers[slots.number][task.slots[slots.number]]
                outputs.append(copy_alone(buffer, torch.empty(buffer.shape, dtype=buffer.dtype)))
        for number, slot in task.slots.items():
            self._free[number].append(slot)
        task.slots.clear()
        del self._taken[task]
        queue = self._queues[task.model]
        queue.end(failed=why is not None)
        if why is None:
            task.answer.set_result(outputs)
        else:
            kind = OperatorError if task.raised else TaskFailedError
            task.answer.set_exception(kind(f"model {queue.label}: {why}"))

    # Lanes

    def _take_events(self, now: float) -> None:
        while self._events:
            event = self._events.popleft()
            if event.kind == "ready":
                self._up.add(event.lane)
                self._begun.add(event.lane)
            else:
                ends = event.kind == "lost" and self._is_last(event.lane)
                if ends:
                    self._lose(event.why)
                self._end_lane(event, now)
                if ends:
                    self._answer_rest(event.why)
            self._told(event)

    def _is_last(self, lane: int) -> bool:
        """Whether the server ends with a lane that is lost: it was the last, or not all lanes have been up yet."""
        self._gone.add(lane)
        return self._gone.issuperset(range(self._pipeline.lanes)) or len(self._begun) < len(self._lanes)

    def _end_lane(self, event: LaneEvent, now: float) -> None:
        """Fail what a lane that is down or lost did not answer."""
        self._up.discard(event.lane)
        self._read_answers(now)  # what the lane still answered counts
        for run in [run for run in self._runs.values() if event.lane in run.orders]:
            places = tuple(place for order in run.orders.pop(event.lane) for place in order)
            run.fail(places, event.why)
            if run.orders:
                self._given_up.add(run.number)
                self._arena.write(_ABORT, 1)  # others may wait for values of this lane
            self._finish_if_over(run, now)
        self._lanes[event.lane].clear()

    def _lose(self, why: str) -> None:
        """Note that nothing runs any more, before anybody is told: who knows it is refused."""
        self._refuse(why)
        self.lost = why

    def _refuse(self, why: str) -> None:
        """Take no requests from now on."""
        self._refused += [task for queue in self._queues for task in queue.close(why)]

    def _answer_rest(self, why: str) -> None:
        """Fail all remaining requests, as nothing will run them; instances and runs need not be consistent any more."""
        error = f"not run: {why}"
        self._runs.clear()
        self.instances.drain()
        for task in list(self._taken):
            self._answer(task, error)
        while self._refused:
            task = self._refused.pop(0)
            task.answer.set_exception(TaskFailedError(f"model {self._queues[task.model].label}: {error}"))
