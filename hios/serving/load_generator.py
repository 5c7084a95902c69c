"""Open-loop load on a server: tasks are sent when the trace says, whatever has become of those before them.

Latency counts from the scheduled arrival, so a task that is sent late, or waits, shows it (no coordinated omission).
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hios.errors import HiosError
from hios.frontends.tolerances import compared
from hios.serving.admission import DeadlineError, QueueFullError
from hios.serving.measures import RepeatOutcome, Tally, variance
from hios.serving.scenario import Trace
from hios.serving.server import Server

#: What has become of a task.
_UNSENT, _OUT, _COMPLETED, _DROPPED, _EXPIRED, _FAILED = range(6)
#: The ways in which tasks end, in words.
_ENDS = {_COMPLETED: "completed", _DROPPED: "dropped", _EXPIRED: "expired", _FAILED: "failed"}
#: Time before the first task, between samples of the queues, and from which on a task counts as sent late; seconds.
_LEAD_S, _SAMPLE_S, LATE_S = 0.05, 0.02, 1e-3
#: Time between two looks at what was answered, seconds.
_LOOK_S = 0.005


@dataclass(frozen=True)
class ReferenceSample:
    """Inputs of a model, and the outputs of one inference of them when nothing else runs.

    Attributes:
        expected: what outputs are compared with where they are not exactly those: the model's own, or the same.
        explained: by output, the difference that rounding explains beyond the tolerance; empty where none is needed.
    """

    inputs: list[Tensor]
    alone: list[Tensor]
    expected: list[Tensor]
    explained: Sequence[float] = ()


@dataclass
class Progress:
    """How a repeat is going, for whoever watches: by label, what happened since the last look.

    Attributes:
        passed_s: since the first task could arrive.
        duration_s: of the repeat.
        latencies_ms: of tasks that were completed.
        ended: tasks by what became of them: completed with right outputs, dropped, expired or failed.
    """

    passed_s: float
    duration_s: float
    latencies_ms: dict[str, list[float]] = field(default_factory=dict)
    ended: dict[str, Counter[str]] = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)


class Repeat:
    """One trace of tasks sent to a server, with samples in turn as inputs, by label of the model.

    Outputs may differ by ``tolerance``, absolute plus relative. ``show`` is called about twice a second, and once all
    tasks have been answered.

    Attributes:
        late_s: by task, how late it was sent.
        wrong: the first output that was wrong, in words; empty where none was.
        unshown: why ``show`` failed for the first time; empty where it did not. It is called again all the same.
    """

    def __init__(
        self,
        server: Server,
        trace: Trace,
        duration_s: float,
        samples: Mapping[str, Sequence[ReferenceSample]],
        tolerance: float,
        show: Callable[[Progress], None] | None = None,
    ) -> None:
        self._server, self._trace, self._duration_s = server, trace, duration_s
        self._samples, self._tolerance, self._show = samples, tolerance, show
        self._labels = [model.label for model in server.scenario.models]
        counts = [itertools.count() for _ in self._labels]
        #: By task, how many of its model came before it.
        self._turns = array("q", (next(counts[model]) for model in trace.models))
        self._state = bytearray(len(trace))
        self._finish_s = array("d", bytes(8 * len(trace)))
        #: Tasks that were not answered when the time was over, and whether they were in flight.
        self._still: dict[int, bool] = {}
        self.late_s = array("d")
        self.wrong = self.unshown = ""
        #: Tasks that are out, by number; and answers that are to be looked at.
        self._out: dict[int, Future[list[Tensor]]] = {}
        self._answers: deque[tuple[int, Future[list[Tensor]]]] = deque()
        self._over = False
        self._variances: list[float] = []
        #: What `show` is to be told next: model and state of tasks that were sent or ended, and when they ended.
        self._recent: deque[tuple[int, int, float]] = deque()

    def run(self) -> RepeatOutcome:
        """Send all tasks; returns what became of them by the end."""
        server = self._server
        collector = threading.Thread(target=self._collect, name="hios answers", daemon=True)
        sampler = threading.Thread(target=self._sample, name="hios samples", daemon=True)
        busy, queued, runs, promoted = server.busy_s, server.queued_s, server.block_runs, server.promoted
        self._begin_s = time.perf_counter() + _LEAD_S
        for thread in (collector, sampler):
            thread.start()
        try:
            self._send()
            _sleep_until(self._begin_s + self._duration_s)
            busy, runs, promoted = server.busy_s - busy, server.block_runs - runs, server.promoted - promoted
            self._still = {task: answer.running() or answer.done() for task, answer in list(self._out.items())}
            after = server.queued_s
        finally:
            self._over = True
            sampler.join()
            self._let_go()
            collector.join()
            self._tell()
        tallies = self._tallies()
        for label, tally in zip(self._labels, tallies, strict=True):
            tally.queued_s = after[label] - queued[label]
        mean = sum(self._variances) / max(1, len(self._variances))
        return RepeatOutcome(tallies, busy, mean, promoted, runs)

    def _send(self) -> None:
        for task, (at_s, model) in enumerate(zip(self._trace.times_s, self._trace.models, strict=True)):
            label, scheduled = self._labels[model], self._begin_s + at_s
            sample = self._sample_of(task)
            _sleep_until(scheduled)
            self.late_s.append(max(0.0, time.perf_counter() - scheduled))
            self._note(task, _OUT)
            answer = self._server.submit(label, sample.inputs, arrived_s=scheduled)
            self._out[task] = answer
            answer.add_done_callback(functools.partial(self._done, task))

    def _done(self, task: int, answer: Future[list[Tensor]]) -> None:
        """Note when a task was answered; called from the thread that answers, which has other things to do.

        It does not wake the thread that looks at the answers, either, as they would compete for the interpreter.
        """
        self._finish_s[task] = time.perf_counter() - self._begin_s
        self._answers.append((task, answer))

    def _collect(self) -> None:
        """Look at all answers."""
        while not (self._over and not self._out and not self._answers):
            while self._answers:
                task, answer = self._answers.popleft()
                self._out.pop(task, None)
                self._note(task, self._look(task, answer))
            time.sleep(_LOOK_S)

    def _note(self, task: int, state: int) -> None:
        """Note what has become of a task."""
        self._state[task] = state
        if self._show is not None:
            self._recent.append((self._trace.models[task], state, self._finish_s[task] - self._trace.times_s[task]))

    def _sample_of(self, task: int) -> ReferenceSample:
        """The samples of a model have their turns."""
        samples = self._samples[self._labels[self._trace.models[task]]]
        return samples[self._turns[task] % len(samples)]

    def _look(self, task: int, answer: Future[list[Tensor]]) -> int:
        """What became of a task."""
        label = self._labels[self._trace.models[task]]
        # Raised here, errors would hold this frame and their answers in a cycle, and memory until a full collection.
        error = CancelledError() if answer.cancelled() else answer.exception()
        if isinstance(error, QueueFullError | CancelledError):
            return _DROPPED
        if isinstance(error, DeadlineError):
            return _EXPIRED
        if error is not None:
            self.wrong = self.wrong or str(error)
            return _FAILED
        outputs = answer.result()
        sample = self._sample_of(task)
        if not all(map(torch.equal, outputs, sample.alone)):
            for number, (output, expected) in enumerate(zip(outputs, sample.expected, strict=True)):
                off, within = compared(output, expected, self._tolerance)
                if not within and not (sample.explained and off <= sample.explained[number]):
                    self.wrong = self.wrong or (
                        f"model {label}: output {number} differs by {off:.2g} from one inference alone; allowed: "
                        f"{self._tolerance:g}"
                    )
                    return _FAILED
        return _COMPLETED

    def _sample(self) -> None:
        """Note the lengths of the queues, and show how it goes."""
        shown = time.perf_counter()
        while not self._over:
            time.sleep(_SAMPLE_S)
            now = time.perf_counter()
            if 0 <= now - self._begin_s <= self._duration_s:
                self._variances.append(variance([own.waiting for own in self._server.counts.values()]))
            if now - shown >= 0.5:
                shown = now
                self._tell()

    def _tell(self) -> None:
        """Show what happened since the last call."""
        if self._show is None:
            return
        told = Progress(
            time.perf_counter() - self._begin_s,
            self._duration_s,
            {label: [] for label in self._labels},
            {label: Counter() for label in self._labels},
        )
        while self._recent:
            model, state, latency_s = self._recent.popleft()
            label = self._labels[model]
            if state == _OUT:
                told.sent[label] += 1
                continue
            told.ended[label][_ENDS[state]] += 1
            if state == _COMPLETED:
                told.latencies_ms[label].append(latency_s * 1e3)
        try:
            self._show(told)
        except Exception as error:  # whatever it is, what is measured goes on
            self.unshown = self.unshown or (str(error) if isinstance(error, HiosError) else f"not shown: {error!r}")

    def unserved(self) -> Iterator[tuple[int, float, float, str]]:
        """Tasks that were dropped or expired by the end: model, arrival and end by ``time.perf_counter``, and which."""
        for task, (at_s, model) in enumerate(zip(self._trace.times_s, self._trace.models, strict=True)):
            if self._state[task] in (_DROPPED, _EXPIRED) and not self._is_still_out(task):
                ended_s = self._begin_s + self._finish_s[task]
                yield model, self._begin_s + at_s, ended_s, _ENDS[self._state[task]]

    def _let_go(self) -> None:
        """Give up what waits, and wait for what is in flight: the next repeat begins with nothing."""
        for answer in list(self._out.values()):
            answer.cancel()
        fillers: list[tuple[int, Future[list[Tensor]]]] = []
        with self._server.without_deadlines():
            while self._out or fillers:
                fillers = [(model, answer) for model, answer in fillers if not answer.done()]
                if self._server.pipeline.strict and not self._server.lost:
                    fillers += self._fillers([model for model, _ in fillers])
                time.sleep(_LOOK_S)

    def _fillers(self, asked: Sequence[int]) -> list[tuple[int, Future[list[Tensor]]]]:
        """Ask for tasks that nobody counts, as strict rounds with tasks in flight wait for the other models.

        Tasks of a round are answered one after another, so what is missing is counted again and again; ``asked`` are
        models of such tasks that were not answered yet.
        """
        in_flight = Counter(self._trace.models[task] for task, answer in list(self._out.items()) if answer.running())
        in_flight.update(asked)
        most = max(in_flight.values(), default=0)
        return [
            (model, self._server.submit(label, self._samples[label][0].inputs))
            for model, label in enumerate(self._labels)
            for _ in range(most - in_flight[model])
        ]

    def _is_still_out(self, task: int) -> bool:
        """Whether a task was not answered by the end."""
        return task in self._still and (self._state[task] == _OUT or self._finish_s[task] > self._duration_s)

    def _tallies(self) -> list[Tally]:
        """What became of the tasks by the end; of those still out then, whether they were in flight."""
        tallies = [Tally() for _ in self._labels]
        for task, (at_s, model) in enumerate(zip(self._trace.times_s, self._trace.models, strict=True)):
            tally, state = tallies[model], self._state[task]
            if state == _UNSENT:
                continue
            tally.offered += 1
            if self._is_still_out(task):
                tally.in_flight += self._still[task]
                tally.waiting += not self._still[task]
            elif state == _COMPLETED:
                tally.latencies_ms.append((self._finish_s[task] - at_s) * 1e3)
            else:
                tally.dropped += state == _DROPPED
                tally.expired += state == _EXPIRED
                tally.failed += state in (_FAILED, _OUT)
        return tallies


def _sleep_until(at_s: float) -> None:
    """Sleep until a time of ``time.perf_counter``."""
    while (left := at_s - time.perf_counter()) > 0:
        time.sleep(left)
