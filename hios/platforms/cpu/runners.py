"""Runs the program of a device on values, which are tensors by slot: its steps in order, or its streams concurrently.

A step is a stage, an operator, some on several devices at once, or several operators merged into one. A stream is a
thread that runs its operators in order: before one that reads values of other streams or devices, it blocks until all
of them have arrived; the thread that produces the last one wakes it, in launch order if several become ready at once.
Values of other devices are polled occasionally while a stream is running, and continuously by the thread that finished
last when all streams wait. The calling thread monitors for hangs.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from queue import Empty
from typing import Any

from torch import Tensor

from hios.errors import FailedCallError, PlatformError
from hios.kernels import CompiledOperator
from hios.kernels.compiled_operator import External, parts
from hios.kernels.merged import torch_dtype
from hios.platforms.cpu.thread_team import ThreadTeam, marker
from hios.platforms.program import ABORT, Buffer, Handover, ProgramStep, Row, StepProgram, StreamProgram, StreamStep
from hios.platforms.workloads import arena_tensor, deliver
from hios.workers.arena import Arena
from hios.workers.stream_threads import Done
from hios.workers.worker import Worker, reason


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator bound to slots: its function, the slots of its arguments and outputs, and its marker."""

    operator: str
    stage: int | None
    stream: int
    function: Callable[..., Any]
    arguments: tuple[int, ...]
    outputs: tuple[int, ...]
    marker: int


#: A row of an operator, or what makes those of a segment once its run is over.
RunRow = Row | Callable[[], Sequence[Row]]
#: Slot of a value, the buffer it is copied to, and the function that sets its flag.
Departure = tuple[int, Tensor, Callable[[int], None]]
#: Slot of an output of the network, and its buffer.
Result = tuple[int, Tensor]


class ValueSlots:
    """Tensors by slot; a slot is None while its value does not exist.

    Values of several networks are told apart by ``part``. ``mark`` tells the controller which operator has begun. If
    ``contiguous``, devices hand images over in the default memory format.
    """

    def __init__(self, arena: Arena, mark: Callable[[int], None], *, contiguous: bool = False) -> None:
        self.arena, self.mark = arena, mark
        self._channels_last = arena.channels_last and not contiguous
        self.tensors: list[Any] = []
        self._slots: dict[tuple[int, External], int] = {}

    def slot(self, value: External, tensor: Tensor | None = None, part: int = 0) -> int:
        """The slot of a value, created on first use."""
        if (part, value) not in self._slots:
            self._slots[part, value] = len(self.tensors)
            self.tensors.append(tensor)
        return self._slots[part, value]

    def arrive(self, handover: Handover, part: int = 0) -> int:
        """Bind a value that another device produces to its buffer; returns its slot."""
        return self.slot(handover.value, self._handed_over(handover.buffer), part)

    def departure(self, handover: Handover, part: int = 0) -> Departure:
        """A value to send to other devices."""
        buffer = self._handed_over(handover.buffer)
        return self.slot(handover.value, part=part), buffer, self.arena.setter(handover.flag)

    def run(self, call: OperatorCall) -> None:
        """Run an operator on the values in its slots."""
        self.mark(call.marker)
        tensors = self.tensors
        result = call.function(*[tensors[argument] for argument in call.arguments])
        if len(call.outputs) == 1:
            tensors[call.outputs[0]] = result
        else:
            for output, part in zip(call.outputs, parts(result, len(call.outputs)), strict=True):
                tensors[output] = part

    def _handed_over(self, buffer: Buffer) -> Tensor:
        """The same value in the memory format that operators produce, as converting costs several times a copy."""
        dtype = torch_dtype(buffer.dtype)
        return self.arena.tensor(buffer.offset, buffer.shape, dtype, channels_last=self._channels_last)


