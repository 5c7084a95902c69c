"""An ONNX model as a Relax function, read into calls, with converters of operators that Relax's importer lacks."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import tvm
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, shape_inference
from onnx.helper import get_attribute_value, make_graph, make_model, make_tensor_value_info
from onnx.helper import np_dtype_to_tensor_dtype as tensor_dtype
from onnx.numpy_helper import from_array, to_array
from torch.utils.dlpack import from_dlpack
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from hios.errors import HiosError, UnsupportedError, first_line
from hios.formats.onnx_operators import STANDARD
from hios.formats.onnx_session import OnnxSession
from hios.frontends.onnx_file import DTYPES, tensor_type
from hios.frontends.onnx_rewriting import rewritten
from hios.frontends.program_interface import Origin, dtype_name
from hios.frontends.relax_calls import (
    FunctionReader,
    Lowered,
    NodeError,
    OpaqueCalls,
    RelaxCall,
    Result,
    Weight,
    canonical,
    origins,
    type_difference,
    with_opaque_calls,
)
from hios.kernels.table import onnx_node


def _constant(importer: _OnnxImporter, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Constant: the importer knows only tensors, not the plain numbers of later ONNX versions."""
    if "value" in attributes:
        value = to_array(attributes["value"])
        return relax.const(value, str(value.dtype))  # by default it narrows integers to 32 bits
    for kind, dtype in (("float", "float32"), ("int", "int64")):
        for name in (f"value_{kind}", f"value_{kind}s"):
            if name in attributes:
                return relax.const(np.asarray(attributes[name], dtype), dtype)
    raise UnsupportedError("a constant that is neither a tensor nor numbers is not supported")


