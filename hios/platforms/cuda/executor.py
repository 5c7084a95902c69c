"""Programs that are prepared once, captured in a CUDA graph if possible, and run repeatedly."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from hios.core.schedule import Plan
from hios.errors import PlatformError
from hios.formats.run import SegmentResult
from hios.platforms.cuda import launch
from hios.platforms.cuda.compiled_network import Network
from hios.platforms.cuda.graph_pool import cause, is_out_of_memory
from hios.platforms.cuda.launch import Backend, Launched, LaunchProgram, LaunchRow
from hios.platforms.cuda.segments import PACKED, Chooser, by_operators

#: Launches before a capture: libraries choose algorithms and allocate workspaces in the first ones.
_WARM_UP = 2
#: Runs timed by operator; the one of median length is shown.
_TIMED = 5
#: Runs of a schedule by segments, and by operators, of which the faster is kept.
_COMPARED = 21
#: Ratio up to which it counts as no slower.
_NO_SLOWER = 1.005


@dataclass
class Prepared:
    """The programs that run under a name.

    There is one program, or independent copies, for each of the ``plans``. Without ``replays``, of their CUDA graphs,
    they are launched on streams every time, and ``why`` says why they could not be captured. ``number`` is that of the
    name, for marks. ``outputs`` are those of the network, of the last program; those of graphs stay where they are.
    """

    name: str
    number: int
    plans: list[Plan]
    programs: list[LaunchProgram]
    replays: list[Callable[[], None]] = field(default_factory=list)
    why: str = ""
    outputs: list[Any] = field(default_factory=list)

    @property
    def devices(self) -> list[int]:
        """The participating devices."""
        return sorted({device for program in self.programs for device in program.devices})


class Executor:
    """A network on some devices, ready to run by any plan.

    The network has its inputs written. ``mark`` records a number that the controller reads if this process dies or
    hangs.
    """

    def __init__(self, network: Network, backend: Backend, mark: Callable[[int], None]) -> None:
        self._network, self._backend, self._mark = network, backend, mark
        with backend.exactly():
            self._flow = network.flow(self._run_alone)
        self._chooser = Chooser(network, self._flow, backend)
        self._prepared: dict[str, Prepared] = {}

    def prepare(self, name: str, plans: Sequence[Plan]) -> Prepared:
        """Compile and place what plans need, and capture them: one plan, or several that run at the same time.

        Raises:
            HiosError: a device is out of memory, or an operator failed.
        """
        programs = [LaunchProgram(self._network, self._flow, plan, self._mark) for plan in plans]
        prepared = self._prepared[name] = Prepared(name, len(self._prepared), list(plans), programs)
        self._ready(prepared)
        return prepared

    def use_segments(self, name: str) -> list[SegmentResult]:
        """Have what was prepared run by segments, each by its operators or in inductor, whichever is faster.

        Returns what became of each segment.
        """
        prepared = self._prepared[name]
        taken_ms = {operator: finish - start for operator, *_, start, finish in self.rows(name)[0]}
        runs = [run for program in prepared.programs for run in program.runs.values()]
        arriving = {name: own for program in prepared.programs for name, own in program.arriving.items()}
        self._mark(0)
        segments, results = self._chooser.chosen(runs, taken_ms, arriving)
        if not segments:
            return results
        programs = [LaunchProgram(self._network, self._flow, plan, self._mark, segments) for plan in prepared.plans]
        by_segments = Prepared(name, prepared.number, prepared.plans, programs)
        try:
            self._ready(by_segments)
            why = by_segments.why if prepared.replays else ""
            if why == "" and (slower := self._slower(by_segments, prepared)) > _NO_SLOWER:
                why = f"the schedule took {slower:.3g} times as long with it"
        except Exception as error:  # inductor's code raises where the strides of a value are not those of its example
            why = self._backend.why(cause(error))
        if why:
            self._synchronize(prepared)  # raises what a kernel has left, after which nothing runs
            return [own if own.runtime == PACKED else by_operators(own, why) for own in results]
        self._prepared[name] = by_segments
        return results

    def _slower(self, prepared: Prepared, other: Prepared) -> float:
        """The ratio of medians of runs in turns."""
        taken: dict[int, list[int]] = {0: [], 1: []}
        for number in range(_WARM_UP + _COMPARED):
            for place, own in enumerate((prepared, other)):
                nanoseconds = self._run(own)
                if number >= _WARM_UP:
                    taken[place].append(nanoseconds)
        return statistics.median(taken[0]) / statistics.median(taken[1])

    def _ready(self, prepared: Prepared) -> None:
        """Warm up, and capture what can be."""
        prepared.replays, prepared.why, programs = [], "", prepared.programs
        self._synchronize(prepared)  # wait for weights and inputs, as streams of programs do not wait for others
        for program in programs:  # libraries try their algorithms in first launches: beside others they misjudge them
            program.launch(self._backend, alone=True)
        for _ in range(_WARM_UP):
            prepared.outputs = self._launch(prepared).outputs
        prepared.outputs = []
        try:
            for program in programs:
                replay, launched = self._capture(program)
                prepared.replays.append(replay)
                prepared.outputs = launched.outputs
        except Exception as error:  # CUDA cannot capture everything; the warm-up showed that it runs
            if is_out_of_memory(error):
                raise cause(error) from None
            prepared.replays.clear()
            prepared.why = self._backend.why(cause(error))

    def why(self, name: str) -> str:
        """Why what was prepared is no CUDA graph; empty if it is one."""
        return self._prepared[name].why

    def run(self, name: str) -> int:
        """Run once; returns nanoseconds from before the launch to when all devices had finished."""
        return self._run(self._prepared[name])

    def _run(self, prepared: Prepared) -> int:
        began = time.perf_counter_ns()
        if prepared.replays:
            for replay in prepared.replays:
                replay()
            self._synchronize(prepared)
        else:
            prepared.outputs = self._launch(prepared).outputs
        return time.perf_counter_ns() - began

    def run_exactly(self, name: str) -> list[Tensor]:
        """Outputs of a run in full float32, launched on streams even if there is a graph."""
        prepared = self._prepared[name]
        with self._backend.exactly():
            return self._launch(prepared).outputs

    def run_alone(self, name: str) -> list[Tensor]:
        """Outputs of a run as it is timed, but that every launch waits until the one before has finished."""
        prepared = self._prepared[name]
        return [program.launch(self._backend, alone=True) for program in prepared.programs][-1].outputs

    def outputs(self, name: str) -> list[Tensor]:
        """Outputs of the last run."""
        return self._prepared[name].outputs

    def rows(self, name: str) -> tuple[list[LaunchRow], str]:
        """The times of every operator, of copies those of the first, from a separate run that events slow down.

        Events that are part of a graph may be refused where the graph is not. The run is then launched on streams; the
        second result is the reason, otherwise empty.
        """
        prepared, runs = self._prepared[name], []
        program = prepared.programs[0]
        replay, why = None, ""
        if prepared.replays:
            try:
                replay, launched = self._capture(program, timed=True)
            except Exception as error:  # torch and CUDA raise many types of errors
                why = self._backend.why(cause(error))
        for _ in range(_TIMED):
            if replay is not None:
                replay()
            else:
                launched = program.launch(self._backend, timed=True)
            self._synchronize(prepared)
            runs.append(program.rows(self._backend, launched))
        ends = [max(row[5] for row in rows) for rows in runs]
        return runs[ends.index(statistics.median_low(ends))], why

    def placed_bytes(self) -> int:
        """Bytes of weights and inputs on all GPUs."""
        return self._network.placed_bytes()

    def _capture(self, program: LaunchProgram, *, timed: bool = False) -> tuple[Callable[[], None], Launched]:
        return self._backend.capture(program.lanes, lambda: program.launch(self._backend, timed=timed))

    def _launch(self, prepared: Prepared) -> Launched:
        launched = [program.launch(self._backend, again=True) for program in prepared.programs][-1]
        self._synchronize(prepared)
        return launched

    def _synchronize(self, prepared: Prepared) -> None:
        for device in prepared.devices:
            self._mark(launch.waiting(device, prepared.number))
            try:
                self._backend.synchronize(device)
            except Exception as error:  # of a kernel, reported only here
                where = launch.everything(device, prepared.name)
                raise PlatformError(f"{where}: {self._backend.why(error)}") from error

    def _run_alone(self, operator: str, function: Callable[..., Any], arguments: list[Tensor]) -> Any:
        """Run an operator alone, so that one that fails or hangs can be named."""
        self._mark(launch.launching(0, self._network.graph.index[operator], None, 0))
        try:
            result = function(*arguments)
            self._backend.synchronize(0)
        except Exception as error:  # kernels raise many types of errors
            raise PlatformError(f"{launch.place(0, operator, None, 0)}: {self._backend.why(error)}") from error
        return result
