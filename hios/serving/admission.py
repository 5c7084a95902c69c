"""Requests and the queues that they wait in: bounded, with deadlines, and counted whatever becomes of them."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from torch import Tensor

from hios.errors import HiosError
from hios.serving.pipeline import QueueRules


class QueueFullError(HiosError):
    """A full queue rejected the request, or dropped it in favor of a newer one."""


class DeadlineError(HiosError):
    """The deadline of a request passed while it was waiting."""


class TaskFailedError(HiosError):
    """An operator raised, or a lane died, during the run of a request."""


class OperatorError(TaskFailedError):
    """An operator raised, which it would do again with these inputs."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class LiveTask:
    """One request for one model, by its number; ``answer`` gets the outputs, or why there are none.

    Attributes:
        arrived_s: when it arrived, by ``time.perf_counter``.
        slots: slots of the arena that hold the values of its instance, by number of the `Slots`.
        since_s: since when the instance waits before its next block.
        number: of no other request of its server, from 1.
        raised: whether an operator raised.
    """

    model: int
    inputs: Sequence[Tensor]
    answer: Future[list[Tensor]]
    arrived_s: float
    slots: dict[int, int] = field(default_factory=dict)
    since_s: float = 0.0
    number: int = 0
    raised: bool = False


@dataclass(slots=True)
class Counts:
    """Numbers of requests for one model, by outcome."""

    offered: int = 0
    completed: int = 0
    dropped: int = 0
    expired: int = 0
    failed: int = 0
    waiting: int = 0
    in_flight: int = 0

    @property
    def unaccounted(self) -> int:
        """Requests that are not accounted for; anything but 0 is an error."""
        ended = self.completed + self.dropped + self.expired + self.failed
        return self.offered - ended - self.waiting - self.in_flight


class Admission:
    """The queue of one model. Any thread may put requests in; one takes them out.

    Where it is ``patient``, requests may wait for as long as it takes, in spite of the deadline.
    """

    def __init__(self, label: str, rules: QueueRules) -> None:
        self.label, self.rules = label, rules
        self.patient = False
        self._waiting: deque[LiveTask] = deque()
        self._lock = threading.Lock()
        self._counts = Counts()
        self._closed = ""
        #: Integral over time of the number of requests that wait, and up to when it goes.
        self._queued_s, self._noted_s = 0.0, time.perf_counter()

    def put(self, task: LiveTask) -> None:
        """Enqueue a request, or drop one; its caller is notified. A closed queue raises HiosError."""
        # The answer must not hold the task, which holds it: memory of a cycle is free only after a full collection.
        task.answer.add_done_callback(functools.partial(self._forget, weakref.ref(task)))
        with self._lock:
            if self._closed:
                raise HiosError(f"model {self.label}: not taken: {self._closed}")
            self._counts.offered += 1
            full = len(self._waiting) >= self.rules.capacity
            dropped = None if not full else self._waiting.popleft() if self.rules.drop_oldest else task
            if dropped is not task:
                self._note()
                self._waiting.append(task)
            if dropped is not None:
                self._counts.dropped += 1
        if dropped is not None and dropped.answer.set_running_or_notify_cancel():
            dropped.answer.set_exception(
                QueueFullError(
                    f"model {self.label}: the queue is full, {self.rules.capacity} requests wait; send fewer, or later"
                )
            )

    def _forget(self, request: weakref.ref[LiveTask], answer: Future[list[Tensor]]) -> None:
        """Remove a request that its caller canceled, which frees its place."""
        task = request()
        if task is None or not answer.cancelled():
            return
        with self._lock, contextlib.suppress(ValueError):  # taken out already
            self._note()
            self._waiting.remove(task)
            self._counts.dropped += 1

    def take(self) -> LiveTask | None:
        """The oldest request, which then is in flight; None if none waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    return None
                self._note()
                task = self._waiting.popleft()
                if task.answer.set_running_or_notify_cancel():
                    self._counts.in_flight += 1
                    return task
                self._counts.dropped += 1  # its caller gave it up just now

    def due(self) -> tuple[float, int]:
        """When the oldest request is due, and its number; infinite if none waits."""
        with self._lock:
            if not self._waiting:
                return math.inf, 0
            return self._waiting[0].arrived_s + self.rules.due_s, self._waiting[0].number

    def expire(self, now_s: float) -> float | None:
        """Expire requests whose deadline has passed; returns the next deadline, or None."""
        deadline_s = self.rules.deadline_s
        if deadline_s == math.inf or self.patient:
            return None
        gone = []
        with self._lock:
            while self._waiting and self._waiting[0].arrived_s + deadline_s <= now_s:
                self._note()
                gone.append(self._waiting.popleft())
            self._counts.expired += len(gone)
            following = self._waiting[0].arrived_s + deadline_s if self._waiting else None
        for task in gone:
            if task.answer.set_running_or_notify_cancel():
                task.answer.set_exception(
                    DeadlineError(f"model {self.label}: the deadline passed after {deadline_s * 1e3:g} ms in the queue")
                )
        return following

    def end(self, *, failed: bool) -> None:
        """Note that a request that was in flight has been answered."""
        with self._lock:
            self._counts.in_flight -= 1
            self._counts.failed += failed
            self._counts.completed += not failed

    def close(self, why: str) -> list[LiveTask]:
        """Close the queue and empty it; returns the requests whose callers have to be notified."""
        with self._lock:
            self._closed = why
            self._note()
            gone = list(self._waiting)
            self._waiting.clear()
            self._counts.dropped += len(gone)
        return [task for task in gone if task.answer.set_running_or_notify_cancel()]

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def counts(self) -> Counts:
        """Numbers of all requests so far, by outcome."""
        with self._lock:
            return replace(self._counts, waiting=len(self._waiting))

    def waits_s(self, now_s: float) -> tuple[float, int]:
        """Sum of the times that waiting requests have waited, and their number."""
        with self._lock:
            return sum(now_s - task.arrived_s for task in self._waiting), len(self._waiting)

    @property
    def queued_s(self) -> float:
        """Integral over time of the number of requests that wait, seconds."""
        with self._lock:
            self._note()
            return self._queued_s

    def _note(self) -> None:
        now = time.perf_counter()
        self._queued_s += len(self._waiting) * (now - self._noted_s)
        self._noted_s = now