def _cast(importer: _OnnxImporter, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Cast and CastLike: as in C; Relax makes zeros of NaN and infinities, and wraps what is too large."""
    data, like = inputs[0], inputs[-1]  # of Cast the same
    if not (_is_tensor(data) and _is_tensor(like)) or isinstance(data, tvm.ir.GenericConst):
        return None
    return relax.op.astype(data, onnx_frontend.get_type(attributes["to"]) if "to" in attributes else like.ty.dtype)


def _clip(importer: _OnnxImporter, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
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


def _expand(importer: _OnnxImporter, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Expand: the shape is broadcast, so that the result can be larger than it."""
    sizes = [int(size) for size in inputs[0].ty.shape]
    shape = _required(importer, inputs[1], "the shape").tolist()
    return relax.op.broadcast_to(inputs[0], np.broadcast_shapes(tuple(sizes), tuple(shape)))


def _gather(importer: _OnnxImporter, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Gather: negative indices count from the end, as in the kernel of relax.take."""
    return relax.op.take(inputs[0], inputs[1], axis=attributes.get("axis", 0))


def _pad(importer: _OnnxImporter, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
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


def _scatter(importer: _OnnxImporter, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """ScatterElements: negative indices count from the end."""
    data, indices, updates = inputs
    axis, dtype = attributes.get("axis", 0), str(indices.ty.dtype)
    is_negative = relax.op.less(indices, relax.const(0, dtype))
    from_the_end = relax.op.add(indices, relax.const(int(data.ty.shape[axis]), dtype))
    reduction = attributes.get("reduction", b"none").decode()
    places = relax.op.where(is_negative, from_the_end, indices)
    return relax.op.scatter_elements(data, places, updates, axis, "update" if reduction == "none" else reduction)


def _top_k(importer: _OnnxImporter, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """TopK: the first of equal numbers; Relax's own takes any."""
    data, axis = inputs[0], attributes.get("axis", -1)
    count = (
        attributes["k"] if "k" in attributes else int(_required(importer, inputs[1], "the number of results").item())
    )
    is_descending = bool(attributes.get("largest", 1))
    order = relax.op.argsort(data, axis, descending=is_descending, dtype="int64")
    places = importer.bb.emit(relax.op.strided_slice(order, [axis % len(data.ty.shape)], [0], [count]))
    return relax.Tuple([importer.bb.emit(relax.op.gather_elements(data, places, axis)), places])


def _softplus(importer: _OnnxImporter, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Softplus: as one step, as log(1 + exp(x)) is 0 for small x."""
    return relax.op.nn.softplus(inputs[0], 1.0, _LINEAR_FROM)


def _mish(importer: _OnnxImporter, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Mish: x tanh(softplus(x))."""
    return relax.op.multiply(inputs[0], relax.op.tanh(_softplus(importer, inputs, attributes)))


def _tile(importer: _OnnxImporter, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Tile: how often each axis is repeated."""
    return relax.op.tile(inputs[0], _required(importer, inputs[1], "the number of repeats").tolist())


def _is_tensor(value: Any) -> bool:
    """Whether Relax made a tensor of a value, and neither a number, a shape nor a sequence."""
    return isinstance(getattr(value, "ty", None), relax.TensorType)


def _required(importer: _OnnxImporter, value: Any, what: str) -> np.ndarray:
    constant = importer.constant(value)
    if constant is None:
        raise UnsupportedError(f"{what} is computed in the model; allowed: a constant")
    return constant


#: From where on log(1 + exp(x)) is x, also in float64; exp does not overflow in float32 before.
_LINEAR_FROM = 88.0
#: By ONNX operator. A converter takes the importer, the inputs (None where left out) and the attributes by name, and
#: returns a Relax expression; None for that of Relax's own converter.
CONVERTERS: dict[str, Callable[[_OnnxImporter, Sequence[Any], Mapping[str, Any]], Any]] = {
    "Cast": _cast,
    "CastLike": _cast,
    "Clip": _clip,
    "Constant": _constant,
    "Expand": _expand,
    "Gather": _gather,
    "Mish": _mish,
    "Pad": _pad,
    **dict.fromkeys(("Scatter", "ScatterElements"), _scatter),
    "Softplus": _softplus,
    "Tile": _tile,
    "TopK": _top_k,
}


#: How TVM's messages print an operator and a number.
_OPERATOR = re.compile(r'ir\.Op\(span=.*?name="([^"]+)".*?support_level=-?\d+\)')
_NUMBER = re.compile(r"T\.int(?:32|64)\((-?\d+)\)")


def lower(model: ModelProto, use: Callable[[Lowered], Result]) -> Result:
    """Import an ONNX model into Relax, canonicalize it, remove dead code, read it and return what ``use`` makes of it.

    Nodes that Relax cannot import, or of whose import ``use`` says in a `NodeError` that hios has no kernel for it,
    become opaque calls.

    An `UnsupportedError` says that a node cannot be such a call either, or that Relax cannot take the model.
    """
    try:
        model = rewritten(model)
        _require_no_branches(model.graph)
        return with_opaque_calls(lambda opaque: use(_imported(_OnnxImporter(model, opaque), model)))
    except HiosError:
        raise
    except Exception as error:  # the libraries raise many types; all mean the same to the user
        raise UnsupportedError(f"Relax cannot import the model: {_reason(error)}") from error


def _require_no_branches(graph: GraphProto) -> None:
    for node in graph.node:
        if node.op_type == "If":
            raise UnsupportedError(
                f"{_origin(node).place}: which branch is taken depends on the values of inputs; allowed: branches that "
                "are known from shapes, or from an input that is a number whose value is given (hios export --input "
                "NAME=VALUE)"
            )


def _imported(importer: _OnnxImporter, model: ModelProto) -> Lowered:
    """The model in Relax; errors name the node being imported."""
    versions = (entry.version for entry in model.opset_import if entry.domain in STANDARD)
    opset = next(versions, 1)  # where all operators are of other domains, nothing depends on it
    try:
        # The importer warns about every renaming, and prints the node it fails on.
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            module = importer.from_onnx(model.graph, opset)
    except Exception as error:  # the importer raises many types; all mean the same to the user
        place = _origin(importer.node).place if importer.node is not None else "the model"
        raise UnsupportedError(f"Relax cannot import {place}: {_reason(error)}") from error
    module, _ = relax.frontend.detach_params(module)
    places = origins(module, importer.made)
    _refuse_kernels(module, places)
    return FunctionReader(canonical(module), importer.weights, places, importer.opaque_calls).read()


def _refuse_kernels(module: tvm.IRModule, places: Mapping[str, Origin]) -> None:
    """Refuse nodes that Relax imports as kernels of its own."""
    calls = [binding for block in module["main"].body.blocks for binding in block.bindings]
    kernels = [
        places[binding.var.name]
        for binding in calls
        if isinstance(binding.value, tvm.ir.Call) and binding.value.op.name == "relax.call_tir"
    ]
    if kernels:
        reason = f"Relax cannot import {kernels[0].place} as operators, only as a kernel of its own"
        raise NodeError(reason, {origin.node: reason for origin in kernels})


def _reason(error: Exception) -> str:
    """The message of a library's error, with TVM's notation of operators and numbers simplified."""
    return _NUMBER.sub(r"\1", _OPERATOR.sub(r"\1", first_line(error)))


class _OnnxImporter(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]
    """Relax's importer, extended to track the current node and the names of weights, and to make opaque calls.

    ``opaque`` are nodes, by their first outputs, that become such calls in any case, with the reason.
    """

    def __init__(self, model: ModelProto, opaque: Mapping[str, str]) -> None:
        super().__init__(shape_dict={}, dtype_dict={}, keep_params_in_input=True)
        self.node: NodeProto | None = None
        self.weights: dict[str, Weight] = {}
        self.made: list[tuple[Origin, list[Any]]] = []
        self.opaque_calls = OpaqueCalls()
        self._model = model
        self._opaque = opaque
        self._types = {
            value.name: tensor_type(value)
            for value in [*model.graph.value_info, *model.graph.output]
            if value.type.tensor_type.elem_type in DTYPES and _is_fixed(value)
        }
        self._read = {value.name for value in model.graph.output}.union(*(_inputs(node) for node in model.graph.node))

    def _sanitize_name(self, name: str) -> str:
        """The name of an input as it is; Relax's importer replaces dots, and what begins with a digit."""
        self._name_supply.reserve_name(name)  # no weight gets it
        return name

    def _parse_graph_initializers(self, graph: GraphProto) -> None:
        self._parse_graph_input(graph)  # first, so that inputs have their names before weights do
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
            reason = self._opaque.get(node.output[0])
            if reason is None:
                try:
                    reason = self._known_as_wrong(node) or self._import(node)
                except Exception as error:  # the importer raises many types; all mean the same to the user
                    reason = _reason(error)
            if reason is not None:
                self._opaque_call(node, reason)
            for name in node.output:
                value = self._nodes.get(name)
                if isinstance(value, tvm.ir.Call) and isinstance(value.ty, relax.TensorType):
                    self._nodes[name] = self.bb.emit(value)  # now, so that its node is known
            self.made.append((_origin(node), [self._nodes.get(name) for name in node.output]))

    def _import(self, node: NodeProto) -> str | None:
        """Have Relax import a node; returns what is wrong with the types that it made, if anything."""
        super()._construct_nodes(SimpleNamespace(node=[node]))
        return self._difference(node)

    def _check_for_unsupported_ops(self, graph: GraphProto) -> None:
        """Operators that Relax lacks become opaque calls."""

    def _difference(self, node: NodeProto) -> str | None:
        """In what the types of what Relax made of a node differ from those in the model, in words."""
        for name in node.output:
            if name in self._read and name in self._types:
                shape, dtype = self._types[name]
                if difference := type_difference(self._nodes[name], shape, dtype_name(dtype)):
                    return difference
        return None

    def _convert_operator(self, op_name: str, inputs: Sequence[Any], attrs: dict[str, Any], opset: int) -> Any:
        made = CONVERTERS[op_name](self, list(inputs), attrs) if op_name in CONVERTERS else None
        if made is not None:
            return self.bb.normalize(made)
        return super()._convert_operator(op_name, inputs, attrs, opset)

    def constant(self, value: Any) -> np.ndarray | None:
        """The value of an input that is a weight or constant; None if it is computed."""
        if isinstance(value, relax.ShapeExpr):
            return np.asarray([int(size) for size in value.values], "int64")
        known = onnx_frontend.get_constant(value, [self._nodes, self._params])
        return known.value.numpy() if isinstance(known, tvm.ir.GenericConst) else None

    def _known_as_wrong(self, node: NodeProto) -> str | None:
        """Why Relax, or the kernel that it means, would compute something else; None if nothing is known."""
        given = {attribute.name: get_attribute_value(attribute) for attribute in node.attribute}
        wrong = _lacks_axes if given.get("noop_with_empty_axes") else _WRONG.get(node.op_type, _never)
        is_wrong = node.domain not in STANDARD or wrong(self, node, given)
        return "Relax would import it wrongly" if is_wrong else None

    def dtype(self, name: str) -> str:
        """The dtype of a value, or an empty text for what is no tensor."""
        value = self.value(name)
        return str(value.ty.dtype) if _is_tensor(value) else ""

    def value(self, name: str) -> Any:
        """What Relax made of a value."""
        return self._nodes[name]

    def _opaque_call(self, node: NodeProto, reason: str) -> None:
        """Bind the outputs of a node that others read to those of an opaque call."""
        if onnx_node.is_random(node):
            raise UnsupportedError(f"{node.op_type} draws random numbers; allowed: the same outputs in every run")
        inputs, constants, tensors = [], [], []
        for name in _inputs(node):
            value = self._nodes[name]
            if (known := self.constant(value)) is not None and known.size <= _MOST_CONSTANT:
                constants.append(from_array(known, name))
                continue
            if not _is_tensor(value):
                raise UnsupportedError(f"{reason}; as an operator of its own: found an input that is no tensor")
            kind = tensor_dtype(np.dtype(str(value.ty.dtype)))
            inputs.append(make_tensor_value_info(name, kind, [int(size) for size in value.ty.shape]))
            tensors.append(value)
        names = [name for name in node.output if name in self._read]
        graph = make_graph([node], node.op_type, inputs, [ValueInfoProto(name=name) for name in names], constants)
        model = make_model(graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version)
        try:
            session = OnnxSession(node.op_type, model.SerializeToString())
            told, fixed_trips = _shapes(session, model), _has_fixed_trips(node, {own.name for own in constants})
            if not (fixed_trips or all(told)):
                raise UnsupportedError(_DEPENDS_ON_VALUES)
            made = session(*(torch.zeros(shape, dtype=dtype) for shape, dtype in map(tensor_type, inputs)))
            if not (fixed_trips or all(list(own.shape) in shapes for own, shapes in zip(made, told, strict=True))):
                raise UnsupportedError(_DEPENDS_ON_VALUES)
        except Exception as error:  # it raises many types; all mean the same to the user
            raise UnsupportedError(f"{reason}; as an operator of its own: {first_line(error)}") from error
        call = RelaxCall(
            f"{onnx_node.PREFIX}{node.op_type}",
            [],
            onnx_node.attributes_of(model),
            [tuple(value.shape) for value in made],
            [dtype_name(value.dtype) for value in made],
        )
        self._nodes.update(zip(names, self.opaque_calls.emit(call, self.bb, tensors), strict=True))


_DEPENDS_ON_VALUES = "the shape of its result depends on values; allowed: fixed shapes"


def _shapes(session: OnnxSession, model: ModelProto) -> list[list[list[Any]]]:
    """The fixed shapes of each output that ONNX Runtime and ONNX tell before a run.

    For ONNX Runtime, a value of unknown rank has no dimensions.
    """
    shapes = [[shape] * all(isinstance(size, int) for size in shape) for shape in session.shapes]
    for told, value in zip(shapes, shape_inference.infer_shapes(model, data_prop=True).graph.output, strict=True):
        if _is_fixed(value):
            told.append([size.dim_value for size in value.type.tensor_type.shape.dim])
    return shapes


def _never(importer: _OnnxImporter, node: NodeProto, given: Mapping[str, Any]) -> bool:
    return False


def _always(importer: _OnnxImporter, node: NodeProto, given: Mapping[str, Any]) -> bool:
    return True


def _lacks_axes(importer: _OnnxImporter, node: NodeProto, given: Mapping[str, Any]) -> bool:
    """Whether Relax leaves out what a reduction that does nothing else does to each number, such as to square it."""
    if len(node.input) < 2 or not node.input[1]:
        return True
    axes = importer.constant(importer.value(node.input[1]))
    return axes is not None and not axes.size


def _is_half(importer: _OnnxImporter, node: NodeProto, given: Mapping[str, Any]) -> bool:
    return importer.dtype(node.input[0]) == "float16"


def _is_whole(importer: _OnnxImporter, node: NodeProto, given: Mapping[str, Any]) -> bool:
    return importer.dtype(node.input[0]).startswith(("int", "uint"))


def _takes_one_infinity(importer: _OnnxImporter, node: NodeProto, given: Mapping[str, Any]) -> bool:
    return 0 in given.values()


def _makes_eight_bits(importer: _OnnxImporter, node: NodeProto, given: Mapping[str, Any]) -> bool:
    if node.op_type == "Cast":
        return TensorProto.DataType.Name(given["to"]).startswith("FLOAT8")
    return importer.dtype(node.input[1]).startswith("float8")


def _may_train(importer: _OnnxImporter, node: NodeProto, given: Mapping[str, Any]) -> bool:
    return len(node.input) > 2 and node.input[2] != "" and importer.constant(importer.value(node.input[2])) is None


def _resizes_otherwise(importer: _OnnxImporter, node: NodeProto, given: Mapping[str, Any]) -> bool:
    """Whether pixels come from elsewhere than the sizes say, as where scales give sizes that are rounded."""
    if given.get("antialias") or given.get("exclude_outside"):
        return True
    name = node.input[2] if len(node.input) > 2 else ""
    scales = importer.constant(importer.value(name)) if name else None
    if scales is None or not scales.size:
        return False
    sizes = [int(size) for size in importer.value(node.input[0]).ty.shape]
    scaled = np.asarray([sizes[axis] for axis in given.get("axes", range(len(sizes)))]) * scales
    return not np.allclose(scaled, np.round(scaled), rtol=1e-6)


#: ONNX operators that Relax's importer or a kernel of hios gets wrong, and the nodes for which it does: powers of whole
#: numbers wrap, steps overflow in 16 bits, variances are differences of squares, and logarithms of sums fail where all
#: are minus infinity.
_WRONG: Mapping[str, Callable[[_OnnxImporter, NodeProto, Mapping[str, Any]], bool]] = {
    **dict.fromkeys(("Hardmax", "MeanVarianceNormalization", "ReduceLogSumExp"), _always),
    **dict.fromkeys(("GlobalLpPool", "InstanceNormalization", "LpPool", "ReduceL2", "ReduceLogSum"), _is_half),
    **dict.fromkeys(("Pow", "Shrink"), _is_whole),
    **dict.fromkeys(("Cast", "CastLike"), _makes_eight_bits),
    "Dropout": _may_train,
    "IsInf": _takes_one_infinity,
    "Resize": _resizes_otherwise,
}


def _is_fixed(value: ValueInfoProto) -> bool:
    kind = value.type.tensor_type
    return kind.HasField("shape") and all(size.HasField("dim_value") for size in kind.shape.dim)


def _has_fixed_trips(node: NodeProto, constants: Container[str]) -> bool:
    """Whether a loop runs a number of times that is known: its count is a constant, and its condition never changes."""
    if node.op_type != "Loop" or any(name and name not in constants for name in node.input[:2]):
        return False
    (body,) = (attribute.g for attribute in node.attribute if attribute.name == "body")
    kept = {body.input[1].name}
    kept.update(inner.output[0] for inner in body.node if inner.op_type == "Identity" and inner.input[0] in kept)
    return bool(node.input[0]) and body.output[0].name in kept


#: Elements of a constant, such as a scale or sizes, up to which it is part of the model of an opaque call: ONNX Runtime
#: infers shapes from them, and some operators take nothing else. Others are weights.
_MOST_CONSTANT = 64


def _inputs(node: NodeProto) -> list[str]:
    """The values that a node reads, each once, including those that its branches and loops take from around them."""
    names = dict.fromkeys(filter(None, node.input))
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            own = {value.name for value in [*graph.input, *graph.initializer]}
            for inner in graph.node:
                names.update(dict.fromkeys(name for name in _inputs(inner) if name not in own))
                own.update(inner.output)
            names.update(dict.fromkeys(value.name for value in graph.output if value.name not in own))
    return list(names)


def _origin(node: NodeProto) -> Origin:
    """Type and name of a node, and the path of its module if torch exported the file with it."""
    name = node.name or (node.output[0] if node.output else "")
    scopes = next((entry.value for entry in node.metadata_props if entry.key == "pkg.torch.onnx.name_scopes"), "[]")
    try:
        path = ast.literal_eval(scopes)
    except (ValueError, SyntaxError):
        path = []
    module = path[-2] if isinstance(path, list) and len(path) > 1 and isinstance(path[-2], str) else ""
    return Origin(module, f"{node.op_type} (node {name})", node.output[0] if node.output else None)
