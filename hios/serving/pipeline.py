"""What a policy makes of a scenario: combined blocks with their times, lanes and launcher."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hios.core.problem import Group
from hios.core.schedule import Plan
from hios.core.sums import add_up
from hios.serving.scenario import Scenario

#: A block of a model, by their numbers.
SubBlock = tuple[int, int]
#: A stage of a combined block: groups beside each other, each with the place of its sub-block in the combined block.
UnionStage = tuple[tuple[int, Group], ...]
#: By combined block, by the sub-blocks that are present (bit k is the k-th), by the number of lanes less 1: seconds.
Times = tuple[tuple[tuple[float, ...], ...], ...]


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Combined blocks of the models of a scenario, and how the device runs them.

    A *run* takes one instance of every sub-block of a combined block that is present. Policies that run whole tasks
    have one block for each model.

    Attributes:
        lanes: lanes of the device that runs may take.
        blocks: number of blocks of every model, which run one after another.
        combined: sub-blocks of every combined block, by model, then by block; every block is in one.
        times_s: how long a run takes.
        busy_s: how long a run keeps lanes busy, all together.
        take: the lanes of a run: ``all``, so that runs follow one another; ``one``; or ``shared``, those that are idle
            divided by the number of combined blocks that could run, at least one and at most ``widest``.
        strict: whether a run waits for all its sub-blocks.
        several: whether runs of the same combined block may overlap.
        slots: instances that may wait before a block.
        in_flight: tasks of all models that may have left their queues and not have ended; None for as many as there are
            slots for. If a lane is idle, as these tasks wait for each other, another one may leave that starts at once.
        max_wait_s: a combined block with an instance that has waited longer goes first.
        stages: by combined block, its stages one after another; absent sub-blocks are left out of them. Empty where
            ``plans`` says what runs.
        plans: by model, where and in which order its operators run over the lanes; empty where ``stages`` says it.
        intervals_s: by model, seconds between two ticks of its launcher, where the policy itself decides them; else
            they are those of the scenario's launcher.
        beside: by combined block, by combined block: how many times as long a run takes that starts while one of the
            other goes on; the excesses of several add up. Empty where runs do not slow each other down.
        jitter: factors of the times of runs, taken in turn; empty for none.
        widest: by combined block, by the sub-blocks that are present: the most lanes that a run with ``shared`` lanes
            takes; empty for all of them.
        threaded: by combined block, by the sub-blocks that are present: whether a run on all lanes runs one operator
            after another, each with a thread on every lane, and not groups of operators beside each other; empty where
            no run does.
        left_s: by model, by block: time that a task has left before the block, which decides between runs with equal
            shares of their sub-blocks present: the least goes first. Empty where the oldest task does.
        crowd: how many combined blocks may be able to run while one of them still takes all ``shared`` lanes.
    """

    lanes: int
    blocks: tuple[int, ...]
    combined: tuple[tuple[SubBlock, ...], ...]
    times_s: Times
    busy_s: Times
    take: Literal["all", "one", "shared"]
    strict: bool = False
    several: bool = False
    slots: int = 1
    in_flight: int | None = None
    max_wait_s: float = math.inf
    stages: tuple[tuple[UnionStage, ...], ...] = ()
    plans: tuple[Plan, ...] = ()
    intervals_s: tuple[float, ...] | None = None
    beside: tuple[tuple[float, ...], ...] = ()
    jitter: tuple[float, ...] = ()
    widest: tuple[tuple[int, ...], ...] = ()
    threaded: tuple[tuple[bool, ...], ...] = ()
    left_s: tuple[tuple[float, ...], ...] = ()
    crowd: int = 1

    @property
    def has_threads(self) -> bool:
        """Whether some run on all lanes has a thread on every lane inside its operators."""
        return any(map(any, self.threaded))

    @property
    def at_once(self) -> int:
        """Tasks that runs can take at the same time; one more than ``crowd`` at least, if that is above 1."""
        runs = 1 if self.take == "all" else self.lanes
        return max(runs * max(map(len, self.combined)), self.crowd + 1 if self.crowd > 1 else 1)

    def most_lanes(self, combined: int, present: int) -> int:
        """The most lanes that a run takes."""
        if self.take == "one":
            return 1
        return self.widest[combined][present] if self.take == "shared" and self.widest else self.lanes

    def members(self, combined: int, present: int) -> tuple[SubBlock, ...]:
        """The sub-blocks of a combined block that are present."""
        return tuple(member for place, member in enumerate(self.combined[combined]) if present >> place & 1)

    def alone_s(self, model: int) -> float:
        """Time that a task of a model takes when nothing else runs, with as many lanes as its runs can get."""
        return add_up(self.times_s[combined][present][lanes - 1] for combined, present, lanes in self.runs_alone(model))

    def runs_alone(self, model: int) -> list[tuple[int, int, int]]:
        """Runs of a task of a model when nothing else runs: combined block, its sub-block as a bit, and lanes."""
        return [
            (number, 1 << place, self.most_lanes(number, 1 << place))
            for number, combined in enumerate(self.combined)
            for place, (owner, _) in enumerate(combined)
            if owner == model
        ]


@dataclass(frozen=True)
class QueueRules:
    """The queue of one model.

    Attributes:
        capacity: tasks that may wait.
        drop_oldest: whether a task that meets a full queue pushes out the oldest; else it is turned away.
        deadline_s: a task that is in the queue so long after its arrival expires.
        interval_s: time between two ticks of the launcher, each of which takes one task out; 0: as soon as there is
            room.
        due_s: a task is due so long after its arrival; where the number of tasks in flight is limited, the one that is
            due first is the next to leave its queue, and of those the oldest.
    """

    capacity: int
    drop_oldest: bool = False
    deadline_s: float = math.inf
    interval_s: float = 0.0
    due_s: float = 0.0


def queue_rules(scenario: Scenario, intervals_s: Sequence[float]) -> list[QueueRules]:
    """The queues of a scenario, with the intervals of its launcher.

    A task is due at its deadline, or else at the end of its SLO. Models that have neither are treated as if they had
    the longest of the others', so that no other tasks can go before theirs for ever.
    """
    stated = [model.settings.deadline_ms or model.settings.slo_ms for model in scenario.models]
    longest_ms = max((due_ms for due_ms in stated if due_ms is not None), default=0.0)
    rules = []
    for model, interval_s, due_ms in zip(scenario.models, intervals_s, stated, strict=True):
        settings = model.settings
        rules.append(
            QueueRules(
                settings.queue,
                settings.overflow == "drop-oldest",
                math.inf if settings.deadline_ms is None else settings.deadline_ms / 1e3,
                interval_s,
                (longest_ms if due_ms is None else due_ms) / 1e3,
            )
        )
    return rules
