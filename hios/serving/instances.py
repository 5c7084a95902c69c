"""Which instances wait before which block, and which run is next: the rules of the simulator, for real tasks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from hios.serving.admission import Task
from hios.serving.pipeline import Pipeline, SubBlock


@dataclass(eq=False)
class Run:
    """Instances that run together: one of each sub-block of a combined block that is present.

    Attributes:
        number: above 0, of no other run.
        combined: number of the combined block.
        present: bit k is set where its k-th sub-block has an instance.
        members: those sub-blocks.
        tasks: an instance for each of them.
        began_s: when it was started, by ``time.perf_counter``.
        orders: by lane, the parts of the run that each order of the lane covers, in the order in which they were sent.
        failed: why, by the place of the sub-block among the members.
    """

    number: int
    combined: int
    present: int
    members: tuple[SubBlock, ...]
    tasks: tuple[Task, ...]
    began_s: float
    orders: dict[int, deque[tuple[int, ...]]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)

    def fail(self, places: tuple[int, ...], why: str) -> None:
        """Note that some instances failed; the first reason stays."""
        for place in places:
            self.failed.setdefault(place, why)


class _Due(NamedTuple):
    """A combined block that could run; the one with the least of the first four numbers goes first.

    Attributes:
        less_share: minus the share of its sub-blocks that are present.
        left_s: the least time that one of the tasks has left, where that counts.
        arrived_s: when the oldest task among its instances arrived.
        since_s: since when one of them has waited.
        present: the sub-blocks that are present, as bits.
    """

    less_share: float
    left_s: float
    arrived_s: float
    since_s: float
    present: int


class Instances:
    """Instances of all models in the slots before their blocks.

    Args:
        pipeline: combined blocks, and how they run.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._slots: list[list[deque[Task]]] = [[deque() for _ in range(count)] for count in pipeline.blocks]
        self._running = [[0] * count for count in pipeline.blocks]
        self._numbers = 0
        #: Tasks that have been launched and have not ended.
        self.in_flight = 0
        #: Runs that went first as an instance had waited too long; blocks that ran, an instance each.
        self.promoted = self.block_runs = 0
        self.change(pipeline)

    def change(self, pipeline: Pipeline) -> None:
        """Go on with other combined blocks of the same blocks and slots; instances keep their places."""
        self._pipeline = pipeline
        self._home = {member: number for number, members in enumerate(pipeline.combined) for member in members}
        #: Combined blocks that could run, with their ranks; and those for which that may have changed since.
        self._due: dict[int, _Due] = {}
        self._changed = set(range(len(pipeline.combined)))
        self._members: dict[tuple[int, int], tuple[SubBlock, ...]] = {}

    def progress(self) -> list[bool]:
        """Of every block of all models, whether an instance waits before it or runs in it (P_t); from any thread."""
        return [
            bool(waiting) or running > 0
            for slots, counts in zip(self._slots, self._running, strict=True)
            for waiting, running in zip(slots, counts, strict=True)
        ]

    def has_room(self, model: int) -> bool:
        """Whether a task of a model may leave its queue."""
        limit = self._pipeline.in_flight
        return len(self._slots[model][0]) < self._pipeline.slots and (limit is None or self.in_flight < limit)

    def could_start(self, model: int) -> bool:
        """Whether a task of a model could start at once, were it not for the limit of tasks in flight."""
        pipeline, slots = self._pipeline, self._slots[model]
        if pipeline.in_flight is None or pipeline.strict or slots[0]:
            return False
        if self._running[model][0] and not pipeline.several:
            return False
        return len(slots) == 1 or len(slots[1]) < pipeline.slots

    def launch(self, model: int, task: Task, now_s: float) -> None:
        """Put a task before the first block of its model."""
        task.since_s = now_s
        self.in_flight += 1
        self._slots[model][0].append(task)
        self._note(model, 0)

    def _note(self, model: int, block: int) -> None:
        """Slots of a block changed: it, or the one before it, may run now or not any more."""
        self._changed.add(self._home[model, block])
        if block:
            self._changed.add(self._home[model, block - 1])

    def due(self) -> list[tuple[int, int]]:
        """Combined blocks that could run now, each with its sub-blocks that are present, as bits."""
        for combined in self._changed:
            if present := self._ready(combined):
                self._due[combined] = self._ranked(combined, present)
            else:
                self._due.pop(combined, None)
        self._changed.clear()
        return [(combined, self._due[combined].present) for combined in sorted(self._due)]

    def _ready(self, combined: int) -> int:
        """A sub-block can run if it has an instance and the one after it has room for the result (TOP.md, D6)."""
        ready, able = 0, set()
        members = self._pipeline.combined[combined]
        for place in reversed(range(len(members))):
            model, block = members[place]
            if not self._slots[model][block] or (self._running[model][block] and not self._pipeline.several):
                continue
            last = block + 1 == self._pipeline.blocks[model]
            has_room = last or len(self._slots[model][block + 1]) < self._pipeline.slots
            if has_room or (model, block + 1) in able:
                able.add((model, block))
                ready |= 1 << place
        return 0 if self._pipeline.strict and len(able) < len(members) else ready

    def _ranked(self, combined: int, present: int) -> _Due:
        members = self._of(combined, present)
        waiting = [self._slots[model][block][0] for model, block in members]
        share = len(waiting) / len(self._pipeline.combined[combined])
        left_s = self._pipeline.least_left_s(members)
        arrived_s, since_s = (min(task.arrived_s for task in waiting), min(task.since_s for task in waiting))
        return _Due(-share, left_s, arrived_s, since_s, present)

    def first(self, due: list[tuple[int, int]], now_s: float) -> tuple[int, int]:
        """The highest effective input ratio, ties by what has least time left, if that counts, then by the oldest task.

        First of all what has waited too long (D3).

        Args:
            due: what `due` has just returned; not empty.
            now_s: by ``time.perf_counter``.
        """
        ranks, limit_s = self._due, now_s - self._pipeline.max_wait_s
        by_ratio = min(due, key=lambda entry: ranks[entry[0]][:4])
        late = [entry for entry in due if ranks[entry[0]].since_s < limit_s]
        chosen = min(late, key=lambda entry: ranks[entry[0]][2:4]) if late else by_ratio
        self.promoted += chosen != by_ratio
        return chosen

    def _of(self, combined: int, present: int) -> tuple[SubBlock, ...]:
        """The sub-blocks that are present."""
        if (combined, present) not in self._members:
            members = self._pipeline.combined[combined]
            there = tuple(member for place, member in enumerate(members) if present >> place & 1)
            self._members[combined, present] = there
        return self._members[combined, present]

    def start(self, combined: int, present: int, now_s: float) -> Run:
        """Take the instances of a run out of their slots."""
        members = self._of(combined, present)
        tasks = tuple(self._slots[model][block].popleft() for model, block in members)
        for model, block in members:
            self._running[model][block] += 1
            self._note(model, block)
        self._numbers += 1
        self.block_runs += len(members)
        return Run(self._numbers, combined, present, members, tasks, now_s)

    def finish(self, run: Run, now_s: float) -> list[tuple[int, Task, str | None]]:
        """End a run: instances go to their next blocks.

        Returns:
            Tasks that this ends, each with the number of its model, and why it failed or None.
        """
        ended: list[tuple[int, Task, str | None]] = []
        for place, ((model, block), task) in enumerate(zip(run.members, run.tasks, strict=True)):
            self._running[model][block] -= 1
            self._changed.add(self._home[model, block])
            why = run.failed.get(place)
            if why is not None or block + 1 == self._pipeline.blocks[model]:
                ended.append((model, task, why))
                self.in_flight -= 1
            else:
                task.since_s = now_s
                self._slots[model][block + 1].append(task)
                self._note(model, block + 1)
        return ended

    def drain(self) -> list[tuple[int, Task]]:
        """Take all instances out, as they will not run."""
        drained: list[tuple[int, Task]] = []
        for model, slots in enumerate(self._slots):
            for waiting in slots:
                drained += [(model, task) for task in waiting]
                waiting.clear()
        self.in_flight -= len(drained)
        self._changed.update(self._home.values())
        return drained
