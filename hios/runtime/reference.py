"""The model itself inside a worker: the reference for outputs and for time.

Of program.pt2 that is eager PyTorch: the model's own ATen calls one after another, unfused and unfolded. Of
program.onnx it is ONNX Runtime, with the optimisations that it makes by default.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hios.errors import ArtifactError
from hios.frontends import program as programs
from hios.frontends.verification import flat
from hios.kernels.tensors import torch_dtype
from hios.platforms.worker import Worker
from hios.runtime.program import Buffer
from hios.runtime.values import deliver


def runtime(program: str | Path) -> str:
    """What runs a program: ``eager``, or ``onnxruntime`` for an ONNX file; as run.json says it."""
    return "onnxruntime" if Path(program).suffix.lower() == ".onnx" else "eager"


def load(worker: Worker, program: str, inputs: list[Buffer], outputs: list[Buffer], trusted: bool = False) -> None:
    """Load a program; inputs and outputs lie in the arena.

    Raises:
        ArtifactError: its inputs or outputs are not those of the graph.
    """
    load_program = _onnx if runtime(program) == "onnxruntime" else _eager
    worker.state["module"], types = load_program(program, trusted)
    for what, found, buffers in zip(("inputs", "outputs"), types, (inputs, outputs), strict=True):
        required = [(buffer.shape, torch_dtype(buffer.dtype)) for buffer in buffers]
        if found != required:
            raise ArtifactError(
                f"{program}: {what}: found {_text(found)}; required: {_text(required)}, as the graph states: it is "
                "not the program that the graph was extracted from"
            )
        worker.state[what] = [
            worker.arena.tensor(buffer.offset, buffer.shape, torch_dtype(buffer.dtype)) for buffer in buffers
        ]


def run(worker: Worker) -> int:
    """One inference; returns its time in nanoseconds."""
    module, inputs = worker.state["module"], worker.state["inputs"]
    with torch.inference_mode():
        began = time.perf_counter_ns()
        found = module(*inputs)
        finished = time.perf_counter_ns()
        for buffer, tensor in zip(worker.state["outputs"], flat(found), strict=True):
            deliver(tensor, buffer)
    return finished - began


_Types = tuple[list[programs.TensorType], list[programs.TensorType]]


def _eager(program: str, trusted: bool) -> tuple[Callable[..., Any], _Types]:
    loaded = programs.load(program, trusted=trusted)
    return loaded.module(), programs.tensor_types(loaded)


def _onnx(program: str, trusted: bool) -> tuple[Callable[..., Any], _Types]:
    from hios.frontends import onnx  # its packages are an extra of their own

    graph = onnx.load(program).graph
    types = [onnx.tensor_type(value) for value in onnx.inputs_of(graph)], [*map(onnx.tensor_type, graph.output)]
    return onnx.Session(program, threads=len(os.sched_getaffinity(0))), types


def _text(types: list[programs.TensorType]) -> str:
    return ", ".join(map(programs.type_text, types)) or "none"
