"""What a simulation records, and what that amounts to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hios.serving.arrivals import Trace
from hios.serving.event_kernel import COMPLETED, DROPPED, EXPIRED, IN_FLIGHT, WAITING
from hios.serving.measures import RepeatOutcome, Tally
from hios.serving.pipeline import Pipeline


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


def outcome(record: SimulationRecord, pipeline: Pipeline, trace: Trace, duration_s: float) -> RepeatOutcome:
    """What a record amounts to; runs count as busy up to the end."""
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
    busy = sum(
        _busy_s(run, own, duration_s) for run, own in zip(record.runs, _pipelines(record, pipeline), strict=False)
    )
    blocks = sum(run.present.bit_count() for run in record.runs)
    return RepeatOutcome(tallies, busy, record.variance_s / duration_s, record.promoted, blocks)


def _pipelines(record: SimulationRecord, pipeline: Pipeline) -> Iterator[Pipeline]:
    """The pipeline of every run."""
    begun = 0
    for count, after in record.changes:
        yield from itertools.repeat(pipeline, count - begun)
        begun, pipeline = count, after
    yield from itertools.repeat(pipeline)


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
