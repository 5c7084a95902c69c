"""Eager PyTorch inside a worker: the reference for outputs and for time.

What runs is the module of program.pt2: the model's own ATen calls one after another, unfused and unfolded.
"""

from __future__ import annotations

import time

import torch

from hios.frontends import program as programs
from hios.frontends.verification import flat
from hios.kernels.tensors import torch_dtype
from hios.platforms.worker import Worker
from hios.runtime.device import deliver
from hios.runtime.program import Buffer


def load(worker: Worker, program: str, inputs: list[Buffer], outputs: list[Buffer]) -> None:
    """Load a program; inputs and outputs lie in the arena."""
    worker.state["module"] = programs.load(program).module()
    worker.state["inputs"] = [
        worker.arena.tensor(buffer.offset, buffer.shape, torch_dtype(buffer.dtype)) for buffer in inputs
    ]
    worker.state["outputs"] = [
        worker.arena.tensor(buffer.offset, buffer.shape, torch_dtype(buffer.dtype)) for buffer in outputs
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