class Values(ValueSlots):
    """The values of the network that a worker has loaded."""

    def __init__(self, worker: Worker, contiguous: bool = False) -> None:
        super().__init__(worker.arena, worker.mark, contiguous=contiguous)
        self._operators: dict[str, CompiledOperator] = worker.state["operators"]
        self._outputs: dict[str, list[External]] = worker.state["outputs"]
        self._places: dict[str, int] = worker.state["graph"].index
        for value, tensor in worker.state["inputs"].items():
            self.slot(value, tensor)

    def call(self, operator: str, stage: int | None, stream: int) -> OperatorCall:
        """An operator bound to slots, at its position in the schedule."""
        compiled = self._operators[operator]
        return OperatorCall(
            operator,
            stage,
            stream,
            compiled.run,
            tuple(self.slot(value) for value in compiled.externals),
            tuple(self.slot(value) for value in self._outputs[operator]),
            marker(self._places[operator], stage, stream),
        )

    def result(self, value: External, buffer: Buffer) -> Result:
        """A value that is an output of the network."""
        return self.slot(value), arena_tensor(self.arena, buffer)

    def run_merged(self, function: Callable[[Any], tuple[Tensor, ...]], calls: Sequence[OperatorCall]) -> None:
        """Run operators that read the same value as one function, which gives the output of each."""
        self.mark(calls[0].marker)
        results = function(self.tensors[calls[0].arguments[0]])
        for call, part in zip(calls, results, strict=True):
            self.tensors[call.outputs[0]] = part

    def hand_over(self, departures: tuple[Departure, ...], results: tuple[Result, ...], epoch: int) -> None:
        """Copy values to the buffers that other devices and the controller read."""
        for slot, buffer, signal in departures:
            if self.tensors[slot] is not buffer:  # where a segment did not write it there itself
                deliver(self.tensors[slot], buffer)
            signal(epoch)
        for slot, buffer in results:
            if self.tensors[slot] is not buffer:
                deliver(self.tensors[slot], buffer)


def dead_after(steps: Sequence[Sequence[OperatorCall]]) -> list[tuple[int, ...]]:
    """By step, given as its operators, the slots made by any that nothing reads after it.

    Values are freed there, so that their memory is reused while it is still cached.
    """
    last: dict[int, int] = {}
    for number, calls in enumerate(steps):
        for call in calls:
            last.update(dict.fromkeys(call.outputs, number))
            last.update((slot, number) for slot in call.arguments if slot in last)
    return [tuple(slot for slot, at in last.items() if at == number) for number in range(len(steps))]


class BoundStep:
    """A step that runs operators, with its values bound to slots."""

    def __init__(self, program: ProgramStep, worker: Worker, values: Values, cores: tuple[int, ...]) -> None:
        self.program, self.stage = program, program.stage
        self.place = "stream 0" if program.stage is None else f"stage {program.stage}"
        arriving = "" if program.stage is None else f", {self.place}"
        lending = f"{_others(program.devices)} to be free for operator {program.groups[0][0]}"
        #: Flags to wait for, and what each stands for.
        self.waits = [
            *((value.flag, f"the output of operator {value.value[1]}{arriving}") for value in program.arrivals),
            *((flag, lending) for flag in program.free),
        ]
        for handover in program.arrivals:
            values.arrive(handover)
        places = iter(
            program.places or [(stream, self.stage) for stream, own in enumerate(program.groups) for _ in own]
        )
        self.groups = tuple(
            tuple(
                values.call(operator, stage, stream) for operator, (stream, stage) in zip(group, places, strict=False)
            )
            for group in program.groups
        )
        #: What runs instead of the groups, and adds their rows: a segment in another runtime.
        self.runs: Callable[[list[RunRow]], None] | None = None
        #: What runs instead of the groups: a function of the value that all of them read.
        self.merge: Callable[[Any], tuple[Tensor, ...]] | None = None
        if program.merged:
            self.merge = worker.state["merged"](tuple(operator for (operator,) in program.groups))
        self.departures = tuple(map(values.departure, program.departures))
        self.results = tuple(values.result(*result) for result in program.results)
        #: Values that a later segment in another runtime reads, and the buffers where it does.
        self.kept: tuple[Result, ...] = ()
        #: Cores of all its devices; empty if no operator of the program uses several.
        self.cores = cores
        #: Flag that lets the other devices go on; 0 without any.
        self.done = program.done if program.free else 0
        #: Slots that nothing reads after this step.
        self.dead: tuple[int, ...] = ()


