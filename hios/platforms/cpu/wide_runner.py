"""Runs a device's part of a plan with operators that use several devices at once, or are merged into one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from hios.errors import PlatformError
from hios.platforms.cpu.progress_marker import marker
from hios.platforms.cpu.thread_team import ThreadTeam
from hios.platforms.cpu.values import Values
from hios.platforms.device_program import Row, WideProgram, WideStep
from hios.workers.worker import Worker, reason


class _Wide:
    """An operator, or several merged into one; on the first of its devices, with its values bound to slots."""

    def __init__(self, program: WideStep, device: int, worker: Worker, values: Values) -> None:
        self.operator, self.devices = program.operator, program.devices
        self.free, self.done = program.free, program.done
        runs = program.devices[0] == device
        self.marker = marker(worker.state["graph"].index[program.operator], None, 0)
        self.arrivals = tuple((handover.flag, handover.value[1]) for handover in program.arrivals)
        for handover in program.arrivals:
            values.arrive(handover)
        names = program.merged or (program.operator,)
        #: Empty on a device that only lends its cores; if it needs the values, they arrive from the first device.
        self.steps = tuple(values.step(name, None, 0) for name in names) if runs else ()
        #: What runs instead of several steps.
        self.merge: Callable[[Any], tuple[Tensor, ...]] | None = (
            worker.state["merged"](program.merged) if runs and program.merged else None
        )
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
        self._steps = [_Wide(step, program.device, worker, self._values) for step in program.steps]
        self._team = ThreadTeam.of(worker, cores[program.device])
        for wide in self._steps:
            wide.cores = tuple(core for device in wide.devices for core in cores[device])
        self._mark_dead()
        for taken in dict.fromkeys(wide.cores for wide in self._steps if wide.steps):
            self._team.take(taken)  # starts the threads
        self._team.release()

    def _mark_dead(self) -> None:
        """Mark where each value is read last: it is freed there, so that its memory is reused while still cached."""
        last: dict[int, int] = {}
        for number, wide in enumerate(self._steps):
            for step in wide.steps:
                last.update(dict.fromkeys(step.outputs, number))
                last.update((slot, number) for slot in step.arguments if slot in last)
        for number, wide in enumerate(self._steps):
            wide.dead = tuple(slot for slot, at in last.items() if at == number)

    def run(self, epoch: int) -> list[Row]:
        """Run all operators; returns the rows of those whose values this device keeps."""
        rows: list[Row] = []
        try:
            for wide in self._steps:
                if wide.steps:
                    rows += self._run(wide, epoch)
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

    def _run(self, wide: _Wide, epoch: int) -> list[Row]:
        arena, values, clock = self._values.arena, self._values, self._worker.clock
        for flag, producer in wide.arrivals:
            arena.wait(flag, epoch, self._timeout_s, f"the output of operator {producer}")
        for flag in wide.free:
            arena.wait(flag, epoch, self._timeout_s, f"{self._others(wide)} to be free for operator {wide.operator}")
        self._team.take(wide.cores)
        start = clock()
        try:
            if wide.merge is None:
                values.run(wide.steps[0])
            else:
                values.run_merged(wide.merge, wide.steps)
        except Exception as error:
            names = ", ".join(step.operator for step in wide.steps)
            what = "operator" if wide.merge is None else "operators"
            raise PlatformError(f"{what} {names}, stream 0: {reason(error)}") from error
        end = clock()
        if wide.free:
            arena.write(wide.done, epoch)
        values.hand_over(wide.departures, wide.results, epoch)
        for slot in wide.dead:
            values.tensors[slot] = None
        return [(step.operator, 0, None, start, end) for step in wide.steps]
