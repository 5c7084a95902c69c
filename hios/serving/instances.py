"""Which instances wait before which block, and which run is next: the rules of the simulator, for real tasks."""

from __future__ import annotations

import functools
from collections import deque
from dataclasses import dataclass, field

from hios.serving.admission import LiveTask
from hios.serving.pipeline import Pipeline, SubBlock
from hios.serving.rules import Rank, could_start, has_room, rank, ready, rules_of


@dataclass(eq=False)
class LiveRun:
    """Instances that run together: one of each sub-block of a combined block that is present.

    Attributes:
        number: above 0, of no other run.
        present: bit k is set where its k-th sub-block has an instance.
        tasks: an instance for each of them.
        began_s: when it was started, by ``time.perf_counter``.
        orders: by lane, the parts of the run that each order of the lane covers, in the order in which they were sent.
        failed: why, by the place of the sub-block among the members.
    """

    number: int
    combined: int
    present: int
    members: tuple[SubBlock, ...]
    tasks: tuple[LiveTask, ...]
    began_s: float
    orders: dict[int, deque[tuple[int, ...]]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)

    def fail(self, places: tuple[int, ...], why: str) -> None:
        """Note that some instances failed; the first reason stays."""
        for place in places:
            self.failed.setdefault(place, why)


class Instances:
    """Instances of all models in the slots before their blocks."""

    def __init__(self, pipeline: Pipeline) -> None:
        #: Numbers of the blocks, one model after another, as `Rules` counts them.
        members = [(model, block) for model, count in enumerate(pipeline.blocks) for block in range(count)]
        self._number = {member: number for number, member in enumerate(members)}
        self._waiting: list[deque[LiveTask]] = [deque() for _ in members]
        self._held, self._running = [0] * len(members), [0] * len(members)
        #: When the task arrived whose instance is the first to wait, and since when that has waited.
        self._oldest, self._since = [0.0] * len(members), [0.0] * len(members)
        self._numbers = 0
        #: Tasks that have been launched and have not ended.
        self.in_flight = 0
        #: Runs that went first as an instance had waited too long; blocks that ran, an instance each.
        self.promoted = self.block_runs = 0
        self.change(pipeline)

    def change(self, pipeline: Pipeline) -> None:
        """Go on with other combined blocks of the same blocks and slots; instances keep their places."""
        self._pipeline, self._rules = pipeline, rules_of(pipeline, lambda _, values: list(values))
        home = {member: number for number, members in enumerate(pipeline.combined) for member in members}
        #: By block, the number of its combined block.
        self._homes = [home[member] for member in self._number]
        #: Combined blocks that could run, with their sub-blocks that are present and their ranks; and those for which
        #: that may have changed since.
        self._due: dict[int, tuple[int, Rank]] = {}
        self._changed = set(range(len(pipeline.combined)))
        self._members = functools.cache(pipeline.members)

    def progress(self) -> list[bool]:
        """Of every block of all models, whether an instance waits before it or runs in it (P_t); from any thread."""
        return [held + running > 0 for held, running in zip(self._held, self._running, strict=True)]

    def has_room(self, model: int) -> bool:
        """Whether a task of a model may leave its queue."""
        return has_room(self._rules, self._held, self.in_flight, model)

    def could_start(self, model: int) -> bool:
        """Whether a task of a model could start at once, were it not for the limit of tasks in flight."""
        return could_start(self._rules, self._held, self._running, model)

    def launch(self, task: LiveTask, now_s: float) -> None:
        """Put a task before the first block of its model."""
        self.in_flight += 1
        self._put((task.model, 0), task, now_s)

    def _put(self, member: SubBlock, task: LiveTask, now_s: float) -> None:
        task.since_s = now_s
        self._waiting[self._number[member]].append(task)
        self._note(member)

    def _note(self, member: SubBlock) -> None:
        """Slots of a block changed: it, or the one before it, may run now or not any more."""
        number = self._number[member]
        waiting = self._waiting[number]
        self._held[number] = len(waiting)
        if waiting:
            self._oldest[number], self._since[number] = waiting[0].arrived_s, waiting[0].since_s
        self._changed.add(self._homes[number])
        if member[1]:
            self._changed.add(self._homes[number - 1])

    def due(self) -> list[tuple[int, int]]:
        """Combined blocks that could run now, each with its sub-blocks that are present, as bits."""
        for combined in self._changed:
            if present := ready(self._rules, self._held, self._running, combined):
                self._due[combined] = present, rank(self._rules, self._oldest, self._since, combined, present)
            else:
                self._due.pop(combined, None)
        self._changed.clear()
        return [(combined, self._due[combined][0]) for combined in sorted(self._due)]

    def first(self, due: list[tuple[int, int]], now_s: float) -> tuple[int, int]:
        """The least rank of what `due` has just returned, except that what has waited too long goes first (D3)."""
        ranks = {entry: self._due[entry[0]][1] for entry in due}
        by_rank = min(due, key=ranks.__getitem__)
        late = [entry for entry in due if ranks[entry][3] < now_s - self._pipeline.max_wait_s]
        chosen = min(late, key=lambda entry: ranks[entry][2:]) if late else by_rank
        self.promoted += chosen != by_rank
        return chosen

    def start(self, combined: int, present: int, now_s: float) -> LiveRun:
        """Take the instances of a run out of their slots."""
        members = self._members(combined, present)
        tasks = tuple(self._waiting[self._number[member]].popleft() for member in members)
        for member in members:
            self._running[self._number[member]] += 1
            self._note(member)
        self._numbers += 1
        self.block_runs += len(members)
        return LiveRun(self._numbers, combined, present, members, tasks, now_s)

    def finish(self, run: LiveRun, now_s: float) -> list[tuple[LiveTask, str | None]]:
        """End a run: instances go to their next blocks; returns tasks that this ends, with why they failed or None."""
        ended: list[tuple[LiveTask, str | None]] = []
        for place, ((model, block), task) in enumerate(zip(run.members, run.tasks, strict=True)):
            number = self._number[model, block]
            self._running[number] -= 1
            self._changed.add(self._homes[number])
            why = run.failed.get(place)
            if why is not None or block + 1 == self._pipeline.blocks[model]:
                ended.append((task, why))
                self.in_flight -= 1
            else:
                self._put((model, block + 1), task, now_s)
        return ended

    def drain(self) -> list[tuple[int, LiveTask]]:
        """Take all instances out, as they will not run."""
        drained: list[tuple[int, LiveTask]] = []
        for model, block in self._number:
            waiting = self._waiting[self._number[model, block]]
            drained += [(model, task) for task in waiting]
            waiting.clear()
            self._note((model, block))
        self.in_flight -= len(drained)
        return drained
