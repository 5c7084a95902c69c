"""The model itself on a GPU: as PyTorch runs it, and in one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

#: Calls ahead of a capture: libraries choose algorithms and get workspaces in the first ones.
_WARM_UP = 3


def place(program: ExportedProgram, gpu: int) -> ExportedProgram:
    """A program with its weights and constants on a GPU, where this process then works."""
    torch.cuda.set_device(gpu)
    torch.backends.cudnn.benchmark = True
    return move_to_device_pass(program, f"cuda:{gpu}")


def in_graph(module: Callable[..., Any], inputs: Sequence[Tensor]) -> Callable[..., Any]:
    """A module captured with its inputs in a CUDA graph; what it returns is written anew by every call."""
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()  # inputs and weights have arrived: the stream does not wait for others
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP):
            module(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = module(*inputs)

    def replay(*_: Tensor) -> Any:
        graph.replay()
        return found

    # A graph keeps none of the tensors that it reads: weights would go with the module.
    replay.kept = module, inputs  # type: ignore[attr-defined]
    return replay
