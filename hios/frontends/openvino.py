"""Programs of torch.export in OpenVINO on the CPU.

The program goes through OpenVINO's PyTorch frontend directly, not through ONNX. ``openvino.convert_model`` would do the
same, but also sends usage statistics over the network; the frontend itself does not. A program with an LSTM or GRU
goes through ONNX if it can, which has them as operators: the PyTorch frontend would write out every step.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import openvino
import torch
from openvino.frontend import FrontEndManager
from torch import Tensor
from torch.export import ExportedProgram

from hios.errors import UnsupportedError, first_line
from hios.frontends.known_differences import through_onnx
from hios.frontends.onnx_export import to_onnx

#: Precision of float32 models, in OpenVINO's terms: by default it uses bfloat16 if the processor supports it.
PRECISION = "f32"


@functools.cache
def _core(process: int) -> openvino.Core:
    """The one instance of the runtime in a process, which it is never without again.

    On processors with AMX each instance with a compiled model gives the calling thread another stack for signals. If an
    instance goes while a later one is there, its stack is freed, and yet the thread gets it back when the later one
    goes: the next signal that is caught, such as Ctrl-C, would crash the process (OpenVINO 2026.4).
    """
    core = openvino.Core()
    # Not even when the interpreter ends: in a forked process it would wait for threads that are not there.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(core))
    return core


def converted(program: ExportedProgram, name: str) -> openvino.Model:
    """A program, which is not changed, as a model of OpenVINO; the name is for messages.

    Raises:
        UnsupportedError: OpenVINO lacks an operator.
    """
    try:
        if through_onnx(program.graph):
            with contextlib.suppress(UnsupportedError, RuntimeError):  # of what the frontend may be able to read
                model = _core(os.getpid()).read_model(to_onnx(program))
                if len(model.inputs) == len(program.graph_signature.user_inputs):  # it drops those that nothing reads
                    return model
        with _quiet():
            frontend = FrontEndManager().load_by_framework("pytorch")
            decoder = _decoder().from_exported_program(program)
            return frontend.convert(frontend.load(decoder))
    except Exception as error:  # it raises many types; all mean the same to the user
        raise UnsupportedError(f"{name}: OpenVINO cannot convert it: {first_line(error)}") from error


@functools.cache
def _decoder() -> Any:
    """OpenVINO's class that reads programs, which computes by other operators what OpenVINO computes wrongly."""
    from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder
    from openvino.frontend.pytorch.torchdynamo.export_decompositions import ops_to_not_decompose
    from torch.export.decomp_utils import CustomDecompTable

    table = CustomDecompTable()
    aten = torch.ops.aten
    for kept in (*ops_to_not_decompose(), aten._unsafe_index.Tensor):
        table.pop(kept, None)
    table.update({own: _accumulated(own) for own in (aten.cumsum.default, aten.prod.dim_int)})
    table.update({aten.index.Tensor: _indexed})
    return type("Decoder", (TorchFXPythonDecoder,), {"_decomp_table": table})


def _accumulated(operator: Any) -> Any:
    """Such an operator on whole numbers in 64 bits, as in PyTorch; OpenVINO keeps narrower dtypes, and overflows."""

    def computed(value: Tensor, *args: Any, dtype: torch.dtype | None = None) -> Any:
        narrow = not (value.is_floating_point() or value.is_complex() or value.dtype is torch.int64)
        if dtype is not None or not narrow:
            return NotImplemented
        return operator(value.to(torch.int64), *args)

    return computed


def _indexed(value: Tensor, indices: list[Tensor | None]) -> Any:
    """Indices counted from the end, of which OpenVINO takes only those of a single tensor, counted from the start."""
    sizes = zip(indices, value.shape, strict=False)
    if sum(own is not None for own in indices) < 2 or any(
        own is not None and own.dtype is torch.bool for own in indices
    ):
        return NotImplemented
    positive = [own if own is None else torch.where(own < 0, own + size, own) for own, size in sizes]
    return torch.ops.aten._unsafe_index.Tensor(value, positive)


