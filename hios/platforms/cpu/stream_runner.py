"""Runs the streams of a device concurrently.

Every stream is a thread that runs its operators in order. Before an operator that reads values of other streams or
devices, the thread blocks until all of them have arrived; the thread that produces the last one wakes it, in launch
order if several become ready at once. Values of other devices are polled occasionally while a stream is running, and
continuously by the thread that finished last when all streams wait. The calling thread monitors for hangs.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from queue import Empty

from hios.errors import PlatformError
from hios.kernels.compiled_operator import External
from hios.platforms.cpu.values import Values
from hios.platforms.device_program import ABORT, Handover, Row, StreamProgram, StreamStep
from hios.workers.stream_threads import Done
from hios.workers.worker import Worker, reason

#: How long the watching thread sleeps between polls for values, as polling takes time from streams on its core.
_LOOK_S = 50e-6
#: Polls without a pause; afterwards the watching thread polls.
_SPINS = 1 << 14


class _Operator:
    """An operator of a stream with its values bound to slots, and what it still waits for."""

    def __init__(self, program: StreamStep, stream: int, values: Values) -> None:
        self.rank = program.rank
        self.stream = stream
        self.call = values.call(program.operator, None, stream)
        self.needs = frozenset(program.needs)
        self.departures = tuple(values.departure(handover) for handover in program.departures)
        self.results = tuple(values.result(*result) for result in program.results)
        #: Missing inputs; reset after the operator has run.
        self.missing = set(self.needs)
        #: Whether its stream is waiting for it.
        self.blocked = False
        #: The next one of its stream.
        self.following: _Operator | None = None
        #: Operators of other streams that wait for this one's values, with these values, in launch order.
        self.dependents: tuple[tuple[_Operator, External], ...] = ()
        #: Slots that this operator may be the last to use.
        self.uses: tuple[int, ...] = ()
        # Locked except between the arrival of the last value and the start.
        self.gate = threading.Lock()
        self.gate.acquire()

    def arrive(self, value: External) -> bool:
        """Record that a value has arrived; the last one opens the gate. Returns whether the stream was waiting."""
        self.missing.discard(value)
        if self.missing:
            return False
        self.gate.release()
        blocked, self.blocked = self.blocked, False
        return blocked


#: A value that another device makes, and the operators that wait for it, in launch order.
_Arrival = tuple[Handover, list[_Operator]]


class StreamRunner:
    """A stream program bound to compiled operators and shared memory."""

    def __init__(self, worker: Worker, program: StreamProgram) -> None:
        self._threads = worker.streams
        self._timeout_s: float = worker.state["timeout_s"]
        self._values = Values(worker)
        for handover in program.arrivals:
            self._values.arrive(handover)
        self._streams = [
            [_Operator(step, stream, self._values) for step in steps] for stream, steps in enumerate(program.streams)
        ]
        operators = [operator for stream in self._streams for operator in stream]
        waiting: dict[External, list[_Operator]] = defaultdict(list)
        for operator in sorted(operators, key=_rank):
            for value in operator.needs:
                waiting[value].append(operator)
        made: dict[External, int] = {}
        for operator in operators:
            outputs = worker.state["outputs"][operator.call.operator]
            pairs = [(dependent, value) for value in outputs for dependent in waiting[value]]
            operator.dependents = tuple(sorted(pairs, key=lambda pair: pair[0].rank))
            made |= dict(zip(outputs, operator.call.outputs, strict=True))
        self._arrivals: list[_Arrival] = [(handover, waiting[handover.value]) for handover in program.arrivals]
        local = frozenset(made.values())
        for operator in operators:
            operator.uses = tuple(local.intersection((*operator.call.arguments, *operator.call.outputs)))
        #: How many operators use each slot, and how many of them are still to run.
        self._users = Counter(slot for operator in operators for slot in operator.uses)
        self._users_left = dict(self._users)
        for stream in self._streams:
            for before, after in pairwise(stream):
                before.following = after
        #: Guards the attributes below, and the missing inputs of operators.
        self._bookkeeping = threading.Lock()
        #: Streams that have something to run.
        self._busy = 0
        #: Values that have not arrived yet.
        self._pending: list[_Arrival] = []
        #: The operator that each stream runs or waits to run; None when it has finished.
        self._current: list[_Operator | None] = []

    def run(self, epoch: int) -> list[Row]:
        """Run all streams; returns the operators' rows.

        Raises:
            PlatformError: an operator failed, or the run hangs; streams are then left as they are.
        """
        rows: list[Row] = []
        first = [stream[0] for stream in self._streams]
        for operator in first:
            operator.blocked = bool(operator.needs)
        self._busy = sum(not operator.blocked for operator in first)
        self._pending = self._arrivals
        self._current = [*first]
        functions = [partial(self._run_stream, stream, epoch, rows) for stream in self._streams]
        self._watch(self._threads.start(functions), epoch)
        return rows

    def _run_stream(self, operators: Sequence[_Operator], epoch: int, rows: list[Row]) -> None:
        values, clock = self._values, time.perf_counter_ns
        for operator in operators:
            self._current[operator.stream] = operator
            if operator.needs:
                operator.gate.acquire()
            start = clock()
            try:
                values.run(operator.call)
                rows.append((operator.call.operator, operator.stream, None, start, clock()))
                values.hand_over(operator.departures, operator.results, epoch)
            except Exception as error:
                raise PlatformError(
                    f"operator {operator.call.operator}, stream {operator.stream}: {reason(error)}"
                ) from error
            self._finish(operator)
            if not self._busy:
                self._spin(epoch)
        self._current[operators[0].stream] = None

    def _finish(self, operator: _Operator) -> None:
        """Start operators that waited for this one, and free values that nothing reads any more."""
        with self._bookkeeping:
            operator.missing.update(operator.needs)
            self._busy += sum(dependent.arrive(value) for dependent, value in operator.dependents)
            following = operator.following
            if following is None:
                self._busy -= 1
            elif following.missing:
                following.blocked = True
                self._busy -= 1
            for slot in operator.uses:
                self._users_left[slot] -= 1
                if self._users_left[slot] == 0:
                    self._values.tensors[slot] = None
                    self._users_left[slot] = self._users[slot]

    def _spin(self, epoch: int) -> None:
        """Poll for values of other devices, as nothing can run before one arrives.

        If devices share cores, it polls once only: the producer of the value may need this core.
        """
        for _ in range(1 if self._values.arena.shares_cores else _SPINS):
            self._look(epoch)
            if self._busy or not self._pending:
                return

    def _look(self, epoch: int) -> None:
        """Start operators whose last values have arrived from other devices."""
        read = self._values.arena.read
        if not any(read(handover.flag) == epoch for handover, _ in self._pending):
            return
        with self._bookkeeping:
            pending = []
            for handover, dependents in self._pending:
                if read(handover.flag) == epoch:
                    self._busy += sum(dependent.arrive(handover.value) for dependent in dependents)
                else:
                    pending.append((handover, dependents))
            self._pending = pending

    def _watch(self, done: Done, epoch: int) -> None:
        """Return when all streams have finished."""
        deadline = time.monotonic() + self._timeout_s
        unfinished = len(self._streams)
        if not self._busy:
            self._spin(epoch)
        while unfinished:
            try:
                error = done.get(timeout=_LOOK_S if self._pending else max(0.0, deadline - time.monotonic()))
            except Empty:
                if self._values.arena.read(ABORT):
                    raise PlatformError("aborted") from None
                if time.monotonic() > deadline:
                    raise PlatformError(self._hanging()) from None
                self._look(epoch)
            else:
                if error is not None:
                    raise error
                unfinished -= 1

    def _hanging(self) -> str:
        """What a hanging run waits for: an operator that does not finish, otherwise a value of another device."""
        current = sorted((operator for operator in self._current if operator is not None), key=_rank)
        for operator in current:
            if not operator.missing:
                name, stream = operator.call.operator, operator.stream
                return f"operator {name}, stream {stream}, did not finish within {self._timeout_s:g} s"
        for (_, producer, _), dependents in ((handover.value, waiting) for handover, waiting in self._pending):
            for operator in current:
                if operator in dependents:
                    return (
                        f"waited {self._timeout_s:g} s for the output of operator {producer}, stream {operator.stream}"
                    )
        return f"the streams did not finish within {self._timeout_s:g} s"


def _rank(operator: _Operator) -> int:
    return operator.rank
