"""Runs the steps of a device in order: stages, or operators of which some use several devices at once or are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from hios.errors import PlatformError
from hios.platforms.cpu.progress_marker import marker
from hios.platforms.cpu.thread_team import ThreadTeam
from hios.platforms.cpu.values import OperatorCall, Values
from hios.platforms.device_program import ProgramStep, Row, StepProgram
from hios.workers.worker import Worker, reason


class _Step:
    """A step that runs operators, with its values bound to slots."""

    def __init__(self, program: ProgramStep, worker: Worker, values: Values, cores: tuple[int, ...]) -> None:
        self.stage = program.stage
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
        self.groups = tuple(
            tuple(values.call(operator, program.stage, stream) for operator in group)
            for stream, group in enumerate(program.groups)
        )
        #: What runs instead of the groups: a function of the value that all of them read.
        self.merge: Callable[[Any], tuple[Tensor, ...]] | None = None
        if program.merged:
            self.merge = worker.state["merged"](tuple(operator for (operator,) in program.groups))
        self.departures = tuple(map(values.departure, program.departures))
        self.results = tuple(values.result(*result) for result in program.results)
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

    Args:
        worker: where they run, loaded.
        program: what the device does.
        cores: of every device by number, where operators use several.
    """

    def __init__(self, worker: Worker, program: StepProgram, cores: Mapping[int, Sequence[int]]) -> None:
        self._streams, self._clock = worker.streams, worker.clock
        self._timeout_s: float = worker.state["timeout_s"]
        self._values = Values(worker)
        wide = any(len(step.devices) > 1 for step in program.steps)
        self._steps: list[_Step | _Loan] = []
        for step in program.steps:
            if step.devices[0] != program.device:
                # If this device needs the values, they arrive from the first device.
                self._steps.append(_Loan(step, worker))
            else:
                used = tuple(core for device in step.devices for core in cores[device]) if wide else ()
                self._steps.append(_Step(step, worker, self._values, used))
        self._mark_dead()
        self._team = ThreadTeam.of(worker, cores[program.device]) if wide else None
        if self._team is not None:
            for taken in dict.fromkeys(step.cores for step in self._steps if isinstance(step, _Step)):
                self._team.take(taken)  # starts the threads
            self._team.release()

    def _mark_dead(self) -> None:
        """Mark where each value is read last: it is freed there, so that its memory is reused while still cached."""
        steps = [step for step in self._steps if isinstance(step, _Step)]
        last: dict[int, int] = {}
        for number, step in enumerate(steps):
            for call in (call for group in step.groups for call in group):
                last.update(dict.fromkeys(call.outputs, number))
                last.update((slot, number) for slot in call.arguments if slot in last)
        for number, step in enumerate(steps):
            step.dead = tuple(slot for slot, at in last.items() if at == number)

    def run(self, epoch: int) -> list[Row]:
        """Run all steps; returns the rows of the operators whose values this device keeps."""
        arena, values, team = self._values.arena, self._values, self._team
        rows: list[Row] = []
        try:
            for step in self._steps:
                if isinstance(step, _Loan):
                    self._lend(step, epoch)
                    continue
                for flag, what in step.waits:
                    arena.wait(flag, epoch, self._timeout_s, what)
                if team is not None:
                    team.take(step.cores)
                if step.merge is not None:
                    self._run_merge(step.merge, step, rows)
                elif len(step.groups) == 1:
                    self._run_group(step.groups[0], 0, step, rows)
                else:
                    functions = [
                        partial(self._run_group, own, number, step, rows) for number, own in enumerate(step.groups)
                    ]
                    self._streams.run(functions)
                if step.done:
                    arena.write(step.done, epoch)
                values.hand_over(step.departures, step.results, epoch)
                for slot in step.dead:
                    values.tensors[slot] = None
        finally:
            if team is not None:
                team.release()
        return rows

    def _lend(self, loan: _Loan, epoch: int) -> None:
        arena = self._values.arena
        self._values.mark(loan.marker)
        arena.write(loan.free, epoch)
        arena.wait(loan.done, epoch, self._timeout_s, f"operator {loan.operator} to end", yielding=True)

    def _run_group(self, group: Sequence[OperatorCall], stream: int, step: _Step, rows: list[Row]) -> None:
        values, clock = self._values, self._clock
        for call in group:
            start = clock()
            try:
                values.run(call)
            except Exception as error:
                raise PlatformError(f"operator {call.operator}, {step.place}: {reason(error)}") from error
            rows.append((call.operator, stream, step.stage, start, clock()))

    def _run_merge(self, function: Callable[[Any], tuple[Tensor, ...]], step: _Step, rows: list[Row]) -> None:
        calls = [call for (call,) in step.groups]
        start = self._clock()
        try:
            self._values.run_merged(function, calls)
        except Exception as error:
            names = ", ".join(call.operator for call in calls)
            raise PlatformError(f"operators {names}, {step.place}: {reason(error)}") from error
        end = self._clock()
        for number, call in enumerate(calls):
            rows.append((call.operator, 0 if step.stage is None else number, step.stage, start, end))


def _others(devices: Sequence[int]) -> str:
    """The devices but the first, in words."""
    others = sorted(devices[1:])
    return f"device{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}"