class _Loan:
    """The cores of this device, lent to the first device of an operator until that has run."""

    def __init__(self, program: ProgramStep, worker: Worker) -> None:
        ((self.operator,),), (self.free,) = program.groups, program.free
        self.done = program.done
        self.marker = marker(worker.state["graph"].index[self.operator], None, 0)


class StepRunner:
    """A program of steps bound to compiled operators and shared memory.

    ``cores`` are those of every device by number, where operators use several; ``segments`` says whether the steps of
    the devices are segments.
    """

    def __init__(
        self, worker: Worker, program: StepProgram, cores: Mapping[int, Sequence[int]], *, segments: bool = False
    ) -> None:
        self._streams, self._clock = worker.streams, worker.clock
        self._timeout_s: float = worker.state["timeout_s"]
        self.values = Values(worker, contiguous=segments)
        wide = any(len(step.devices) > 1 for step in program.steps)
        self.steps: list[BoundStep | _Loan] = []
        for step in program.steps:
            if step.devices[0] != program.device:
                # If this device needs the values, they arrive from the first device.
                self.steps.append(_Loan(step, worker))
            else:
                used = tuple(core for device in step.devices for core in cores[device]) if wide else ()
                self.steps.append(BoundStep(step, worker, self.values, used))
        bound = [step for step in self.steps if isinstance(step, BoundStep)]
        for own, dead in zip(bound, dead_after([[*chain(*own.groups)] for own in bound]), strict=True):
            own.dead = dead
        self._team = ThreadTeam.of(worker, cores[program.device]) if wide else None
        if self._team is not None:
            for taken in dict.fromkeys(step.cores for step in self.steps if isinstance(step, BoundStep)):
                self._team.take(taken)  # starts the threads
            self._team.release()

    def run(self, epoch: int) -> list[RunRow]:
        """Run all steps; returns the rows of the operators whose values this device keeps."""
        arena, values, team = self.values.arena, self.values, self._team
        rows: list[RunRow] = []
        try:
            for step in self.steps:
                if isinstance(step, _Loan):
                    self._lend(step, epoch)
                    continue
                for flag, what in step.waits:
                    arena.wait(flag, epoch, self._timeout_s, what)
                if team is not None:
                    team.take(step.cores)
                if step.runs is not None:
                    step.runs(rows)
                elif step.merge is not None:
                    self._run_merge(step.merge, step, rows)
                elif len(step.groups) == 1:
                    self.run_group(step.groups[0], step, rows)
                else:
                    self._streams.run([partial(self.run_group, own, step, rows) for own in step.groups])
                if step.done:
                    arena.write(step.done, epoch)
                values.hand_over(step.departures, (*step.results, *step.kept), epoch)
                for slot in step.dead:
                    values.tensors[slot] = None
        finally:
            if team is not None:
                team.release()
        return rows

    def _lend(self, loan: _Loan, epoch: int) -> None:
        arena = self.values.arena
        self.values.mark(loan.marker)
        arena.write(loan.free, epoch)
        arena.wait(loan.done, epoch, self._timeout_s, f"operator {loan.operator} to end", yielding=True)

    def run_group(self, group: Sequence[OperatorCall], step: BoundStep, rows: list[RunRow]) -> None:
        """Run operators of a step one after another, and add their rows."""
        values, clock = self.values, self._clock
        for call in group:
            start = clock()
            try:
                values.run(call)
            except Exception as error:
                raise FailedCallError(f"operator {call.operator}, {step.place}: {reason(error)}") from error
            rows.append((call.operator, call.stream, call.stage, start, clock()))

    def _run_merge(self, function: Callable[[Any], tuple[Tensor, ...]], step: BoundStep, rows: list[RunRow]) -> None:
        calls = [call for (call,) in step.groups]
        start = self._clock()
        try:
            self.values.run_merged(function, calls)
        except Exception as error:
            names = ", ".join(call.operator for call in calls)
            raise FailedCallError(f"operators {names}, {step.place}: {reason(error)}") from error
        end = self._clock()
        for number, call in enumerate(calls):
            rows.append((call.operator, 0 if step.stage is None else number, step.stage, start, end))


