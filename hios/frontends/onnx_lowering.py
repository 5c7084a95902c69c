"""An ONNX model as a Relax function, read into calls, with converters of operators that Relax's importer lacks."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import tvm
from onnx import GraphProto, ModelProto, NodeProto
from onnx.numpy_helper import to_array
from torch.utils.dlpack import from_dlpack
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from hios.errors import HiosError, UnsupportedError, first_line
from hios.frontends.onnx_file import nodes
from hios.frontends.onnx_rewriting import rewritten
from hios.frontends.relax_calls import Lowered, Weight, canonical, origins, read
from hios.frontends.source_location import Origin


class Importer(Protocol):
    """What converters need from the importer."""

    def constant(self, value: Any) -> np.ndarray | None:
        """The value of an input that is a weight or constant; None if it is computed."""


def _constant(importer: Importer, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Constant: the importer knows only tensors, not the plain numbers of later ONNX versions."""
    if "value" in attributes:
        value = to_array(attributes["value"])
        return relax.const(value, str(value.dtype))  # by default it narrows integers to 32 bits
    for kind, dtype in (("float", "float32"), ("int", "int64")):
        for name in (f"value_{kind}", f"value_{kind}s"):
            if name in attributes:
                return relax.const(np.asarray(attributes[name], dtype))
    raise UnsupportedError("a constant that is neither a tensor nor numbers is not supported")


