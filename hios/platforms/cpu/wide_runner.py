"""Runs a device's part of a plan with operators that use several devices at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hios.errors import PlatformError
from hios.platforms.cpu.progress_marker import marker
from hios.platforms.cpu.thread_team import ThreadTeam
from hios.platforms.cpu.values import Step, Values
from hios.platforms.device_program import Row, WideProgram, WideStep
from hios.workers.worker import Worker, reason


class _Wide:
    """An operator; on the first of its devices, with its values bound to slots."""

    def __init__(self, program: WideStep, device: int, place: int, values: Values) -> None:
        self.operator, self.devices = program.operator, program.devices
        self.free, self.done = program.free, program.done
        runs = program.devices[0] == device
        self.marker = marker(place, None, 0)
        self.arrivals = tuple((handover.flag, handover.value[1]) for handover in program.arrivals)
        for handover in program.arrivals:
            values.arrive(handover)
        #: None on a device that only gives its cores: there its values, if they are needed, arrive.
        self.step = values.step(program.operator, None, 0) if runs else None
        self.departures = tuple(map(values.departure, program.departures))
        self.results = tuple(values.result(*result) for result in program.results)
        #: Cores of all its devices.
        self.cores: tuple[int, ...] = ()
        #: Slots that nothing reads after this operator.
        self.dead: tuple[int, ...] = ()


class WideRunner:
    """A device's operators, one after another, bound to compiled operators and shared memory.

    Args:
        worker: where they run, loaded.
        program: what the device does.
        cores: of every device, by its number.
    """

    def __init__(self, worker: Worker, program: WideProgram, cores: Mapping[int, Sequence[int]]) -> None:
        self._worker = worker
        self._timeout_s: float = worker.state["timeout_s"]
        self._values = Values(worker)
        places = worker.state["graph"].index
        self._steps = [_Wide(step, program.device, places[step.operator], self._values) for step in program.steps]
        self._team = ThreadTeam.of(worker, cores[program.device])
        for wide in self._steps:
            wide.cores = tuple(core for device in wide.devices for core in cores[device])
        self._mark_dead()
        for taken in dict.fromkeys(wide.cores for wide in self._steps if wide.step is not None):
            self._team.take(taken)  # starts the threads
        self._team.release()

    def _mark_dead(self) -> None:
        """Mark where each value is read last: it is freed there, so that its memory is reused while still cached."""
        last: dict[int, int] = {}
        for number, wide in enumerate(self._steps):
            if wide.step is not None:
                last.update(dict.fromkeys(wide.step.outputs, number))
                last.update((slot, number) for slot in wide.step.arguments if slot in last)
        for number, wide in enumerate(self._steps):
            wide.dead = tuple(slot for slot, at in last.items() if at == number)

    def run(self, epoch: int) -> list[Row]:
        """Run all operators; returns the rows of those whose values this device keeps."""
        rows: list[Row] = []
        try:
            for wide in self._steps:
                if wide.step is not None:
                    rows.append(self._run(wide, wide.step, epoch))
                else:
                    self._give(wide, epoch)
        finally:
            self._team.release()
        return rows

    def _others(self, wide: _Wide) -> str:
        """The other devices of an operator, in words."""
        others = sorted(wide.devices[1:])
        return f"device{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}"

    def _give(self, wide: _Wide, epoch: int) -> None:
        """Lend the cores of this device to the first device of an operator until it is done."""
        arena = self._values.arena
        self._values.mark(wide.marker)
        arena.write(wide.free[0], epoch)
        arena.wait(wide.done, epoch, self._timeout_s, f"operator {wide.operator} to end", yielding=True)

    def _run(self, wide: _Wide, step: Step, epoch: int) -> Row:
        arena, values, clock = self._values.arena, self._values, self._worker.clock
        for flag, producer in wide.arrivals:
            arena.wait(flag, epoch, self._timeout_s, f"the output of operator {producer}")
        for flag in wide.free:
            arena.wait(flag, epoch, self._timeout_s, f"{self._others(wide)} to be free for operator {wide.operator}")
        self._team.take(wide.cores)
        start = clock()
        try:
            values.run(step)
        except Exception as error:
            raise PlatformError(f"operator {wide.operator}, stream 0: {reason(error)}") from error
        end = clock()
        if wide.free:
            arena.write(wide.done, epoch)
        values.hand_over(wide.departures, wide.results, epoch)
        for slot in wide.dead:
            values.tensors[slot] = None
        return wide.operator, 0, None, start, end
