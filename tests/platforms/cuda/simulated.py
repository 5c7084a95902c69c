"""Workers whose GPUs are streams of this machine: run by tests in place of ``hios.platforms.cuda.worker.load``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hios.core.graph import Graph
from hios.errors import PlatformError
from hios.platforms.cpu import core_probe
from hios.platforms.cuda.compiled_network import Network
from hios.platforms.cuda.executor import Executor
from hios.platforms.program import Buffer
from hios.platforms.workloads import arena_tensor, load_weights
from hios.workers.worker import Worker
from tests.platforms.cuda.host import HostBackend

#: The devices are as many GPUs as this.
DEVICES = 2


class _Executor(Executor):
    """Hands tensors over, not handles."""

    def run_exactly(self, name: str) -> list[Tensor]:
        """Outputs of a run."""
        return _tensors(super().run_exactly(name))

    def run_alone(self, name: str) -> list[Tensor]:
        """Outputs of a run, launch by launch."""
        return _tensors(super().run_alone(name))

    def outputs(self, name: str) -> list[Tensor]:
        """Outputs of the last run."""
        return _tensors(super().outputs(name))


class _Hanging(HostBackend):
    """A GPU that never finishes what it replays."""

    def synchronize(self, device: int) -> None:
        """Wait for ever once something was captured."""
        if device == DEVICES - 1 and self.captures:
            time.sleep(600)
        super().synchronize(device)


class _Dying(HostBackend):
    """A process that is ended in its first launch on the second device."""

    def run(self, lane: Any, function: Any, arguments: list[Any], outputs: int) -> list[Any]:
        """Launch, or die."""
        if lane.device == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(lane, function, arguments, outputs)


class _Corrupting(HostBackend):
    """GPUs whose graphs, but the first, add 1 % to what each operator computes."""

    def run(self, lane: Any, function: Any, arguments: list[Any], outputs: int) -> list[Any]:
        """Launch, or record something else."""
        if self._recording is None or self.captures == 1 or outputs > 1:
            return super().run(lane, function, arguments, outputs)
        return super().run(lane, lambda *values: 1.01 * function(*values), arguments, outputs)


class _Failing(_Executor):
    """Cannot run again once all has been measured."""

    def rows(self, name: str) -> Any:
        """Run out of memory."""
        raise PlatformError("out of memory: a smaller batch needs less")


def load(worker: Worker, **given: Any) -> bool:
    """Two devices that can do what GPUs can."""
    return _load(worker, HostBackend(), **given)


def time_probe(worker: Worker, gpu: int) -> tuple[float, float]:
    """The probe of this machine, whatever the GPU."""
    assert gpu in range(DEVICES)
    return core_probe.time_probe(worker)


def load_in_tf32(worker: Worker, **given: Any) -> bool:
    """Devices whose timed runs are less precise."""
    _load(worker, HostBackend(), **given)
    return True


def load_corrupting(worker: Worker, **given: Any) -> bool:
    """Devices of which one graph is wrong by less than timed runs may be off."""
    _load(worker, _Corrupting(), **given)
    return True


def load_failing(worker: Worker, **given: Any) -> bool:
    """Devices that cannot record the times of operators."""
    return _load(worker, HostBackend(), _Failing, **given)


def refuse(worker: Worker, **given: Any) -> None:
    """A runtime that cannot run the model."""
    raise PlatformError("baseline cudagraph: the model cannot be captured in a CUDA graph: no reason")


def load_streams(worker: Worker, **given: Any) -> bool:
    """Devices that cannot capture."""
    return _load(worker, HostBackend(capturing=False), **given)


def load_hanging(worker: Worker, **given: Any) -> bool:
    """Devices of which the last hangs."""
    return _load(worker, _Hanging(), **given)


def load_dying(worker: Worker, **given: Any) -> bool:
    """A process that is killed."""
    return _load(worker, _Dying(), **given)


def _load(
    worker: Worker,
    backend: HostBackend,
    executor: type[Executor] = _Executor,
    *,
    graph: str,
    weights: str,
    inputs: list[Buffer],
    outputs: list[Buffer],
    gpus: list[int],
) -> bool:
    known = Graph.read(graph)
    network = Network(known, load_weights(weights, known), [torch.device("cpu")] * len(gpus))
    network.write([arena_tensor(worker.arena, buffer) for buffer in inputs])
    worker.state["executor"] = executor(network, backend, worker.mark)
    worker.state["gpus"] = []
    worker.state["outputs"] = [arena_tensor(worker.arena, buffer) for buffer in outputs]
    return False


def _tensors(handles: Sequence[Any]) -> list[Tensor]:
    return [handle.value for handle in handles]
