"""The model itself on a GPU: in eager PyTorch, compiled, or in one CUDA graph."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

from hios.errors import PlatformError, first_line
from hios.platforms.cuda.graph_pool import GraphPool
from hios.platforms.cuda.precision import exactly, keep_busy
from hios.platforms.program import Buffer
from hios.platforms.reference import Place, load
from hios.workers.worker import Worker

#: Calls before a capture: libraries choose algorithms and allocate workspaces in the first ones.
_WARM_UP = 3


class ReferenceGpu(Place):
    """A GPU, which becomes the current one of this process."""

    compilers = {  # noqa: RUF012 - as of its base
        "compile": {},
        "compile-reduce-overhead": {"mode": "reduce-overhead"},
        "compile-max-autotune": {"mode": "max-autotune"},
        "tensorrt": {"backend": "torch_tensorrt"},
    }

    def __init__(self, index: int, kind: str) -> None:
        self._graphs = kind in {"cudagraph", "compile-reduce-overhead", "compile-max-autotune"}
        self._device = torch.device("cuda", index)
        torch.cuda.set_device(index)
        torch.backends.cudnn.benchmark = True

    def program(self, loaded: ExportedProgram) -> ExportedProgram:
        """The program with weights and constants on the GPU."""
        return move_to_device_pass(loaded, str(self._device))

    def inputs(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Copies on the GPU."""
        return [tensor.to(self._device) for tensor in tensors]

    def module(self, kind: str, module: Callable[..., Any], inputs: Sequence[Tensor]) -> Callable[..., Any]:
        """The module, in a CUDA graph if requested; a `PlatformError` if it cannot be captured."""
        if kind != "cudagraph":
            return module
        try:
            return in_graph(module, inputs)
        except RuntimeError as error:  # the end of a capture that failed raises again
            reason = first_line(error.__context__ or error)
            raise PlatformError(f"baseline {kind}: the model cannot be captured in a CUDA graph: {reason}") from error

    def peak_memory_bytes(self, run: Callable[[], object]) -> int | None:
        """Peak of torch's allocations on the GPU in a run, or in the capture of what runs as a CUDA graph.

        A graph keeps the memory that it was captured with. Graphs that torch.compile captures are counted since the
        model was loaded, with what compiling needed.
        """
        if not self._graphs:
            torch.cuda.reset_peak_memory_stats(self._device)
        run()
        return torch.cuda.max_memory_allocated(self._device)

    def before_compiling(self, kind: str) -> None:
        """Import TensorRT for torch.compile; its processes stay, as compiling for a GPU in one would be slow."""
        if kind == "tensorrt":
            importlib.import_module("torch_tensorrt")

    def exactly(self) -> AbstractContextManager[None]:
        """Without TF32."""
        return exactly()

    def timed(self, module: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[Any, int]:
        """Run a module until the GPU has finished, after launches that make this process current on a busy GPU."""

        def run() -> None:
            module(*inputs)
            torch.cuda.synchronize(self._device)

        keep_busy(run)
        began = time.perf_counter_ns()
        given = module(*inputs)
        torch.cuda.synchronize(self._device)
        return given, time.perf_counter_ns() - began


def load_network(
    worker: Worker,
    program: str,
    inputs: list[Buffer],
    outputs: list[Buffer],
    trusted: bool = False,
    kind: str = "eager",
    gpu: int = 0,
) -> float | None:
    """Load program.pt2 on a GPU, as ``hios.platforms.reference.load`` does on the host; the inputs are written already.

    Raises:
        ArtifactError: its inputs or outputs are not those of the graph.
    """
    return load(worker, program, inputs, outputs, trusted, kind, place=ReferenceGpu(gpu, kind))


def in_graph(module: Callable[..., Any], inputs: Sequence[Tensor]) -> Callable[..., Any]:
    """A module captured with its inputs in a CUDA graph; every call overwrites the outputs."""
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()  # wait for inputs and weights, as the stream does not wait for others
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP):
            module(*inputs)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()  # of libraries that tried their algorithms
    pool = GraphPool(torch.cuda.current_device())
    with pool.capture(stream) as graph:
        outputs = module(*inputs)

    def replay(*_: Tensor) -> Any:
        graph.replay()
        return outputs

    # A graph does not keep the tensors that it reads alive: weights would be freed with the module.
    replay.kept = module, inputs, pool  # type: ignore[attr-defined]
    return replay