def _clip(importer: Importer, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Clip: bounds are attributes before version 11 and inputs since; both are optional."""
    data, dtype = inputs[0], inputs[0].ty.dtype
    bounds = []
    for position, name in ((1, "min"), (2, "max")):
        given = inputs[position] if len(inputs) > position else None
        bound = attributes.get(name) if given is None else _required(importer, given, f"the bound {name}").item()
        bounds.append(bound if bound is not None and np.isfinite(bound) else None)
    low, high = bounds
    if low is not None and high is not None:
        return relax.op.clip(data, low, high)
    if low is not None:
        return relax.op.maximum(data, relax.const(low, dtype))
    return data if high is None else relax.op.minimum(data, relax.const(high, dtype))


def _expand(importer: Importer, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Expand: the shape is broadcast, so that the result can be larger than it."""
    sizes = [int(size) for size in inputs[0].ty.shape]
    shape = _required(importer, inputs[1], "the shape").tolist()
    return relax.op.broadcast_to(inputs[0], np.broadcast_shapes(tuple(sizes), tuple(shape)))


def _gather(importer: Importer, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Gather: negative indices count from the end, as in the kernel of relax.take."""
    return relax.op.take(inputs[0], inputs[1], axis=attributes.get("axis", 0))


def _pad(importer: Importer, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Pad: ONNX lists widths before all axes, then after; Relax lists both for each axis."""
    data, *others = [*inputs, None, None, None][:4]
    widths, value, axes = (None if other is None else _required(importer, other, "the padding") for other in others)
    before_and_after = attributes.get("pads", attributes.get("paddings")) if widths is None else widths.tolist()
    rank = len(data.ty.shape)
    chosen = range(rank) if axes is None else [int(axis) % rank for axis in axes]
    padding = [0] * (2 * rank)
    for number, axis in enumerate(chosen):
        padding[2 * axis] = int(before_and_after[number])
        padding[2 * axis + 1] = int(before_and_after[number + len(chosen)])
    mode = attributes.get("mode", b"constant").decode()
    modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    filled = attributes.get("value", 0.0) if value is None else value.item()
    return relax.op.nn.pad(data, padding, modes[mode], float(filled))


def _tile(importer: Importer, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Tile: how often each axis is repeated."""
    return relax.op.tile(inputs[0], _required(importer, inputs[1], "the number of repeats").tolist())


def _required(importer: Importer, value: Any, what: str) -> np.ndarray:
    constant = importer.constant(value)
    if constant is None:
        raise UnsupportedError(f"{what} is computed in the model; allowed: a constant")
    return constant


#: By ONNX operator. A converter takes the importer, the inputs (None where left out) and the attributes by name, and
#: returns a Relax expression.
CONVERTERS: dict[str, Callable[[Importer, Sequence[Any], Mapping[str, Any]], Any]] = {
    "Clip": _clip,
    "Constant": _constant,
    "Expand": _expand,
    "Gather": _gather,
    "Pad": _pad,
    "Tile": _tile,
}


#: How TVM's messages print an operator and a number.
_OPERATOR = re.compile(r'ir\.Op\(span=.*?name="([^"]+)".*?support_level=-?\d+\)')
_NUMBER = re.compile(r"T\.int(?:32|64)\((-?\d+)\)")


def lower(model: ModelProto) -> Lowered:
    """Import an ONNX model into Relax, canonicalize it, remove dead code and read the result.

    An `UnsupportedError` says that Relax lacks an operator, or cannot take the model.
    """
    importer = _OnnxImporter()
    try:
        model = rewritten(model)
        _require_converters(model.graph)
        module = _imported(importer, model)
        places = origins(module, importer.made)
        _refuse_kernels(module, places)
        return read(canonical(module), importer.weights, places, {})
    except HiosError:
        raise
    except Exception as error:  # the libraries raise many types; all mean the same to the user
        raise UnsupportedError(f"Relax cannot import the model: {_reason(error)}") from error


def _require_converters(graph: GraphProto) -> None:
    known = {*onnx_frontend._get_convert_map(), *CONVERTERS}
    for node in nodes(graph):
        if node.op_type == "If":
            raise UnsupportedError(
                f"{_origin(node).place}: which branch is taken depends on the values of inputs; allowed: branches that "
                "are known from shapes, or from an input that is a number whose value is given (hios export --input "
                "NAME=VALUE)"
            )
        if node.op_type not in known:
            raise UnsupportedError(
                f"Relax cannot import {_origin(node).place}: it has no converter for this operator; write the model "
                "with other operators there, or add a converter to hios/frontends/onnx_lowering.py"
            )


def _imported(importer: _OnnxImporter, model: ModelProto) -> tvm.IRModule:
    """The model in Relax; errors name the node being imported."""
    opset = next(entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"})
    try:
        # The importer warns about every renaming, and prints the node it fails on.
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            module = importer.from_onnx(model.graph, opset)
    except Exception as error:  # the importer raises many types; all mean the same to the user
        place = _origin(importer.node).place if importer.node is not None else "the model"
        raise UnsupportedError(f"Relax cannot import {place}: {_reason(error)}") from error
    module, _ = relax.frontend.detach_params(module)
    return module


def _refuse_kernels(module: tvm.IRModule, places: Mapping[str, Origin]) -> None:
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, tvm.ir.Call) and binding.value.op.name == "relax.call_tir":
                raise UnsupportedError(
                    f"Relax cannot import {places[binding.var.name].place} as operators, only as a kernel of its own; "
                    "write the model with other operators there, or add a converter to "
                    "hios/frontends/onnx_lowering.py"
                )


def _reason(error: Exception) -> str:
    """The message of a library's error, with TVM's notation of operators and numbers simplified."""
    return _NUMBER.sub(r"\1", _OPERATOR.sub(r"\1", first_line(error)))


class _OnnxImporter(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]
    """Relax's importer, extended to track the current node and the names of weights in the file."""

    def __init__(self) -> None:
        super().__init__(shape_dict={}, dtype_dict={}, keep_params_in_input=True)
        self.node: NodeProto | None = None
        self.weights: dict[str, Weight] = {}
        self.made: list[tuple[Origin, list[Any]]] = []

    def _parse_graph_initializers(self, graph: GraphProto) -> None:
        for tensor in graph.initializer:
            array = self._parse_array(tensor)
            # Relax turns names of weights into identifiers, so that two may become equal.
            name = str(self._name_supply.fresh_name("weight"))
            self._nodes[tensor.name] = self._new_var(name, shape=array.shape, dtype=array.dtype)
            self._params[name] = (self._nodes[tensor.name], array)
            self.weights[name] = Weight(tensor.name.removeprefix("onnx::"), from_dlpack(array))

    def _construct_nodes(self, graph: GraphProto) -> None:
        for node in graph.node:
            self.node = node
            super()._construct_nodes(SimpleNamespace(node=[node]))
            for name in node.output:
                value = self._nodes.get(name)
                if isinstance(value, tvm.ir.Call) and isinstance(value.ty, relax.TensorType):
                    self._nodes[name] = self.bb.emit(value)  # now, so that its node is known
            self.made.append((_origin(node), [self._nodes.get(name) for name in node.output]))

    def _convert_operator(self, op_name: str, inputs: Sequence[Any], attrs: dict[str, Any], opset: int) -> Any:
        if op_name in CONVERTERS:
            return self.bb.normalize(CONVERTERS[op_name](self, list(inputs), attrs))
        return super()._convert_operator(op_name, inputs, attrs, opset)

    def constant(self, value: Any) -> np.ndarray | None:
        """The value of an input that is a weight or constant; None if it is computed."""
        known = onnx_frontend.get_constant(value, [self._nodes, self._params])
        return known.value.numpy() if isinstance(known, tvm.ir.GenericConst) else None


def _origin(node: NodeProto) -> Origin:
    """Type and name of a node, and the path of its module if torch exported the file with it."""
    name = node.name or (node.output[0] if node.output else "")
    scopes = next((entry.value for entry in node.metadata_props if entry.key == "pkg.torch.onnx.name_scopes"), "[]")
    try:
        path = ast.literal_eval(scopes)
    except (ValueError, SyntaxError):
        path = []
    module = path[-2] if isinstance(path, list) and len(path) > 1 and isinstance(path[-2], str) else ""
    return Origin(module, f"{node.op_type} (node {name})")