def operator_rows(rows: Sequence[RunRow]) -> list[Row]:
    """The rows of all operators that ran."""
    return [row for own in rows for row in (own() if callable(own) else (own,))]


def _others(devices: Sequence[int]) -> str:
    """The devices but the first, in words."""
    others = sorted(devices[1:])
    return f"device{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}"


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
        self.reset()
        self.departures = tuple(values.departure(handover) for handover in program.departures)
        self.results = tuple(values.result(*result) for result in program.results)
        #: The next one of its stream.
        self.following: _Operator | None = None
        #: Operators of other streams that wait for this one's values, with these values, in launch order.
        self.dependents: tuple[tuple[_Operator, External], ...] = ()
        #: Slots that this operator may be the last to use.
        self.uses: tuple[int, ...] = ()

    def reset(self) -> None:
        """Make it as it is before a run."""
        #: Missing inputs; reset after the operator has run.
        self.missing = set(self.needs)
        #: Whether its stream is waiting for it.
        self.blocked = False
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
        self._operators = operators = [operator for stream in self._streams for operator in stream]
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
        #: How many streams have not finished, and whether they are to do so before their next operator.
        self._unfinished = 0
        self._stopped = False

    def run(self, epoch: int) -> list[RunRow]:
        """Run all streams; returns the operators' rows.

        Raises:
            FailedCallError: an operator failed, on this device or another; all streams have ended.
            PlatformError: the run hangs; streams are then left as they are.
        """
        rows: list[RunRow] = []
        first = [stream[0] for stream in self._streams]
        for operator in first:
            operator.blocked = bool(operator.needs)
        self._busy = sum(not operator.blocked for operator in first)
        self._pending = self._arrivals
        self._current = [*first]
        functions = [partial(self._run_stream, stream, epoch, rows) for stream in self._streams]
        done, self._unfinished = self._threads.start(functions), len(functions)
        try:
            self._watch(done, epoch)
        except FailedCallError:
            self._stop(done)
            raise
        return rows

    def _run_stream(self, operators: Sequence[_Operator], epoch: int, rows: list[RunRow]) -> None:
        values, clock = self._values, time.perf_counter_ns
        for operator in operators:
            self._current[operator.stream] = operator
            if operator.needs:
                operator.gate.acquire()
            if self._stopped:
                return
            start = clock()
            try:
                values.run(operator.call)
                rows.append((operator.call.operator, operator.stream, None, start, clock()))
                values.hand_over(operator.departures, operator.results, epoch)
            except Exception as error:
                raise FailedCallError(
                    f"operator {operator.call.operator}, stream {operator.stream}: {reason(error)}"
                ) from error
            self._finish(operator)
            if not self._busy:
                self._spin(epoch)
        self._current[operators[0].stream] = None

    def _finish(self, operator: _Operator) -> None:
        """Start operators that waited for this one, and free values that nothing reads any more."""
        with self._bookkeeping:
            if self._stopped:
                return
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
            if self._stopped:
                return
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
        if not self._busy:
            self._spin(epoch)
        while self._unfinished:
            try:
                error = done.get(timeout=_LOOK_S if self._pending else max(0.0, deadline - time.monotonic()))
            except Empty:
                if self._values.arena.read(ABORT):
                    raise FailedCallError("aborted") from None
                if time.monotonic() > deadline:
                    raise PlatformError(self._hanging()) from None
                self._look(epoch)
            else:
                self._unfinished -= 1
                if error is not None:
                    raise error

    def _stop(self, done: Done) -> None:
        """End all streams, of which some wait for values that will not come; afterwards all is as before a run."""
        with self._bookkeeping:
            self._stopped = True
            for operator in self._operators:
                if operator.missing:
                    operator.missing.clear()
                    operator.gate.release()
        for _ in range(self._unfinished):
            done.get()
        for operator in self._operators:
            operator.reset()
        self._users_left = dict(self._users)
        self._stopped = False

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
