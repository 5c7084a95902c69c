"""Eager PyTorch inside a worker: the reference for outputs and for time.

What runs is the module of program.pt2: the model's own ATen calls one after another, unfused and unfolded.
"""

from __future__ import annotations

import time

import torch

from hios.errors import ArtifactError
from hios.frontends import program as programs
from hios.frontends.verification import flat
from hios.kernels.tensors import torch_dtype
from hios.platforms.worker import Worker
from hios.runtime.program import Buffer
from hios.runtime.values import deliver


def load(worker: Worker, program: str, inputs: list[Buffer], outputs: list[Buffer]) -> None:
    """Load a program; inputs and outputs lie in the arena.

    Raises:
        ArtifactError: its inputs or outputs are not those of the graph.
    """
    loaded = programs.load(program)
    for what, found, buffers in zip(
        ("inputs", "outputs"), programs.tensor_types(loaded), (inputs, outputs), strict=True
    ):
        required = [(buffer.shape, torch_dtype(buffer.dtype)) for buffer in buffers]
        if found != required:
            raise ArtifactError(
                f"{program}: {what}: found {_text(found)}; required: {_text(required)}, as the graph states: it is "
                "not the program that the graph was extracted from"
            )
    worker.state["module"] = loaded.module()
    worker.state["inputs"] = [
        worker.arena.tensor(buffer.offset, buffer.shape, torch_dtype(buffer.dtype)) for buffer in inputs
    ]
    worker.state["outputs"] = [
        worker.arena.tensor(buffer.offset, buffer.shape, torch_dtype(buffer.dtype)) for buffer in outputs
    ]


def _text(types: list[programs.TensorType]) -> str:
    return ", ".join(map(programs.type_text, types)) or "none"


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
