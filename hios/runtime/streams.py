"""Running the streams of a stream program on its device.

Every stream is a thread that runs its operators in order. Before an operator that reads values of other streams or
devices it waits, blocked, until all of them are there; whoever makes the last of them lets it go on, in launch order
where several become ready at once. The calling thread watches: it lets streams go on whose values arrive from other
devices, and says what hangs.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from queue import Empty

from hios.errors import PlatformError
from hios.kernels.unit import External
from hios.platforms.streams import Done
from hios.platforms.worker import Worker
from hios.runtime.program import ABORT, Handover, Row, StreamProgram, StreamStep
from hios.runtime.values import Values

#: How long the watching thread sleeps between looks at values that are to arrive. It has the core of its device to
#: share with the streams, so it must not spin.
_LOOK_S = 20e-6


class _Operator:
    """An operator of a stream with its values bound to slots, and what keeps it from starting."""

    def __init__(self, program: StreamStep, stream: int, values: Values) -> None:
        self.rank = program.rank
        self.stream = stream
        self.step = values.step(program.operator)
        self.needs = frozenset(program.needs)
        self.departures = tuple(values.departure(handover) for handover in program.departures)
        self.results = tuple(values.result(*result) for result in program.results)
        #: What is not there yet. Full again when the operator has run.
        self.missing = set(self.needs)
        #: Operators of other streams that wait for this one's values, with these values, in launch order.
        self.dependents: tuple[tuple[_Operator, External], ...] = ()
        #: Slots that this operator may be the last to use.
        self.uses: tuple[int, ...] = ()
        # Locked but for the moment between the arrival of the last value and the start.
        self.gate = threading.Lock()
        self.gate.acquire()

    def arrive(self, value: External) -> None:
        """A value is there; the last one opens the gate. One caller at a time."""
        self.missing.discard(value)
        if not self.missing:
            self.gate.release()


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
            outputs = worker.state["outputs"][operator.step.operator]
            found = [(dependent, value) for value in outputs for dependent in waiting[value]]
            operator.dependents = tuple(sorted(found, key=lambda pair: pair[0].rank))
            made |= dict(zip(outputs, operator.step.outputs, strict=True))
        self._arrivals: list[_Arrival] = [(handover, waiting[handover.value]) for handover in program.arrivals]
        local = frozenset(made.values())
        for operator in operators:
            operator.uses = tuple(local.intersection((*operator.step.arguments, *operator.step.outputs)))
        #: How many operators use each slot, and how many of them are still to run.
        self._users = Counter(slot for operator in operators for slot in operator.uses)
        self._users_left = dict(self._users)
        self._bookkeeping = threading.Lock()
        #: The operator that each stream runs or waits to run; None when it has finished.
        self._current: list[_Operator | None] = []

    def run(self, epoch: int) -> list[Row]:
        """Run all streams; returns the operators' rows.

        Raises:
            PlatformError: an operator failed, or nothing happens any more; streams are left as they are then.
        """
        rows: list[Row] = []
        self._current = [stream[0] for stream in self._streams]
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
                values.run(operator.step)
                rows.append((operator.step.operator, operator.stream, None, start, clock()))
                values.hand_over(operator.departures, operator.results, epoch)
            except Exception as error:
                raise PlatformError(f"operator {operator.step.operator}, stream {operator.stream}: {error}") from error
            self._finish(operator)
        self._current[operators[0].stream] = None

    def _finish(self, operator: _Operator) -> None:
        """Let operators start that waited for this one, and values go that nothing reads any more."""
        with self._bookkeeping:
            operator.missing.update(operator.needs)
            for dependent, value in operator.dependents:
                dependent.arrive(value)
            for slot in operator.uses:
                self._users_left[slot] -= 1
                if self._users_left[slot] == 0:
                    self._values.tensors[slot] = None
                    self._users_left[slot] = self._users[slot]

    def _watch(self, done: Done, epoch: int) -> None:
        """Return when all streams have finished."""
        deadline = time.monotonic() + self._timeout_s
        pending = self._arrivals
        unfinished = len(self._streams)
        while unfinished:
            pending = [arrival for arrival in pending if not self._arrived(arrival, epoch)]
            try:
                error = done.get(timeout=_LOOK_S if pending else max(0.0, deadline - time.monotonic()))
            except Empty:
                if self._values.arena.read(ABORT):
                    raise PlatformError("aborted") from None
                if time.monotonic() > deadline:
                    raise PlatformError(self._hanging()) from None
            else:
                if error is not None:
                    raise error
                unfinished -= 1

    def _arrived(self, arrival: _Arrival, epoch: int) -> bool:
        """Whether a value of another device is there; if so, lets operators start that waited for it."""
        handover, dependents = arrival
        if self._values.arena.read(handover.flag) != epoch:
            return False
        with self._bookkeeping:
            for dependent in dependents:
                dependent.arrive(handover.value)
        return True

    def _hanging(self) -> str:
        """What a run waits for: an operator that does not finish, else a value of another device."""
        current = sorted((operator for operator in self._current if operator is not None), key=_rank)
        for operator in current:
            if not operator.missing:
                name, stream = operator.step.operator, operator.stream
                return f"operator {name}, stream {stream}, did not finish within {self._timeout_s:g} s"
        remote = {handover.value for handover, _ in self._arrivals}
        operator, value = next((operator, value) for operator in current for value in operator.missing & remote)
        return f"waited {self._timeout_s:g} s for the output of operator {value[1]}, stream {operator.stream}"


def _rank(operator: _Operator) -> int:
    return operator.rank