def save(model: openvino.Model, path: Path) -> None:
    """Write a model as NAME.xml, and its weights in full precision as NAME.bin."""
    openvino.save_model(model, path, compress_to_fp16=False)


def load(path: Path) -> openvino.Model:
    """Read the output of `save`; an `UnsupportedError` if OpenVINO cannot."""
    try:
        return _core(os.getpid()).read_model(path)
    except Exception as error:  # as in converting
        raise UnsupportedError(f"{path}: OpenVINO cannot read it: {first_line(error)}") from error


class OpenVinoSession:
    """A model in OpenVINO on the CPU, called with tensors; calls from several threads are serialized.

    Raises:
        UnsupportedError: OpenVINO cannot compile it, or not in full precision.
    """

    def __init__(self, model: openvino.Model, *, threads: int, name: str = "OpenVINO") -> None:
        settings = {
            "INFERENCE_PRECISION_HINT": PRECISION,
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # the cores follow from the affinity of the process, as for other runtimes
        }
        names = [port.get_node().get_name() for port in model.inputs]
        sources = [port.get_node().input_value(0).get_node().get_name() for port in model.outputs]
        #: Numbers of the outputs that are inputs, and of these: bound to both, OpenVINO would write the input.
        self._passed = {number: names.index(name) for number, name in enumerate(sources) if name in names}
        try:
            self._compiled = _core(os.getpid()).compile_model(model, "CPU", settings)
        except Exception as error:  # as in converting
            raise UnsupportedError(f"{name}: OpenVINO cannot compile it: {first_line(error)}") from error
        if (precision := self._compiled.get_property("INFERENCE_PRECISION_HINT")) != openvino.Type.f32:
            raise UnsupportedError(f"{name}: OpenVINO computes in {precision}; required: {PRECISION}")
        self._lock = threading.Lock()
        self._request: Any = None
        self._has_fixed_shapes = all(port.partial_shape.is_static for port in self._compiled.outputs)

    def bound(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Callable[[], object]:
        """A function that computes from contiguous tensors into others, without copies, for one thread at a time."""
        request = self._compiled.create_infer_request()
        for bind, given, ports in (
            (request.set_input_tensor, inputs, self._compiled.inputs),
            (request.set_output_tensor, outputs, self._compiled.outputs),
        ):
            for number, (tensor, _) in enumerate(zip(given, ports, strict=True)):
                if given is inputs or number not in self._passed:
                    bind(number, openvino.Tensor(tensor.numpy(), shared_memory=True))

        def compute(kept: object = (*inputs, *outputs)) -> None:  # the tensors live as long as this function
            request.infer(share_outputs=True)
            for number, place in self._passed.items():
                outputs[number].copy_(inputs[place])

        return compute

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """Outputs for inputs in the order of the program, as new tensors."""
        given = [value.detach().contiguous().numpy() for value in inputs]
        ports = self._compiled.outputs
        if not self._has_fixed_shapes:
            with self._lock:
                outputs: Any = self._compiled(given)
            return [torch.from_numpy(outputs[number]) for number in range(len(ports))]
        made = [openvino.Tensor(port.element_type, port.shape) for port in ports]
        with self._lock:  # a request of our own with bound tensors takes less time than a call of the model
            self._request = self._request or self._compiled.create_infer_request()
            for number, value in enumerate(given):
                self._request.set_input_tensor(number, openvino.Tensor(value, shared_memory=True))
            for number, tensor in enumerate(made):
                if number not in self._passed:
                    self._request.set_output_tensor(number, tensor)
            self._request.infer(share_outputs=True)
        for number, place in self._passed.items():
            made[number].data[...] = given[place]
        return [torch.from_numpy(tensor.data) for tensor in made]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress messages of OpenVINO about decompositions that this version of torch lacks; none of other threads."""
    root, handler, own = logging.getLogger(), logging.NullHandler(), threading.get_ident()

    def is_heard(record: logging.LogRecord) -> bool:
        return record.thread != own or "openvino" not in Path(record.pathname).parts

    root.addFilter(is_heard)
    root.addHandler(handler)  # without a handler, the root logger would get a permanent one
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        root.removeHandler(handler)
        root.removeFilter(is_heard)
