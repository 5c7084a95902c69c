"""The model itself in its own worker: the reference for outputs and for latency.

For program.pt2 that is eager PyTorch: the model's own ATen calls one after another, unfused and unfolded. For
program.onnx it is ONNX Runtime with its default optimizations. A program.pt2 can also run in torch.compile, in OpenVINO
and, exported by torch.onnx.export, in ONNX Runtime; on a GPU also in a CUDA graph and in TensorRT.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from hios.core.graph import RECURRENT, Graph
from hios.errors import ArtifactError, PlatformError, UnsupportedError, first_line
from hios.frontends import program as programs
from hios.frontends.extraction_check import flat, rounding_errors
from hios.frontends.program_interface import TensorType, flat_module, type_text
from hios.kernels.merged import torch_dtype, value_type
from hios.platforms.program import Buffer
from hios.platforms.workloads import arena_tensor, deliver
from hios.workers.worker import Worker, reason


def runtime(program: str | Path) -> str:
    """What runs a program: ``eager``, or ``onnxruntime`` for an ONNX file; as run.json says it."""
    return "onnxruntime" if Path(program).suffix.lower() == ".onnx" else "eager"


@dataclass
class Reference:
    """The model itself in another runtime, in a worker of its own.

    ``load`` is called inside the worker with ``options`` and what all references share. ``precision`` is the one that
    the runtime is told to use, None if it follows the model; ``compile_time_s`` is None if nothing is compiled.
    """

    name: str
    worker: int
    cores: list[int]
    threads: int
    kind: str = "eager"
    load: Callable[..., float | None] = field(default_factory=lambda: load)
    options: Mapping[str, Any] = field(default_factory=dict)
    compile_time_s: float | None = None
    precision: str | None = None
    latencies_ms: list[float] = field(default_factory=list)
    difference: float = 0.0
    peak_memory_bytes: int | None = None


class Attempt(NamedTuple):
    """What a function returned, or why it failed."""

    result: Any = None
    why_not: str = ""


def attempt(worker: Worker, called: Callable[..., Any], **given: Any) -> Attempt:
    """Call a function of a reference in its worker; an error that is raised there would end the session of all others.

    Raises:
        ArtifactError: of a file, which the others need too.
    """
    try:
        return Attempt(called(worker, **given))
    except ArtifactError:
        raise
    except Exception as error:  # runtimes raise many types
        return Attempt(why_not=reason(error))


class Place:
    """Where a model runs: the host. Other platforms have subclasses."""

    #: Arguments of torch.compile by kind.
    compilers: Mapping[str, Mapping[str, Any]] = {"compile": {}}

    def program(self, loaded: ExportedProgram) -> ExportedProgram:
        """A program with its weights here."""
        return loaded

    def inputs(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Inputs of the model here."""
        return [tensor.cpu() for tensor in tensors]

    def module(self, kind: str, module: Callable[..., Any], inputs: Sequence[Tensor]) -> Callable[..., Any]:
        """A module as run by a kind that only this place supports."""
        return module

    def before_compiling(self, kind: str) -> None:
        """Settings for torch.compile: it compiles in this process, so that no other one outlives it."""
        from torch._inductor import config

        config.compile_threads = 1

    def exactly(self) -> AbstractContextManager[None]:
        """A context of full float32 precision."""
        return nullcontext()

    def peak_memory_bytes(self, run: Callable[[], object]) -> int | None:
        """Peak memory of a run, if this place tracks it; None if it has to be read from the process."""
        return None

    def timed(self, module: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[Any, int]:
        """Run a module; returns its outputs and nanoseconds."""
        began = time.perf_counter_ns()
        given = module(*inputs)
        return given, time.perf_counter_ns() - began


_HOST = Place()


def load(
    worker: Worker,
    program: str,
    inputs: list[Buffer],
    outputs: list[Buffer],
    trusted: bool = False,
    kind: str = "eager",
    parallel: bool = False,
    place: Place = _HOST,
) -> float | None:
    """Load a program somewhere; called through the worker pool, as all that loads references.

    Inputs and outputs are those of the graph, in the arena; a place that is not the host reads them now. ``trusted``
    says that the user trusts a program that can run code when it is loaded, ``parallel`` that threads of ONNX Runtime
    run operators concurrently. Returns the seconds that torch.compile took, its first inference among them; None for
    other kinds.

    Raises:
        ArtifactError: its inputs or outputs are not those of the graph.
        PlatformError: the runtime cannot run it.
    """
    module, types, loaded = _read(place, program, trusted, parallel)
    for what, stated, buffers in zip(("inputs", "outputs"), types, (inputs, outputs), strict=True):
        _require(program, what, stated, [(buffer.shape, torch_dtype(buffer.dtype)) for buffer in buffers])
        worker.state[what] = [arena_tensor(worker.arena, buffer) for buffer in buffers]
    worker.state["place"], worker.state["program"] = place, loaded
    worker.state["inputs"] = place.inputs(worker.state["inputs"])
    worker.state["module"], taken = _in_kind(place, program, kind, module, loaded, worker.state["inputs"], parallel)
    return taken


def in_runtime(program: str, graph: Graph, kind: str, trusted: bool) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    """A program on the host in a runtime, one of ``RUNTIMES``, with a thread on every core of this process.

    It makes outputs of inputs, in the order of the graph.

    Raises:
        ArtifactError: it has other inputs or outputs than the graph.
        PlatformError: the runtime cannot run it.
    """
    module, types, loaded = _read(_HOST, program, trusted)
    given = [(tuple(entry.shape), torch_dtype(entry.dtype)) for entry in graph.inputs]
    made = [value_type(graph, value.external) for value in graph.outputs if value.external is not None]
    _require(program, "inputs", types[0], given)
    _require(program, "outputs", types[1], [(tuple(shape), torch_dtype(dtype)) for shape, dtype in made])
    inputs = [torch.zeros(shape, dtype=dtype) for shape, dtype in given]
    compute = _in_kind(_HOST, program, kind, module, loaded, inputs)[0]

    def run(given: Sequence[Tensor]) -> list[Tensor]:
        with torch.inference_mode():
            return list(flat(compute(*given)))

    return run


def _read(
    place: Place, program: str, trusted: bool, parallel: bool = False
) -> tuple[Callable[..., Any], _Types, ExportedProgram | None]:
    """A program as a function, the types of its inputs and outputs, and what torch.export made."""
    if runtime(program) == "onnxruntime":
        return *_onnx(program, parallel), None
    loaded = place.program(programs.load(program, trusted=trusted))
    return flat_module(loaded), programs.tensor_types(loaded), loaded


def _require(program: str, what: str, stated: list[TensorType], required: list[TensorType]) -> None:
    if stated != required:
        raise ArtifactError(
            f"{program}: {what}: found {_text(stated)}; required: {_text(required)}, as the graph states: it is "
            "not the program that the graph was extracted from"
        )


def _in_kind(
    place: Place,
    program: str,
    kind: str,
    module: Callable[..., Any],
    loaded: ExportedProgram | None,
    inputs: list[Tensor],
    parallel: bool = False,
) -> tuple[Callable[..., Any], float | None]:
    """A program in a runtime, and the seconds that compiling it took, if it is compiled."""
    if kind in place.compilers:
        return _compiled(program, module, inputs, kind, place)
    if kind == "onnxruntime" and loaded is not None:
        return _exported(program, loaded, parallel), None
    if kind == "openvino" and loaded is not None:
        return _in_openvino(program, loaded), None
    return place.module(kind, module, inputs), None


def run(worker: Worker, exact: bool = False) -> int:
    """One inference, in full float32 if ``exact``; its time in nanoseconds, until all that it started has finished."""
    place: Place = worker.state["place"]
    with torch.inference_mode(), place.exactly() if exact else nullcontext():
        given, taken = place.timed(worker.state["module"], worker.state["inputs"])
        for buffer, tensor in zip(worker.state["outputs"], flat(given), strict=True):
            deliver(tensor, buffer)
    return taken


def rounding(worker: Worker) -> list[float] | None:
    """How far rounding to float32 puts each output, at most (`rounding_errors`); None for what is not known."""
    loaded: ExportedProgram | None = worker.state["program"]
    if loaded is None:
        return None
    place: Place = worker.state["place"]
    with place.exactly():
        return rounding_errors(loaded, worker.state["inputs"])


def peak_memory_bytes(worker: Worker) -> int | None:
    """Peak memory of one inference, if the place of the model tracks it; otherwise nothing runs."""
    place: Place = worker.state["place"]
    return place.peak_memory_bytes(lambda: run(worker))


#: Packages of the extra ``onnx`` by which ONNX Runtime runs a program of torch.export.
_ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
#: First calls, in which a model is compiled; with CUDA graphs it is captured in the third.
_COMPILING_CALLS = 3

_Types = tuple[list[TensorType], list[TensorType]]


def _onnx(program: str, parallel: bool) -> tuple[Callable[..., Any], _Types]:
    from hios.formats.onnx_session import OnnxSession
    from hios.frontends import onnx_file

    graph = onnx_file.load(program).graph
    session = OnnxSession(program, threads=_threads(), parallel=parallel)
    return session, onnx_file.interface(graph, session)


def _exported(program: str, loaded: ExportedProgram, parallel: bool) -> Callable[..., Any]:
    """A program of torch.export in ONNX Runtime."""
    from hios.formats.onnx_session import OnnxSession
    from hios.frontends.onnx_export import to_onnx

    try:
        content = to_onnx(loaded)
    except UnsupportedError as error:
        raise PlatformError(f"{program}: {error}") from error
    return OnnxSession(program, content, threads=_threads(), parallel=parallel)


def _in_openvino(program: str, loaded: ExportedProgram) -> Callable[..., Any]:
    """A program of torch.export in OpenVINO."""
    from hios.frontends import openvino  # optional dependency

    try:
        return openvino.OpenVinoSession(openvino.converted(loaded, program), threads=_threads(), name=program)
    except UnsupportedError as error:
        raise PlatformError(str(error)) from error


def _compiled(
    program: str, module: Callable[..., Any], inputs: list[Tensor], kind: str, place: Place
) -> tuple[Callable[..., Any], float]:
    """A module in torch.compile, and the seconds that compiling took, without caches."""
    place.before_compiling(kind)
    _keep_recurrent_layers(module)
    torch.compiler.config.force_disable_caches = True  # TORCHINDUCTOR_FORCE_DISABLE_CACHES=0 prevails
    compiled: Callable[..., Any] = torch.compile(module, **place.compilers[kind])
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(1 if kind == "compile" else _COMPILING_CALLS):
                compiled(*inputs)
    except Exception as error:  # the compiler raises many types of errors
        reason = first_line(getattr(error, "inner_exception", error))
        raise PlatformError(f"{program}: torch.compile cannot compile it: {reason}") from error
    return compiled, time.perf_counter() - began


def _keep_recurrent_layers(module: Callable[..., Any]) -> None:
    """Have torch.compile call recurrent layers as PyTorch has them, as it does with ``nn.GRU`` in a model.

    Of an exported program it would compile every step of theirs, for minutes.
    """
    for part in module.modules() if isinstance(module, nn.Module) else ():
        if isinstance(part, fx.GraphModule):
            for node in part.graph.nodes:
                node.target = _opaque(node.target) if str(node.target) in RECURRENT else node.target
            part.recompile()


@functools.cache
def _opaque(operator: Any) -> Any:
    """The same operator under a name of hios, which torch.compile does not take apart."""
    name, schema = operator._schema.name.rpartition("::")[2], str(operator._schema).partition("(")[2]
    torch.library.define(f"hios::{name}", f"({schema}")
    torch.library.impl(f"hios::{name}", "CompositeExplicitAutograd", operator)
    return getattr(torch.ops.hios, name).default


def _threads() -> int:
    return len(os.sched_getaffinity(0))


def _text(types: list[TensorType]) -> str:
    return ", ".join(map(type_text, types)) or "none"


def require_runtime(name: str) -> None:
    """Check for torch.compile's C++ compiler, or the packages of ONNX Runtime or OpenVINO, by a `PlatformError`."""
    if name == "compile":
        require_compiler(f"baseline {name}")
    if name == "onnxruntime":
        require_onnx()
    if name == "openvino" and importlib.util.find_spec("openvino") is None:
        raise PlatformError("baseline openvino: needs openvino, which is not installed: pip install 'hios[openvino]'")


def require_compiler(name: str) -> None:
    """Check that what is named has a C++ compiler for torch.compile, by a `PlatformError`."""
    if shutil.which(compiler := os.environ.get("CXX", "g++")) is None:
        raise PlatformError(
            f"{name}: torch.compile needs a C++ compiler, and there is no {compiler}; install g++, name another one in "
            "CXX, or leave it out"
        )


def require_onnx() -> None:
    """Check that the packages are there by which ONNX Runtime runs a program, by a `PlatformError`."""
    for package in _ONNX_PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise PlatformError(
                f"baseline onnxruntime: needs {package}, which is not installed: pip install 'hios[onnx]'"
            )
