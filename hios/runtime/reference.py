"""The model itself inside a worker: the reference for outputs and for time.

Of program.pt2 that is eager PyTorch: the model's own ATen calls one after another, unfused and unfolded. Of
program.onnx it is ONNX Runtime, with the optimisations that it makes by default. Beside them a program.pt2 runs in
torch.compile and, exported by torch.onnx.export, in ONNX Runtime; on a GPU also in a CUDA graph and in TensorRT.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hios.errors import ArtifactError, PlatformError, first_line
from hios.frontends import program as programs
from hios.frontends.interface import flat_module
from hios.frontends.verification import flat
from hios.kernels.tensors import torch_dtype
from hios.platforms.cpu.values import deliver
from hios.platforms.cuda.precision import exactly
from hios.platforms.device_program import Buffer
from hios.workers.worker import Worker


def runtime(program: str | Path) -> str:
    """What runs a program: ``eager``, or ``onnxruntime`` for an ONNX file; as run.json says it."""
    return "onnxruntime" if Path(program).suffix.lower() == ".onnx" else "eager"


def load(
    worker: Worker,
    program: str,
    inputs: list[Buffer],
    outputs: list[Buffer],
    trusted: bool = False,
    kind: str = "eager",
    parallel: bool = False,
    gpu: int | None = None,
) -> float | None:
    """Load a program; inputs and outputs lie in the arena, inputs for a GPU are written already.

    Args:
        worker: where it runs.
        program: program.pt2 or program.onnx.
        inputs: of the graph.
        outputs: of the graph.
        trusted: whether the user trusts a program that can run code when it is loaded.
        kind: what runs it, one of ``RUNTIMES``.
        parallel: whether threads of ONNX Runtime run operators beside each other.
        gpu: the GPU to run it on; None for cores.

    Returns:
        Seconds that torch.compile took, its first inference among them; None for other kinds.

    Raises:
        ArtifactError: its inputs or outputs are not those of the graph.
        PlatformError: a runtime cannot run it.
    """
    loaded: Any = None
    if runtime(program) == "onnxruntime":
        module, types = _onnx(program, parallel)
    else:
        loaded = programs.load(program, trusted=trusted)
        if gpu is not None:
            from hios.platforms.cuda.reference import in_graph, place

            loaded = place(loaded, gpu)
        module, types = flat_module(loaded), programs.tensor_types(loaded)
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
    worker.state["gpu"] = gpu
    if gpu is not None:
        worker.state["inputs"] = [tensor.to(torch.device("cuda", gpu)) for tensor in worker.state["inputs"]]
    taken = None
    if kind in _COMPILERS:
        module, taken = _compiled(program, module, worker.state["inputs"], kind)
    elif kind == "cudagraph":
        module = in_graph(module, worker.state["inputs"])
    elif kind == "onnxruntime" and loaded is not None:
        module = _exported(program, loaded, parallel)
    worker.state["module"] = module
    return taken


def run(worker: Worker, exact: bool = False) -> int:
    """One inference; returns its time in nanoseconds, on a GPU until that has finished.

    Args:
        worker: where it runs.
        exact: whether a GPU is to compute in full float32.
    """
    module, inputs, gpu = worker.state["module"], worker.state["inputs"], worker.state["gpu"]
    with torch.inference_mode(), exactly() if exact else contextlib.nullcontext():
        if gpu is not None:  # which this process has for itself only from its first launch on
            module(*inputs)
            torch.cuda.synchronize(gpu)
        began = time.perf_counter_ns()
        found = module(*inputs)
        if gpu is not None:
            torch.cuda.synchronize(gpu)
        finished = time.perf_counter_ns()
        for buffer, tensor in zip(worker.state["outputs"], flat(found), strict=True):
            deliver(tensor, buffer)
    return finished - began


#: Arguments of torch.compile by kind.
_COMPILERS: Mapping[str, Mapping[str, Any]] = {
    "compile": {},
    "compile-reduce-overhead": {"mode": "reduce-overhead"},
    "compile-max-autotune": {"mode": "max-autotune"},
    "tensorrt": {"backend": "torch_tensorrt"},
}
#: Calls in which a compiled model is compiled; with CUDA graphs it is captured in the third.
_COMPILING_CALLS = 3

_Types = tuple[list[programs.TensorType], list[programs.TensorType]]


def _onnx(program: str, parallel: bool) -> tuple[Callable[..., Any], _Types]:
    from hios.frontends import onnx  # its packages are an extra of their own

    graph = onnx.load(program).graph
    types = [onnx.tensor_type(value) for value in onnx.inputs_of(graph)], [*map(onnx.tensor_type, graph.output)]
    return onnx.Session(program, threads=_threads(), parallel=parallel), types


def _exported(program: str, loaded: torch.export.ExportedProgram, parallel: bool) -> Callable[..., Any]:
    """A program of torch.export in ONNX Runtime."""
    from hios.frontends import onnx

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.onnx.export(loaded, dynamo=True, verbose=False)
        assert found is not None  # noqa: S101 - it is where no file is named
        content = found.model_proto.SerializeToString()
    except Exception as error:  # whatever the exporter lacks; its errors have many types
        raise PlatformError(f"{program}: torch.onnx.export cannot export it: {first_line(error)}") from error
    return onnx.Session(program, content, threads=_threads(), parallel=parallel)


def _compiled(
    program: str, module: Callable[..., Any], inputs: list[Tensor], kind: str
) -> tuple[Callable[..., Any], float]:
    """A module in torch.compile, and the seconds that it took, without what caches hold."""
    from torch._inductor import config

    if not inputs or not inputs[0].is_cuda:
        config.compile_threads = 1  # in this process, so that no other outlives it; of a GPU that would take too long
    torch.compiler.config.force_disable_caches = True
    if kind == "tensorrt":
        importlib.import_module("torch_tensorrt")  # so that torch.compile knows it
    compiled: Callable[..., Any] = torch.compile(module, **_COMPILERS[kind])
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(1 if kind == "compile" else _COMPILING_CALLS):
                compiled(*inputs)
    except Exception as error:  # whatever the compiler lacks; its errors have many types
        reason = first_line(getattr(error, "inner_exception", error))
        raise PlatformError(f"{program}: torch.compile cannot compile it: {reason}") from error
    return compiled, time.perf_counter() - began


def _threads() -> int:
    return len(os.sched_getaffinity(0))


def _text(types: list[programs.TensorType]) -> str:
    return ", ".join(map(programs.type_text, types)) or "none"
