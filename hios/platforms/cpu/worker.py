"""Running a device's program inside its worker. Every function here is called through the worker pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hios.core.graph import Graph
from hios.core.schedule import Placement
from hios.kernels import CompiledOperator, compile_operator
from hios.kernels.merged import compile_merged
from hios.platforms.cpu.runners import StepRunner, StreamRunner, operator_rows
from hios.platforms.program import FIRST_READY, START, START_TIME, Buffer, DeviceProgram, Row, StreamProgram
from hios.platforms.workloads import arena_tensor, load_weights
from hios.workers.arena import Arena
from hios.workers.pool import give_back
from hios.workers.process_settings import keep_memory
from hios.workers.worker import Worker

#: A device times out before the controller does, since it knows what it waited for.
WAIT_SHARE = 0.8


def load(worker: Worker, graph: str, weights: str, inputs: dict[str, Buffer], timeout_s: float) -> None:
    """Read graph and weights and compile every operator."""
    keep_memory()
    known = Graph.read(graph)
    tensors = load_weights(weights, known)
    operators = [compile_operator(operator, tensors, packed=True) for operator in known.operators]
    bind(worker, known, operators, lambda names: compile_merged(known, names, tensors, packed=True), inputs, timeout_s)


def bind(
    worker: Worker,
    graph: Graph,
    operators: Sequence[CompiledOperator],
    merged: Callable[[tuple[str, ...]], Callable[..., Any]],
    inputs: dict[str, Buffer],
    timeout_s: float,
) -> None:
    """Bind compiled operators to this worker, for its programs to run.

    ``merged`` gives several of them, by id, as one function; ``inputs`` are those of the graph, by their place in the
    worker's memory; ``timeout_s`` is the longest time to wait for another device.
    """
    worker.state["graph"], worker.state["merged"] = graph, merged
    worker.state["operators"] = {operator.id: operator for operator in operators}
    worker.state["inputs"] = {("input", name, 0): arena_tensor(worker.arena, buffer) for name, buffer in inputs.items()}
    worker.state["timeout_s"] = timeout_s
    worker.state["programs"] = {}


def prepare(
    worker: Worker,
    name: str,
    program: DeviceProgram,
    cores: Mapping[int, Sequence[int]] = MappingProxyType({}),
    segments: bool = False,
) -> None:
    """Make a program ready to run under a name.

    ``cores`` are those of every device by number, for operators that take several; ``segments`` says whether the
    programs of all devices are of segments.
    """
    runner: StepRunner | StreamRunner
    if isinstance(program, StreamProgram):
        runner = StreamRunner(worker, program)
    else:
        runner = StepRunner(worker, program, cores, segments=segments)
    worker.state["programs"][name] = program.device, program.devices, runner


def forget(worker: Worker, names: Collection[str]) -> None:
    """Release prepared programs, and their memory."""
    for name in names:
        worker.state["programs"].pop(name, None)  # one that failed while it was prepared is not there
        worker.state.get("segments", {}).pop(name, None)  # of one that failed while it was recorded
    give_back(worker)


def run(worker: Worker, name: str, epoch: int, timed: bool = True) -> tuple[int, int, list[Row]]:
    """Run a prepared program together with the other devices that take part.

    No earlier run used ``epoch``: flags with this value belong to this run. Returns the start of the run and the finish
    of this device (nanoseconds of the monotonic clock), and its operators' rows, none unless ``timed``.
    """
    device, devices, runner = worker.state["programs"][name]
    began = _start_together(worker.arena, device, devices, epoch, worker.state["timeout_s"])
    rows = runner.run(epoch)
    return began, time.perf_counter_ns(), operator_rows(rows) if timed else []


def joined(
    turns: Mapping[int, tuple[int, int, list[Row]]],
    copies: bool = False,
    wide: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> tuple[float, list[Placement]]:
    """Latency in milliseconds and rows of a `run` from what it returned on each device, all by one clock.

    A run begins when the first device does and ends when the last one has finished; of ``copies`` the latency is the
    harmonic mean. ``wide`` are operators on several devices.
    """
    began = min(start for start, _, _ in turns.values())
    taken = [(finished - began) / 1e6 for _, finished, _ in turns.values()]
    latency = len(taken) / sum(1 / part for part in taken) if copies else max(taken)
    rows = [
        Placement(operator, device, stream, stage, (start - began) / 1e6, (end - began) / 1e6, wide.get(operator, ()))
        for device, (_, _, own) in turns.items()
        for operator, stream, stage, start, end in own
    ]
    return latency, sorted(rows, key=lambda row: (row.start_ms, row.device))


def _start_together(arena: Arena, device: int, devices: tuple[int, ...], epoch: int, timeout_s: float) -> int:
    """Wait until all devices are here; the first of them takes the time and gives the signal.

    It sleeps meanwhile, as the process that wakes the others may need its core.
    """
    if device != devices[0]:
        arena.write(FIRST_READY + device, epoch)
        arena.wait(START, epoch, timeout_s, "the start signal")
        return arena.read(START_TIME)
    for other in devices[1:]:
        arena.wait(FIRST_READY + other, epoch, timeout_s, f"device {other} to start", sleeping=True)
    began = time.perf_counter_ns()
    arena.write(START_TIME, began)
    arena.write(START, epoch)
    return began
