"""Runs the program of a device on values, which are tensors by slot: its steps in order, or its streams concurrently.

A step is a stage, an operator, some on several devices at once, or several operators merged into one. A stream is a
thread that runs its operators in order: before one that reads values of other streams, it blocks until all of them have
arrived; the thread that produces the last one wakes it, in launch order if several become ready at once. The calling
thread monitors for hangs.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
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
from hios.workers.arena import ABORTED, Arena
from hios.workers.deadline import LOOK_S, Deadline
from hios.workers.stream_threads import Done
from hios.workers.worker import Worker, reason


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator, or several merged into one, bound to slots of arguments and outputs.

    ``places`` are its operators, each with stream and stage.
    """

    name: str
    places: tuple[tuple[str, int, int | None], ...]
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
        self._places: dict[str, int] = worker.state["graph"].index
        for value, tensor in worker.state["inputs"].items():
            self.slot(value, tensor)

    def call(self, operator: str, stage: int | None, stream: int) -> OperatorCall:
        """An operator bound to slots, at its position in the schedule."""
        return self._bound(f"operator {operator}", ((operator, stream, stage),), self._operators[operator])

    def merged(self, operators: Sequence[str], stage: int | None, run: Callable[..., Any]) -> OperatorCall:
        """Operators that read the same value as one function, which gives the output of each."""
        places = tuple((name, 0 if stage is None else number, stage) for number, name in enumerate(operators))
        own = [self._operators[name] for name in operators]
        made = tuple(value for operator in own for value in operator.outputs)
        return self._bound(f"operators {', '.join(operators)}", places, replace(own[0], outputs=made, run=run))

    def _bound(
        self, name: str, places: tuple[tuple[str, int, int | None], ...], compiled: CompiledOperator
    ) -> OperatorCall:
        operator, stream, stage = places[0]
        arguments, outputs = (tuple(map(self.slot, values)) for values in (compiled.externals, compiled.outputs))
        mark = marker(self._places[operator], stage, stream)
        return OperatorCall(name, places, compiled.run, arguments, outputs, mark)

    def result(self, value: External, buffer: Buffer) -> Result:
        """A value that is an output of the network."""
        return self.slot(value), arena_tensor(self.arena, buffer)

    def hand_over(self, departures: tuple[Departure, ...], results: tuple[Result, ...], epoch: int) -> None:
        """Copy values to the buffers that other devices and the controller read."""
        for slot, buffer, signal in departures:
            if self.tensors[slot] is not buffer:  # where a segment did not write it there itself
                deliver(self.tensors[slot], buffer)
            signal(epoch)
        for slot, buffer in results:
            if self.tensors[slot] is not buffer:
                deliver(self.tensors[slot], buffer)


def dead_after(steps: Sequence[tuple[Iterable[OperatorCall], Sequence[Departure]]]) -> list[tuple[int, ...]]:
    """By step, given as its operators and what it hands over, the slots made by any that nothing reads after it.

    Values are freed there, so that their memory is reused while it is still cached. A step may hand over what an
    earlier one made.
    """
    last: dict[int, int] = {}
    for number, (calls, departures) in enumerate(steps):
        for call in calls:
            last.update(dict.fromkeys(call.outputs, number))
            last.update((slot, number) for slot in call.arguments if slot in last)
        last.update((slot, number) for slot, *_ in departures if slot in last)
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
        self.groups: tuple[tuple[OperatorCall, ...], ...] = tuple(
            tuple(
                values.call(operator, stage, stream) for operator, (stream, stage) in zip(group, places, strict=False)
            )
            for group in program.groups
        )
        if program.merged:
            names = tuple(operator for (operator,) in program.groups)
            self.groups = ((values.merged(names, self.stage, worker.state["merged"](names)),),)
        #: What runs instead of the groups, and adds their rows: a segment in another runtime.
        self.runs: Callable[[list[RunRow]], None] | None = None
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
        for own, dead in zip(bound, dead_after([(chain(*own.groups), own.departures) for own in bound]), strict=True):
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
                raise FailedCallError(f"{call.name}, {step.place}: {reason(error)}") from error
            end = clock()
            rows += [(*place, start, end) for place in call.places]


def operator_rows(rows: Sequence[RunRow]) -> list[Row]:
    """The rows of all operators that ran."""
    return [row for own in rows for row in (own() if callable(own) else (own,))]


def _others(devices: Sequence[int]) -> str:
    """The devices but the first, in words."""
    others = sorted(devices[1:])
    return f"device{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}"


class _Operator:
    """An operator of a stream with its values bound to slots, and what it still waits for."""

    def __init__(self, program: StreamStep, stream: int, values: Values, arrivals: Mapping[External, Handover]) -> None:
        self.rank, self.stream = program.rank, stream
        self.call = values.call(program.operator, None, stream)
        #: Values of other streams that it needs, and the flags of those of other devices, with what each stands for.
        self.needs = frozenset(value for value in program.needs if value not in arrivals)
        self.waits = tuple(
            (arrivals[value].flag, f"the output of operator {value[1]}, stream {stream}")
            for value in program.needs
            if value in arrivals
        )
        self.reset()
        self.departures = tuple(values.departure(handover) for handover in program.departures)
        self.results = tuple(values.result(*result) for result in program.results)
        #: Operators of other streams that wait for this one's values, once for each, in launch order.
        self.dependents: tuple[_Operator, ...] = ()
        #: Slots that this operator may be the last to use.
        self.uses: tuple[int, ...] = ()

    def reset(self) -> None:
        """Make it as it is before a run."""
        self.missing = len(self.needs)
        # Locked except between the arrival of the last value and the start.
        self.gate = threading.Lock()
        self.gate.acquire()


