"""Running a device's program inside its worker. Every function here is called through the worker pool."""

from __future__ import annotations

import time

from hios.graph import Graph
from hios.kernels import compile_operator
from hios.platforms.arena import Arena
from hios.platforms.memory import keep_memory
from hios.platforms.worker import Worker
from hios.runtime.program import FIRST_READY, START, START_TIME, Buffer, DeviceProgram, Row, StagedProgram
from hios.runtime.staged import StagedRunner
from hios.runtime.streams import StreamRunner
from hios.runtime.values import arena_tensor
from hios.runtime.weights import load_weights

#: A device gives up waiting before the controller gives up on the device: it knows what it waited for.
WAIT_SHARE = 0.8


def load(worker: Worker, graph: str, weights: str, inputs: dict[str, Buffer], timeout_s: float) -> None:
    """Read graph and weights and compile every operator."""
    keep_memory()
    known = Graph.read(graph)
    tensors = load_weights(weights, known)
    operators = known.operators
    worker.state["operators"] = {o.id: compile_operator(o, tensors, packed=True) for o in operators}
    worker.state["graph"], worker.state["weights"] = known, tensors
    worker.state["outputs"] = {
        operator.id: [("operator", operator.id, item) for item in range(len(operator.details["shapes"]["outputs"]))]
        for operator in operators
    }
    worker.state["inputs"] = {("input", name, 0): arena_tensor(worker.arena, buffer) for name, buffer in inputs.items()}
    worker.state["timeout_s"] = timeout_s
    worker.state["programs"] = {}


def prepare(worker: Worker, name: str, program: DeviceProgram) -> None:
    """Make a program ready to run under a name."""
    runner = StagedRunner(worker, program) if isinstance(program, StagedProgram) else StreamRunner(worker, program)
    worker.state["programs"][name] = program.device, program.devices, runner


def run(worker: Worker, name: str, epoch: int) -> tuple[int, int, list[Row]]:
    """Run a prepared program together with the other devices that take part.

    Args:
        worker: where it runs.
        name: which program.
        epoch: a number that no run had before; flags with this value belong to this run.

    Returns:
        Start of the run and finish of this device (nanoseconds of the monotonic clock), and its operators' rows.
    """
    device, devices, runner = worker.state["programs"][name]
    began = _start_together(worker.arena, device, devices, epoch, worker.state["timeout_s"])
    rows = runner.run(epoch)
    return began, time.perf_counter_ns(), rows


def _start_together(arena: Arena, device: int, devices: tuple[int, ...], epoch: int, timeout_s: float) -> int:
    """Wait until all devices are here; the first of them takes the time and gives the signal."""
    if device != devices[0]:
        arena.write(FIRST_READY + device, epoch)
        arena.wait(START, epoch, timeout_s, "the start signal")
        return arena.read(START_TIME)
    for other in devices[1:]:
        arena.wait(FIRST_READY + other, epoch, timeout_s, f"device {other} to start")
    began = time.perf_counter_ns()
    arena.write(START_TIME, began)
    arena.write(START, epoch)
    return began
