"""Runs the stages of a device in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from hios.errors import PlatformError
from hios.platforms.cpu.values import Step, Values
from hios.platforms.device_program import Row, StagedProgram, StageProgram
from hios.workers.worker import Worker, reason

#: Function and the operators that it merges.
_Merge = tuple[Callable[[Any], tuple[Tensor, ...]], tuple[Step, ...]]


class _Stage:
    """A stage with its values bound to slots."""

    def __init__(self, program: StageProgram, values: Values) -> None:
        self.number = program.number
        self.arrivals = tuple((handover.flag, handover.value[1]) for handover in program.arrivals)
        for handover in program.arrivals:
            values.arrive(handover)
        self.groups = tuple(
            tuple(values.step(operator, program.number, stream) for operator in group)
            for stream, group in enumerate(program.groups)
        )
        self.departures = tuple(map(values.departure, program.departures))
        self.results = tuple(values.result(*result) for result in program.results)
        #: What runs instead of the groups.
        self.merge: _Merge | None = None
        #: Slots that nothing reads after this stage.
        self.dead: tuple[int, ...] = ()


class StagedRunner:
    """A staged program bound to compiled operators and shared memory."""

    def __init__(self, worker: Worker, program: StagedProgram) -> None:
        self._streams, self._clock = worker.streams, worker.clock
        self._timeout_s: float = worker.state["timeout_s"]
        self._values = Values(worker)
        self._stages = [_Stage(stage, self._values) for stage in program.stages]
        for stage, bound in zip(program.stages, self._stages, strict=True):
            if stage.merged:
                bound.merge = _merge(worker, [step for (step,) in bound.groups])
        self._mark_dead()

    def _mark_dead(self) -> None:
        """Mark where each value is read last: it is freed there, so that its memory is reused while still cached."""
        last: dict[int, int] = {}
        for number, stage in enumerate(self._stages):
            for group in stage.groups:
                for step in group:
                    last.update(dict.fromkeys(step.outputs, number))
                    last.update((slot, number) for slot in step.arguments if slot in last)
        for number, stage in enumerate(self._stages):
            stage.dead = tuple(slot for slot, at in last.items() if at == number)

    def run(self, epoch: int) -> list[Row]:
        """Run all stages; returns the operators' rows."""
        arena, values = self._values.arena, self._values
        rows: list[Row] = []
        for stage in self._stages:
            for flag, producer in stage.arrivals:
                arena.wait(flag, epoch, self._timeout_s, f"the output of operator {producer}, stage {stage.number}")
            if stage.merge is not None:
                self._run_merge(stage.merge, stage.number, rows)
            elif len(stage.groups) == 1:
                self._run_group(stage.groups[0], 0, stage.number, rows)
            else:
                self._streams.run(
                    [
                        partial(self._run_group, group, stream, stage.number, rows)
                        for stream, group in enumerate(stage.groups)
                    ]
                )
            values.hand_over(stage.departures, stage.results, epoch)
            for slot in stage.dead:
                values.tensors[slot] = None
        return rows

    def _run_group(self, group: Sequence[Step], stream: int, stage: int, rows: list[Row]) -> None:
        values, clock = self._values, self._clock
        for step in group:
            start = clock()
            try:
                values.run(step)
            except Exception as error:
                raise PlatformError(f"operator {step.operator}, stage {stage}: {reason(error)}") from error
            rows.append((step.operator, stream, stage, start, clock()))

    def _run_merge(self, merge: _Merge, stage: int, rows: list[Row]) -> None:
        function, steps = merge
        operators = [step.operator for step in steps]
        start = self._clock()
        try:
            self._values.run_merged(function, steps)
        except Exception as error:
            raise PlatformError(f"operators {', '.join(operators)}, stage {stage}: {reason(error)}") from error
        end = self._clock()
        rows += [(operator, stream, stage, start, end) for stream, operator in enumerate(operators)]


def _merge(worker: Worker, steps: Sequence[Step]) -> _Merge:
    """Several operators as one merged operator; all read the same value."""
    return worker.state["merged"](tuple(step.operator for step in steps)), tuple(steps)
