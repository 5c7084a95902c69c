"""What tests do to operators inside lanes: inputs that are large make the first operator of a model fail."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hios.core.graph import Graph
from hios.errors import PlatformError
from hios.kernels.merged import value_type
from hios.platforms.cpu import segment_runtimes
from hios.platforms.cpu.segment_runtimes import Segment
from hios.serving import lane_worker
from hios.workers.worker import Worker

#: Size of the inputs from which on the operator that reads them does something else.
RAISES, MAKES_NAN, DIES, HANGS = 1e4, 1e6, 1e8, 1e10


def prepare(worker: Worker, **arguments: Any) -> None:
    """What ``lane_worker.prepare`` does, with the operators that read inputs spoiled."""
    for model in worker.state["models"]:
        for name, operator in model.operators.items():
            if any(value[0] == "input" for value in operator.externals):
                model.operators[name] = dataclasses.replace(operator, run=_spoiled(operator.run))
    lane_worker.prepare(worker, **arguments)


def prepare_in_runtimes(worker: Worker, **arguments: Any) -> None:
    """What ``lane_worker.prepare`` does, with another runtime as the fastest of every segment that one takes."""

    def timed(own: Any, segment: Segment, computing: Mapping[str, Callable[[], object]]) -> dict[str, float]:
        return {"packed": 1.0, **dict.fromkeys(computing, 0.0)}

    segment_runtimes.Converter._timed = timed  # type: ignore[method-assign, assignment]
    lane_worker.BUDGET_S = 1e3  # type: ignore[attr-defined]  # however slow the machine is
    lane_worker.prepare(worker, **arguments)


def prepare_in_onnxruntime(worker: Worker, **arguments: Any) -> None:
    """The same with ONNX Runtime, in which every segment has to run."""
    segment_runtimes._PACKAGES = {"onnxruntime": ()}
    prepare_in_runtimes(worker, **arguments)
    own = [step for runner in worker.state["programs"].values() for step in runner._steps]
    alone = [step.call.name for step in own if "_segment_operator" not in step.call.function.__qualname__]
    if alone or not own:
        raise PlatformError(f"these do not run in ONNX Runtime: {alone}")


def count_cores(program: str, graph: Graph) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    """In place of a model: each output is the number of cores on which a thread may run that is started there."""

    def run(inputs: Sequence[Tensor]) -> list[Tensor]:
        counted: list[int] = []
        thread = threading.Thread(target=lambda: counted.append(len(os.sched_getaffinity(0))))
        thread.start()
        thread.join()
        types = [value_type(graph, value.external) for value in graph.outputs if value.external is not None]
        return [torch.full(tuple(shape), float(counted[0])) for shape, _ in types]

    return run


def end(program: str, graph: Graph) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    """In place of a model: ends the lane, except on the zeros that warm up."""

    def run(inputs: Sequence[Tensor]) -> list[Tensor]:
        if inputs[0].any():
            os.kill(os.getpid(), signal.SIGKILL)
        return count_cores(program, graph)(inputs)

    return run


def prepare_failing(worker: Worker, **arguments: Any) -> None:
    """A lane that cannot be made ready."""
    raise ValueError("no such kernel\nsecond line")


def _spoiled(run: Callable[..., Any]) -> Callable[..., Any]:
    def spoiled(*values: Any) -> Any:
        size = float(values[0].abs().max())
        if size > HANGS:
            time.sleep(600)
        elif size > DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        elif size > MAKES_NAN:
            return run(*values) * float("nan")
        elif size > RAISES:
            raise ValueError("no such kernel\nsecond line")
        return run(*values)

    return spoiled