class StreamRunner:
    """A stream program bound to compiled operators and shared memory."""

    def __init__(self, worker: Worker, program: StreamProgram) -> None:
        self._threads = worker.streams
        self._timeout_s: float = worker.state["timeout_s"]
        self._values = values = Values(worker)
        arrivals = {handover.value: handover for handover in program.arrivals}
        for handover in program.arrivals:
            values.arrive(handover)
        self._streams = [
            [_Operator(step, stream, values, arrivals) for step in steps]
            for stream, steps in enumerate(program.streams)
        ]
        self._operators = operators = [operator for stream in self._streams for operator in stream]
        waiting: dict[int, list[_Operator]] = defaultdict(list)
        for operator in sorted(operators, key=lambda own: own.rank):
            for value in operator.needs:
                waiting[values.slot(value)].append(operator)
        local = frozenset(slot for operator in operators for slot in operator.call.outputs)
        for operator in operators:
            found = [dependent for slot in operator.call.outputs for dependent in waiting[slot]]
            operator.dependents = tuple(sorted(found, key=lambda own: own.rank))
            operator.uses = tuple(local.intersection((*operator.call.arguments, *operator.call.outputs)))
        #: How many operators use each slot, and how many of them are still to run.
        self._users = Counter(slot for operator in operators for slot in operator.uses)
        self._users_left = dict(self._users)
        #: Guards the attributes above, and what operators miss.
        self._bookkeeping = threading.Lock()
        #: What streams are at: operators that run, and values of other devices that they wait for, by stream.
        self._running: dict[int, str] = {}
        self._waiting: dict[int, str] = {}
        #: How many streams have not finished, and whether they are to do so before their next operator.
        self._unfinished, self._stopped = 0, False

    def run(self, epoch: int) -> list[RunRow]:
        """Run all streams; returns the operators' rows.

        Raises:
            FailedCallError: an operator failed, on this device or another; all streams have ended.
            PlatformError: the run hangs; streams are then left as they are.
        """
        rows: list[RunRow] = []
        functions = [partial(self._run_stream, stream, epoch, rows) for stream in self._streams]
        done, self._unfinished = self._threads.start(functions), len(functions)
        try:
            self._watch(done)
        except FailedCallError:
            self._stop(done)
            raise
        return rows

    def _run_stream(self, operators: Sequence[_Operator], epoch: int, rows: list[RunRow]) -> None:
        values, clock, stream = self._values, time.perf_counter_ns, operators[0].stream
        for operator in operators:
            if operator.needs:
                operator.gate.acquire()
            if self._stopped:
                return
            for flag, what in operator.waits:
                self._wait(flag, epoch, what, stream)
            self._running[stream] = f"{operator.call.name}, stream {stream}"
            start = clock()
            try:
                values.run(operator.call)
                rows.append((*operator.call.places[0], start, clock()))
                values.hand_over(operator.departures, operator.results, epoch)
            except Exception as error:
                raise FailedCallError(f"{self._running[stream]}: {reason(error)}") from error
            finally:
                del self._running[stream]
            self._finish(operator)

    def _wait(self, flag: int, epoch: int, what: str, stream: int) -> None:
        """Wait for a value of another device; several streams sleep meanwhile, as others need the core."""
        self._waiting[stream] = what
        try:
            self._values.arena.wait(flag, epoch, self._timeout_s, what, sleeping=len(self._streams) > 1)
        except PlatformError:
            if self._values.arena.read(ABORT):
                raise FailedCallError(ABORTED) from None
            raise
        del self._waiting[stream]

    def _finish(self, operator: _Operator) -> None:
        """Start operators that waited for this one, and free values that nothing reads any more."""
        with self._bookkeeping:
            if self._stopped:
                return
            operator.missing = len(operator.needs)
            for dependent in operator.dependents:
                dependent.missing -= 1
                if not dependent.missing:
                    dependent.gate.release()
            for slot in operator.uses:
                self._users_left[slot] -= 1
                if self._users_left[slot] == 0:
                    self._values.tensors[slot] = None
                    self._users_left[slot] = self._users[slot]

    def _watch(self, done: Done) -> None:
        """Return when all streams have finished."""
        deadline = Deadline(self._timeout_s)
        while self._unfinished:
            try:
                error = done.get(timeout=min(deadline.left_s(), LOOK_S))
            except Empty:
                if deadline.left_s():
                    continue
                raise PlatformError(self._hanging()) from None
            self._unfinished -= 1
            if error is not None:
                raise error

    def _stop(self, done: Done) -> None:
        """End all streams, of which some wait for values that will not come; afterwards all is as before a run."""
        with self._bookkeeping:
            self._stopped = True
            for operator in self._operators:
                if operator.missing:
                    operator.missing = 0
                    operator.gate.release()
        if any(operator.waits for operator in self._operators):
            self._values.arena.write(ABORT, 1)
        for _ in range(self._unfinished):
            done.get()
        self._waiting.clear()
        for operator in self._operators:
            operator.reset()
        self._users_left = dict(self._users)
        self._stopped = False

    def _hanging(self) -> str:
        """What a hanging run waits for: an operator that does not finish, otherwise a value of another device."""
        for operator in list(self._running.values()):
            return f"{operator}, did not finish within {self._timeout_s:g} s"
        for what in list(self._waiting.values()):
            return f"waited {self._timeout_s:g} s for {what}"
        return f"the streams did not finish within {self._timeout_s:g} s"
