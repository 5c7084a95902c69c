"""A simulation of a pipeline; between steps it is looked at, and goes on with other combined blocks and intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hios.serving.arrivals import Trace
from hios.serving.event_kernel import (
    COMPLETED,
    IN_FLIGHT,
    PROMOTED,
    RUNS,
    WAITING,
    ArrayRows,
    ListRows,
    Row,
    Rows,
    changed,
    compiled_kernels,
    given_of,
    has_numba,
    state_of,
)
from hios.serving.measures import variance
from hios.serving.pipeline import Pipeline, QueueRules
from hios.serving.rules import KERNELS
from hios.serving.simulator import BlockRun, SimulationRecord


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


class Simulation:
    """One repeat: all tasks of a trace through a pipeline.

    Args:
        pipeline: what runs first.
        queues: by model.
        trace: when tasks arrive.
        duration_s: when it ends at the latest.
        compiled: whether numba compiles it; if None, where numba is installed. It does the same either way.
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
        self._changes: list[tuple[int, Pipeline]] = []
        self._counted = 0
        functions = compiled_kernels() if compiled else KERNELS
        self._run_to_end, self._start_all = functions["run_to_end"], functions["start_all"]
        self._rows: Rows = ArrayRows if compiled else ListRows
        self.given = given_of(pipeline, queues, trace, duration_s, self._rows)
        self.state = state_of(self.given, pipeline, trace, self._rows)

    def run(self) -> SimulationRecord:
        """Carry out all events up to the end."""
        self.run_to(self.given.duration)
        return self.record()

    def run_to(self, until_s: float) -> None:
        """Carry out all events up to a moment, those of the moment itself included."""
        self.given = self.given._replace(duration=until_s)
        self._run_to_end(self.given, self.state)
        self.now = until_s

    def change(self, pipeline: Pipeline, queues: Sequence[QueueRules]) -> None:
        """Go on with other combined blocks and intervals (D13).

        Runs that have started end as they would have, and slow others down as the combined block that now holds their
        first sub-block; instances keep their places. Each launcher begins with the first multiple of its new interval
        from now on.

        Args:
            pipeline: of the same models, blocks, lanes and slots.
            queues: by model; only their intervals may differ.
        """
        self.pipeline = pipeline
        self._changes.append((self.runs, pipeline))
        self.given = changed(self.given, self.state, pipeline, queues, self._rows)
        self._start_all(self.given, self.state)

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
        state, arrived, launched, ended, models = self._tasks()
        begin = arrived if latency == "arrival" else launched
        done = (state == COMPLETED) & (ended > since_s)
        left = (state == IN_FLIGHT) | ((state == WAITING) & (latency == "arrival"))
        means = []
        for model in range(len(self.pipeline.blocks)):
            own = models == model
            completed, present = own & done, own & left
            total = float((ended[completed] - begin[completed]).sum() + (self.now - begin[present]).sum())
            means.append(1e3 * total / max(1, int(completed.sum() + present.sum())))
        return StepMeasures(share, tuple(means), variance(self.lengths()))

    def latencies_ms(self) -> list[Any]:
        """By model, from arrival, those of the tasks that were completed: an array."""
        state, arrived, _, ended, models = self._tasks()
        done = state == COMPLETED
        return [1e3 * (ended - arrived)[done & (models == model)] for model in range(len(self.pipeline.blocks))]

    def waits_s(self) -> float:
        """Mean time since the arrival of the tasks that wait in the queues; 0 without any."""
        state, arrived, *_ = self._tasks()
        waiting = arrived[state == WAITING]
        return float(self.now - waiting.mean()) if len(waiting) else 0.0


def _plain(row: Row) -> list[Any]:
    """A row as a list of its own."""
    return list(row) if isinstance(row, list) else row.tolist()
