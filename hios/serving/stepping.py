"""A simulation in steps: it stops at moments, is looked at, and goes on with other combined blocks and intervals."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hios.schedulers.policy.perceptron import Array
from hios.serving.arrivals import Trace
from hios.serving.measures import variance
from hios.serving.pipeline import Pipeline, QueueRules
from hios.serving.simulator import COMPLETED, IN_FLIGHT, WAITING, Record, Simulation


@dataclass(frozen=True)
class StepMeasures:
    """What a step brought, as the reward (2) of TOP takes it.

    Attributes:
        utilisation: mean share of the lanes that was busy.
        latencies_ms: by model, mean of its tasks that were completed in the step and, as far as they have come, of
            those that are still present; 0 without any.
        variance: of the tasks that remain in the queues.
    """

    utilisation: float
    latencies_ms: tuple[float, ...]
    variance: float


class Steps(ABC):
    """A simulation that can be stopped; by numba and by the reference, which do the same.

    Attributes:
        first: what ran at the beginning.
        pipeline: what runs at present.
        trace: when tasks arrive.
        now: the moment up to which all has happened, seconds.
    """

    def __init__(self, pipeline: Pipeline, trace: Trace) -> None:
        self.first = self.pipeline = pipeline
        self.trace = trace
        self.now = 0.0
        self._times, self._models = np.array(trace.times_s, np.float64), np.array(trace.models, np.int64)
        self._changes: list[tuple[int, Pipeline]] = []
        self._counted = 0

    def run_to(self, until_s: float) -> None:
        """Carry out all events up to a moment, those of the moment itself included."""
        self._run_to(until_s)
        self.now = until_s

    def change(self, pipeline: Pipeline, queues: Sequence[QueueRules]) -> None:
        """Go on with other combined blocks and intervals, as ``Simulation.change``."""
        self.pipeline = pipeline
        self._change(pipeline, queues)

    @abstractmethod
    def lengths(self) -> list[int]:
        """Tasks in every queue."""

    @abstractmethod
    def progress(self) -> list[bool]:
        """Of every block of all models, whether an instance waits before it or runs in it (P_t)."""

    @abstractmethod
    def record(self) -> Record:
        """All that happened."""

    @abstractmethod
    def _run_to(self, until_s: float) -> None: ...

    @abstractmethod
    def _change(self, pipeline: Pipeline, queues: Sequence[QueueRules]) -> None: ...

    @abstractmethod
    def _runs_from(self, first: int) -> list[tuple[int, int, int]]:
        """Combined block, present sub-blocks and lanes of the runs from a number on."""

    @abstractmethod
    def _tasks(self) -> tuple[Array, Array, Array]:
        """By task: what became of it, when it left the queue, and when it ended; infinite where it did not."""

    def measured(self, since_s: float, latency: str = "arrival") -> StepMeasures:
        """What the time since a moment brought; call it once for every step, before the next change.

        A run counts as busy in the step in which it starts.

        Args:
            since_s: when the step began.
            latency: whether latencies count from the ``arrival`` of a task or from when it left the queue
                (``inference``).
        """
        runs = self._runs_from(self._counted)
        self._counted += len(runs)
        busy = sum(self.pipeline.busy_s[combined][present][lanes - 1] for combined, present, lanes in runs)
        share = min(1.0, busy / (self.pipeline.lanes * (self.now - since_s)))
        state, launched, ended = self._tasks()
        begin = self._times if latency == "arrival" else launched
        done = (state == COMPLETED) & (ended > since_s)
        left = (state == IN_FLIGHT) | ((state == WAITING) & (latency == "arrival"))
        means = []
        for model in range(len(self.pipeline.blocks)):
            own = self._models == model
            completed, present = own & done, own & left
            total = float((ended[completed] - begin[completed]).sum() + (self.now - begin[present]).sum())
            means.append(1e3 * total / max(1, int(completed.sum() + present.sum())))
        return StepMeasures(share, tuple(means), variance(self.lengths()))

    def latencies_ms(self) -> list[Array]:
        """By model, from arrival, those of the tasks that were completed."""
        state, _, ended = self._tasks()
        done = state == COMPLETED
        return [
            1e3 * (ended - self._times)[done & (self._models == model)] for model in range(len(self.pipeline.blocks))
        ]

    def waits_s(self) -> float:
        """Mean time since the arrival of the tasks that wait in the queues; 0 without any."""
        waiting = self._times[self._tasks()[0] == WAITING]
        return float(self.now - waiting.mean()) if len(waiting) else 0.0


class ReferenceSteps(Steps):
    """The reference simulator in steps."""

    def __init__(self, pipeline: Pipeline, queues: Sequence[QueueRules], trace: Trace, duration_s: float) -> None:
        super().__init__(pipeline, trace)
        self._simulation = Simulation(pipeline, queues, trace, duration_s)

    def lengths(self) -> list[int]:
        """Tasks in every queue."""
        return list(map(len, self._simulation.queue))

    def progress(self) -> list[bool]:
        """Of every block, whether it holds an instance."""
        return [
            bool(waiting) or running
            for slots, flags in zip(self._simulation.slots, self._simulation.running, strict=True)
            for waiting, running in zip(slots, flags, strict=True)
        ]

    def record(self) -> Record:
        """All that happened."""
        return self._simulation.record

    def _run_to(self, until_s: float) -> None:
        self._simulation.run_to(until_s)

    def _change(self, pipeline: Pipeline, queues: Sequence[QueueRules]) -> None:
        self._simulation.change(pipeline, queues)

    def _runs_from(self, first: int) -> list[tuple[int, int, int]]:
        return [(run.combined, run.present, run.lanes) for run in self._simulation.record.runs[first:]]

    def _tasks(self) -> tuple[Array, Array, Array]:
        record = self._simulation.record
        return np.array(record.state), np.array(record.launched_s), np.array(record.finish_s)


class CompiledSteps(Steps):
    """The simulator compiled by numba in steps."""

    def __init__(self, pipeline: Pipeline, queues: Sequence[QueueRules], trace: Trace, duration_s: float) -> None:
        from hios.serving import event_kernel

        super().__init__(pipeline, trace)
        self._kernel = event_kernel
        self._given = event_kernel.given_of(pipeline, queues, trace, duration_s)
        self._state = event_kernel.state_of(self._given, pipeline)

    def lengths(self) -> list[int]:
        """Tasks in every queue."""
        return [int(length) for length in self._state.tail - self._state.head]

    def progress(self) -> list[bool]:
        """Of every block, whether it holds an instance."""
        return [bool(held) for held in (self._state.slot_count > 0) | self._state.running]

    def record(self) -> Record:
        """All that happened."""
        record = self._kernel.record_of(self._state)
        record.changes = self._changes
        return record

    def _run_to(self, until_s: float) -> None:
        self._given = self._given._replace(duration=until_s)
        self._kernel.run_to_end(self._given, self._state)

    def _change(self, pipeline: Pipeline, queues: Sequence[QueueRules]) -> None:
        self._changes.append((int(self._kernel.runs_of(self._state)), pipeline))
        self._given = self._kernel.changed(self._given, self._state, pipeline, queues)

    def _runs_from(self, first: int) -> list[tuple[int, int, int]]:
        return list(map(tuple, self._state.runs[first : self._kernel.runs_of(self._state)].tolist()))

    def _tasks(self) -> tuple[Array, Array, Array]:
        return self._state.task_state, self._state.task_launch, self._state.task_finish


def begun(pipeline: Pipeline, queues: Sequence[QueueRules], trace: Trace, duration_s: float) -> Steps:
    """A simulation at its beginning, compiled where numba is installed.

    Args:
        pipeline: what runs first.
        queues: by model.
        trace: when tasks arrive.
        duration_s: when it ends at the latest.
    """
    compiled = importlib.util.find_spec("numba") is not None
    return (CompiledSteps if compiled else ReferenceSteps)(pipeline, queues, trace, duration_s)
