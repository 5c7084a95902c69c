"""The executor inside the worker that drives all GPUs. The functions are called through the worker pool."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from hios.core.graph import Graph
from hios.core.schedule import Plan
from hios.errors import PlatformError
from hios.formats.run import SegmentResult
from hios.platforms.cuda.backend import CudaBackend, out_of_memory
from hios.platforms.cuda.compiled_network import Network
from hios.platforms.cuda.executor import Executor
from hios.platforms.cuda.launch import LaunchRow
from hios.platforms.cuda.precision import keep_busy, uses_tf32
from hios.platforms.program import Buffer
from hios.platforms.workloads import arena_tensor, deliver, load_weights
from hios.workers.worker import Worker


def load(
    worker: Worker, graph: str, weights: str, inputs: list[Buffer], outputs: list[Buffer], gpus: list[int]
) -> bool:
    """Read graph, weights and inputs, which are written already, and run every operator once on the first GPU.

    Returns whether convolutions run in TF32 when they are timed.
    """
    torch.backends.cudnn.benchmark = True
    known = Graph.read(graph)
    network = Network(known, load_weights(weights, known), [torch.device("cuda", gpu) for gpu in gpus])
    network.write([arena_tensor(worker.arena, buffer) for buffer in inputs])
    with _memory():
        worker.state["executor"] = Executor(network, CudaBackend(gpus), worker.mark)
    worker.state["gpus"] = list(dict.fromkeys(gpus))
    worker.state["outputs"] = [arena_tensor(worker.arena, buffer) for buffer in outputs]
    return uses_tf32([torch.cuda.get_device_capability(gpu)[0] for gpu in gpus])


def prepare(worker: Worker, name: str, plans: Sequence[Plan]) -> str:
    """Prepare plans to run together under a name; returns why they are not CUDA graphs, or an empty text."""
    with _memory():
        return _executor(worker).prepare(name, plans).why


def use_segments(worker: Worker, name: str) -> tuple[list[SegmentResult], str]:
    """Have plans that are prepared run by segments; returns what became of these, and why there is no CUDA graph."""
    executor = _executor(worker)
    with _memory():
        results = executor.use_segments(name)
    torch.cuda.empty_cache()  # baselines have processes of their own
    return results, executor.why(name)


def run_exactly(worker: Worker, name: str) -> None:
    """Run once in full float32 and deliver the outputs; releases the memory used."""
    with _memory():
        _deliver(worker, _executor(worker).run_exactly(name))
    torch.cuda.empty_cache()


def run_alone(worker: Worker, name: str) -> None:
    """Run once as it is timed, but that every launch waits for the end of the one before, and deliver the outputs."""
    with _memory():
        _deliver(worker, _executor(worker).run_alone(name))


def run(worker: Worker, name: str) -> int:
    """Run and deliver the outputs; returns nanoseconds from before the launch until all GPUs have finished.

    Untimed runs come first: other processes used the GPUs before, and the first launch switches to this one.
    """
    with _memory():
        keep_busy(lambda: _executor(worker).run(name))
        taken = _executor(worker).run(name)
    _deliver(worker, _executor(worker).outputs(name))
    return taken


def peak_memory_bytes(worker: Worker, name: str) -> int | None:
    """Peak bytes of weights, inputs and live values in a run, summed over all GPUs.

    The run is launched on streams: a graph keeps the memory that it was captured with, also between runs.
    """
    gpus: list[int] = worker.state["gpus"]
    if not gpus:  # streams that stand in for GPUs
        return None
    torch.cuda.empty_cache()
    before = {gpu: torch.cuda.memory_allocated(gpu) for gpu in gpus}
    for gpu in gpus:
        torch.cuda.reset_peak_memory_stats(gpu)
    with _memory():
        _executor(worker).run_exactly(name)
    loaded = _executor(worker).placed_bytes()
    return loaded + sum(torch.cuda.max_memory_allocated(gpu) - before[gpu] for gpu in gpus)


def rows(worker: Worker, name: str) -> tuple[list[LaunchRow], str]:
    """The times of every operator, from a separate run, and why that was no CUDA graph though timed runs are."""
    with _memory():
        return _executor(worker).rows(name)


def _executor(worker: Worker) -> Executor:
    return worker.state["executor"]


def _deliver(worker: Worker, outputs: Sequence[Tensor]) -> None:
    for value, buffer in zip(outputs, worker.state["outputs"], strict=True):
        deliver(value, buffer)


@contextlib.contextmanager
def _memory() -> Iterator[None]:
    """A context that reports out-of-memory errors in one line if no operator is responsible."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise PlatformError(out_of_memory(error)) from error
