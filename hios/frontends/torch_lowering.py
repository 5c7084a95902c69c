"""An exported program of torch as a Relax function, read into calls.

ATen operators that Relax's importer lacks or imports incorrectly become operators of Relax by a converter, or opaque
calls. A converter is for operators that schedulers should see as Relax has them: that fuse, are counted, or are in the
networks of the papers. It takes the node of a program's graph (a ``torch.fx.Node``) and the importer (an
``ExportedProgramImporter``), whose ``env`` holds the Relax values of nodes, and emits Relax operators.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram, default_decompositions
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter
from tvm.tirx import FloatImm

from hios.core.graph import RECURRENT
from hios.errors import UnsupportedError, first_line
from hios.frontends.program_interface import arguments_of, dtype_name, of_node, user_inputs
from hios.frontends.relax_calls import (
    STAND_IN,
    FunctionReader,
    Lowered,
    OpaqueCalls,
    RelaxCall,
    Result,
    Weight,
    canonical,
    origins,
    type_difference,
    with_opaque_calls,
)
from hios.kernels.table import aten

_Converter = Callable[[Any, Any], Any]

#: Convolutions by how many dimensions an image has, and whether they are transposed.
_CONVOLUTIONS = {
    (1, False): relax.op.nn.conv1d,
    (2, False): relax.op.nn.conv2d,
    (3, False): relax.op.nn.conv3d,
    (1, True): relax.op.nn.conv1d_transpose,
    (2, True): relax.op.nn.conv2d_transpose,
}


def _dtype(value: Any) -> str:
    """The name of the dtype of a node, or of a dtype."""
    return dtype_name(value if isinstance(value, torch.dtype) else value.meta["val"].dtype)


def _is_half(node: fx.Node) -> bool:
    dtype = node.meta["val"].dtype
    return bool(dtype.is_floating_point and dtype.itemsize < 4)


def _cast(value: Any, dtype: str, importer: Any) -> Any:
    """A Relax value or a number, cast to a dtype."""
    if not isinstance(value, relax.Expr):
        return relax.const(value, dtype)
    return value if value.ty.dtype == dtype else importer.block_builder.emit(relax.op.astype(value, dtype))


def _convolution(node: Any, importer: Any) -> relax.Var:
    """In the precision of its tensors; Relax's importer assumes float32."""
    image, weight, bias, strides, padding, dilation, transposed, output_padding, groups = importer.retrieve_args(node)
    dimensions = len(strides)
    if (make := _CONVOLUTIONS.get((dimensions, transposed))) is None:
        raise UnsupportedError(f"a transposed convolution of {dimensions} dimensions is not supported, only of 1 or 2")
    more = {"output_padding": output_padding} if transposed else {}
    convolved = importer.block_builder.emit(
        make(image, weight, strides, padding, dilation=dilation, groups=groups, out_dtype=_dtype(node), **more)
    )
    if bias is None:
        return convolved
    return importer.block_builder.emit(relax.op.add(convolved, relax.op.reshape(bias, (1, -1) + (1,) * dimensions)))


def _linear(node: Any, importer: Any) -> relax.Var:
    image, weight, *bias = importer.retrieve_args(node)
    return importer.block_builder.emit(relax.op.linear(image, weight, *(bias or [None]), _dtype(node)))


def _matmul(node: Any, importer: Any) -> relax.Var:
    first, second = importer.retrieve_args(node)
    return importer.block_builder.emit(relax.op.matmul(first, second, _dtype(node)))


def _addmm(node: Any, importer: Any) -> relax.Var:
    bias, first, second = importer.retrieve_args(node)
    dtype = _dtype(node)
    product = importer.block_builder.emit(relax.op.matmul(first, second, dtype))
    product = _scaled(product, node.kwargs.get("alpha", 1), dtype, importer)
    beta = node.kwargs.get("beta", 1)
    if beta == 0:  # as in torch the bias is then ignored, even if it is not finite
        return product
    return importer.block_builder.emit(relax.op.add(_scaled(bias, beta, dtype, importer), product))


def _scaled(value: Any, factor: float, dtype: str, importer: Any) -> Any:
    if factor == 1:
        return value
    return importer.block_builder.emit(relax.op.multiply(value, relax.const(factor, dtype)))


def _attention(node: Any, importer: Any) -> relax.Var:
    """Relax's attention takes four dimensions, and its mask is added."""
    given = arguments_of(node)
    emit, dtype = importer.block_builder.emit, _dtype(node)
    query, key, value = (importer.env[given[name]] for name in ("query", "key", "value"))
    shapes = [list(given[name].meta["val"].shape) for name in ("query", "key", "value")]
    if given["dropout_p"]:
        raise UnsupportedError(f"dropout_p is {given['dropout_p']}; allowed: 0")
    if given["enable_gqa"] and shapes[0][-3] != shapes[1][-3]:
        repeats = shapes[0][-3] // shapes[1][-3]
        key, value = (emit(relax.op.repeat(part, repeats, axis=len(shapes[0]) - 3)) for part in (key, value))
        shapes[1][-3] = shapes[2][-3] = shapes[0][-3]
    mask = None
    if given["attn_mask"] is not None:
        mask = _mask(given["attn_mask"], [*shapes[0][:-1], shapes[1][-2]], dtype, importer)
    parts = [
        emit(relax.op.permute_dims(_in_four(part, shape, importer), [0, 2, 1, 3]))
        for part, shape in zip((query, key, value), shapes, strict=True)
    ]
    attended = emit(
        relax.op.nn.attention(
            *parts,
            bias=mask,
            scale=None if given["scale"] is None else FloatImm("float32", given["scale"]),
            causal_mask="TopLeft" if given["is_causal"] else None,
        )
    )
    attended = emit(relax.op.permute_dims(attended, [0, 2, 1, 3]))
    shape = list(node.meta["val"].shape)
    return attended if len(shape) == 4 else emit(relax.op.reshape(attended, shape))


def _in_four(value: Any, shape: list[int], importer: Any) -> Any:
    """A value reshaped to four dimensions, its leading dimensions merged or padded with 1."""
    if len(shape) == 4:
        return value
    heads = shape[-3] if len(shape) > 2 else 1
    batch = math.prod(shape[:-3])
    return importer.block_builder.emit(relax.op.reshape(value, [batch, heads, *shape[-2:]]))


def _mask(mask: Any, shape: list[int], dtype: str, importer: Any) -> Any:
    """The values that a mask adds to scores of a shape: minus infinity where a boolean is false."""
    emit, value, own = importer.block_builder.emit, importer.env[mask], list(mask.meta["val"].shape)
    if _dtype(mask) == "bool":
        value = emit(relax.op.where(value, relax.const(0.0, dtype), relax.const(-math.inf, dtype)))
    value = _cast(value, dtype, importer)
    if own != shape:
        value = emit(relax.op.broadcast_to(value, shape))
    return _in_four(value, shape, importer)


def _rounds_a_number(node: Any, given: list[Any]) -> bool:
    """Whether the dtype of the result lacks a number among the arguments, or may lack that of a tensor with one."""
    dtype = node.meta["val"].dtype
    numbers = [own for own in given if isinstance(own, int | float)]
    alone = [own.meta["val"].dtype for own in node.all_input_nodes if own.meta["val"].ndim == 0]
    return any(torch.tensor(own, dtype=dtype).item() != own for own in numbers) or bool(
        set(alone) - {dtype, torch.bool}
    )


def _arithmetic(operator: Callable[..., Any], *, exact: bool = False) -> _Converter:
    """In the dtype of the result, as in torch: dividing integers gives floats.

    Where it is ``exact``, torch does not round numbers to 16 bits before.
    """

    def convert(node: Any, importer: Any) -> relax.Var:
        first, second = importer.retrieve_args(node)[:2]
        dtype = _dtype(node)
        if exact and _is_half(node) and _rounds_a_number(node, [first, second]):
            raise UnsupportedError("Relax would round a number to 16 bits")
        first, second = _cast(first, dtype, importer), _cast(second, dtype, importer)
        second = _scaled(second, arguments_of(node).get("alpha", 1), dtype, importer)
        return importer.block_builder.emit(operator(first, second))

    return convert


def _comparison(operator: Callable[..., Any]) -> _Converter:
    """In the common dtype of both sides, as in torch: 2 is less than 2.5."""

    def convert(node: Any, importer: Any) -> relax.Var:
        sides = [side.meta["val"] if isinstance(side, fx.Node) else side for side in node.args]
        dtype = _dtype(torch.result_type(*sides))
        return importer.block_builder.emit(
            operator(*(_cast(value, dtype, importer) for value in importer.retrieve_args(node)))
        )

    return convert


def _extremum(operator: Callable[..., Any]) -> _Converter:
    def convert(node: Any, importer: Any) -> relax.Var:
        given = arguments_of(node)
        value = importer.env[given["self"]]
        return importer.block_builder.emit(operator(value, list(given["dim"]) or None, keepdims=given["keepdim"]))

    return convert


def _hardswish(node: Any, importer: Any) -> relax.Var:
    """In the order of torch, which multiplies first: large numbers become infinite."""
    if _is_half(node):
        raise UnsupportedError("it would overflow in 16 bits")
    value, dtype, emit = importer.env[node.args[0]], _dtype(node), importer.block_builder.emit
    factor = relax.op.clip(relax.op.add(value, relax.const(3, dtype)), 0, 6)
    return emit(relax.op.divide(relax.op.multiply(value, factor), relax.const(6, dtype)))


#: By the name of an operator in a program's graph.
CONVERTERS: dict[str, _Converter] = {
    "addmm.default": _addmm,
    "amax.default": _extremum(relax.op.max),
    "amin.default": _extremum(relax.op.min),
    "convolution.default": _convolution,
    **dict.fromkeys(("hardswish.default", "hardswish_.default"), _hardswish),
    "linear.default": _linear,
    **dict.fromkeys(("matmul.default", "mm.default", "bmm.default"), _matmul),
    "scaled_dot_product_attention.default": _attention,
    **{
        f"{name}.{kind}": convert
        for name, convert in {
            "add": _arithmetic(relax.op.add),
            "sub": _arithmetic(relax.op.subtract),
            "mul": _arithmetic(relax.op.multiply, exact=True),
            "div": _arithmetic(relax.op.divide, exact=True),
            "remainder": _arithmetic(relax.op.floor_mod),
            "eq": _comparison(relax.op.equal),
            "ne": _comparison(relax.op.not_equal),
            "lt": _comparison(relax.op.less),
            "le": _comparison(relax.op.less_equal),
            "gt": _comparison(relax.op.greater),
            "ge": _comparison(relax.op.greater_equal),
        }.items()
        for kind in ("Tensor", "Scalar")
    },
}


#: ATen operators, without overload, that stay one: patterns would not match their parts, or these check values or
#: round or take NaN in another way.
_KEPT_WHOLE = {
    *("linear", "gelu", "softmax", "log_softmax", "adaptive_avg_pool2d", "scaled_dot_product_attention"),
    *("silu", "selu", "prelu", "softplus", "hardswish", "hardsigmoid", "pixel_shuffle", "upsample_bicubic2d"),
    *("index_add", "index_copy", "index_fill", "inverse", "linalg_cholesky", "linalg_cross", "linalg_inv"),
    *("linalg_ldl_factor", "linalg_lu_factor", "linalg_solve", "linalg_tensorinv", "max_unpool2d", "max_unpool3d"),
    *("multilabel_margin_loss_forward", "one_hot"),
}


def _one_direction_at_a_time(operator: Any) -> Callable[..., Any]:
    """A decomposition of a recurrent layer into calls with one layer and one direction, of which two can run at once.

    Called by torch with the arguments of the operator; in evaluation nothing is dropped between layers.
    """

    def decompose(x: Tensor, hx: Any, params: Any, biases: bool, layers: int, *options: Any) -> Any:
        dropout, train, bidirectional, batch_first = options
        if layers == 1 and not bidirectional:
            return NotImplemented  # torch then keeps the call
        directions = 2 if bidirectional else 1
        states = [state.split(1) for state in (hx if isinstance(hx, list | tuple) else [hx])]
        size, time = len(params) // (layers * directions), 1 if batch_first else 0
        last: list[tuple[Tensor, ...]] = []
        for _ in range(layers):
            made = []
            for backwards in range(directions):
                number = len(last)
                own, weights = [state[number] for state in states], params[number * size : (number + 1) * size]
                given = x.flip(time) if backwards else x
                initial = own if isinstance(hx, list | tuple) else own[0]
                output, *ends = operator(given, initial, weights, biases, 1, dropout, train, False, batch_first)
                made.append(output.flip(time) if backwards else output)
                last.append(tuple(ends))
            x = torch.cat(made, 2) if bidirectional else made[0]
        return x, *(torch.cat(parts) for parts in zip(*last, strict=True))

    return decompose


def _resizes_otherwise(node: fx.Node) -> bool:
    """Whether a factor of a resizing is not the ratio of the sizes, such as 1.3: Relax knows sizes only."""
    given = arguments_of(node)
    factors = () if given.get("align_corners") else given.get("scale_factors") or ()
    return any(own * factor != made for (own, made), factor in zip(_resized(node), factors, strict=False))


def _takes_other_neighbors(node: fx.Node) -> bool:
    """Whether Relax would take other points than torch as the nearest: it does unless sizes become multiples."""
    return _resizes_otherwise(node) or any(made % own for own, made in _resized(node))


def _resized(node: fx.Node) -> list[tuple[int, int]]:
    """The sizes of an image before and after a resizing."""
    given = arguments_of(node)
    image = given["input"] if "input" in given else given["self"]
    return list(zip(image.meta["val"].shape[2:], node.meta["val"].shape[2:], strict=True))


#: Parts of decomposed operators that trust their indices, and the operators that check them.
_CHECKED: Mapping[Any, Any] = {
    torch.ops.aten._unsafe_index.Tensor: torch.ops.aten.index.Tensor,
    torch.ops.aten._unsafe_index_put.default: torch.ops.aten.index_put.default,
}


def _always(node: fx.Node) -> bool:
    return True


def _orders(node: fx.Node) -> bool:
    """Whether it makes indices, of which those of equal numbers have an order of their own."""
    return isinstance(node.meta["val"], Tensor) or 1 in _used(node)


#: ATen operators that Relax's importer gets wrong, and the calls for which it does: it ignores some arguments, lets ids
#: of tables count from the end, takes any of several maxima, mixes up axes of several indices, orders equal numbers
#: otherwise, and writes out the steps of recurrent layers, and of functions that are then not exact for small numbers
#: or for powers, or overflow in 16 bits.
_WRONG: Mapping[str, Callable[[fx.Node], bool]] = {
    "aten::_upsample_bilinear2d_aa": _always,
    "aten::any": _always,
    "aten::avg_pool2d": lambda node: arguments_of(node)["divisor_override"] is not None,
    "aten::div": lambda node: arguments_of(node).get("rounding_mode") is not None,
    "aten::embedding": _always,
    "aten::floor_divide": _always,
    "aten::index": _always,
    "aten::index_put": _always,
    "aten::index_select": _always,
    "aten::linalg_vector_norm": _is_half,
    "aten::max": lambda node: 1 in _used(node),
    "aten::one_hot": _always,
    "aten::upsample_bicubic2d": _always,
    "aten::upsample_bilinear2d": _resizes_otherwise,
    "aten::upsample_nearest2d": _takes_other_neighbors,
    **dict.fromkeys(("aten::argsort", "aten::sort"), _orders),
    **dict.fromkeys(("aten::elu", "aten::expm1", "aten::log10", "aten::log1p", "aten::log2"), _always),
    **dict.fromkeys(("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"), _always),
}


def lower(program: ExportedProgram, use: Callable[[Lowered], Result]) -> Result:
    """Import a program into Relax, canonicalize it, remove dead code, read the result and return what ``use`` makes.

    Calls of ATen operators that Relax cannot import, or of whose import ``use`` says in a `NodeError` that hios has no
    kernel for it, become opaque calls.

    An `UnsupportedError` says that an operator cannot be such a call either, or that a shape is not fixed.
    """
    decomposed = _decomposed(program)
    parameters = _parameters(decomposed)
    return with_opaque_calls(lambda opaque: use(_imported(decomposed, parameters, opaque)))


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    table = default_decompositions()
    for overload in list(table):
        namespace, name, *_ = str(overload).split(".")
        if namespace == "aten" and name.removesuffix("_") in _KEPT_WHOLE:
            del table[overload]
        if str(overload) in RECURRENT:
            table[overload] = _one_direction_at_a_time(overload)
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # torch's own pytree deprecation
        try:
            decomposed = program.run_decompositions(table)
        except Exception as error:  # torch runs every operator on shapes here; a damaged program fails in many ways
            raise UnsupportedError(
                f"torch cannot decompose the program: {first_line(error)}; export it again"
            ) from error
    signature = decomposed.graph_signature
    if changed := sorted(signature.buffers_to_mutate.values()):
        raise UnsupportedError(f"the model changes its buffer {changed[0]} in every inference; export it in eval mode")
    if changed := sorted(signature.user_inputs_to_mutate.values()):
        raise UnsupportedError(f"the model changes its input {changed[0]} in place; let it work on a copy")
    return decomposed


class _TorchImporter(ExportedProgramImporter):  # type: ignore[misc]
    """Relax's importer, extended to track the current node, and to make opaque calls of what it cannot import.

    ``opaque`` are nodes that become such calls in any case, with the reason.
    """

    def __init__(self, opaque: Mapping[fx.Node, str]) -> None:
        super().__init__()
        self.convert_map: dict[str, Any]
        self.node: fx.Node | None = None
        self.opaque_calls = OpaqueCalls()
        self._opaque = opaque

    @staticmethod
    def _convert_data_type(input_type: Any, env: Any = None) -> str:
        try:
            return str(ExportedProgramImporter._convert_data_type(input_type, env))
        except NotImplementedError:
            return STAND_IN

    def update_convert_map(self, custom_convert_map: dict[str, Any]) -> None:
        super().update_convert_map(custom_convert_map)
        self.convert_map = {name: self._watched(convert) for name, convert in self.convert_map.items()}

    def _watched(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        def watched(node: fx.Node, *importer: Any) -> Any:
            self.node = node
            reason = self._opaque.get(node)
            if reason is None and (not isinstance(node.target, torch._ops.OpOverload) or "val" not in node.meta):
                return convert(node, *importer)  # what takes an output of several, or checks a value
            reason = reason or _known_as_wrong(node)
            if reason is None:
                try:
                    value = convert(node, *importer)
                    reason = _difference(value, node)
                except Exception as error:  # the importer raises many types; all mean the same to the user
                    reason = first_line(error)
            return value if reason is None else self._opaque_call(node, reason)

        return watched

    def _opaque_call(self, node: fx.Node, reason: str) -> Any:
        """The outputs of a node as those of an opaque call; None for those that are not used."""
        own = _CHECKED.get(node.target, node.target)
        if refusal := aten.refusal(own, arguments_of(node)):
            raise UnsupportedError(f"{reason}, and PyTorch cannot run it as it is: {refusal}")
        made = node.meta["val"]
        parts = made if isinstance(made, list | tuple) else [made]
        used = _used(node)
        if any(not isinstance(size, int) for item in used for size in parts[item].shape):
            raise UnsupportedError(f"the shape of its result depends on values; allowed: fixed shapes ({reason})")
        tensors, arguments = aten.described(own, arguments_of(node), _is_tensor)
        call = RelaxCall(
            str(own),
            [],
            {"arguments": arguments} | ({} if len(used) == len(parts) else {"outputs": used}),
            [tuple(parts[item].shape) for item in used],
            [dtype_name(parts[item].dtype) for item in used],
        )
        outputs = self.opaque_calls.emit(call, self.block_builder, [self.env[tensor] for tensor in tensors])
        if not isinstance(made, list | tuple):
            return outputs[0]
        by_item = dict(zip(used, outputs, strict=True))
        return [by_item.get(item) for item in range(len(parts))]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and isinstance(value.meta.get("val"), Tensor)


def _missing(node: fx.Node, *importer: Any) -> Any:
    raise UnsupportedError("it has no converter for this operator")


def _used(node: fx.Node) -> list[int]:
    """The positions of those results of a node that others use; 0 for the only one."""
    made = node.meta["val"]
    if not isinstance(made, list | tuple):
        return [0]
    used = [user.args[1] for user in node.users if user.target is operator.getitem]
    return [item for item in range(len(made)) if item in used]


def _known_as_wrong(node: fx.Node) -> str | None:
    """Why Relax would import a node wrongly; None if nothing is known."""
    own: Any = node.target
    if (wrong := _WRONG.get(own._schema.name)) is not None and wrong(node):
        return "Relax would import it wrongly"
    values = [node.meta.get("val"), *(other.meta.get("val") for other in node.all_input_nodes)]
    for value in values:
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, Tensor) and _TorchImporter._convert_data_type(part.dtype) != dtype_name(part.dtype):
                return f"Relax has no {dtype_name(part.dtype)}"
    return None


def _difference(value: Any, node: fx.Node) -> str | None:
    """In what the types of what Relax made of a node differ from the node's, in words; None if in nothing."""
    made = node.meta.get("val")
    if isinstance(made, Tensor):
        return type_difference(value, tuple(made.shape), dtype_name(made.dtype))
    if not isinstance(made, list | tuple):
        return None
    for item in _used(node):
        if isinstance(value, list | tuple | relax.Tuple):
            part = value[item]
        elif isinstance(getattr(value, "ty", None), relax.TupleType):
            part = SimpleNamespace(ty=value.ty.fields[item])
        else:
            part = value
        if difference := type_difference(part, tuple(made[item].shape), dtype_name(made[item].dtype)):
            return difference
    return None


def _imported(program: ExportedProgram, parameters: Mapping[str, Weight], opaque: Mapping[fx.Node, str]) -> Lowered:
    """The program as calls, some nodes as opaque ones."""
    importer = _TorchImporter(opaque)
    for node in user_inputs(program):
        if _TorchImporter._convert_data_type(node.meta["val"].dtype) != (dtype := dtype_name(node.meta["val"].dtype)):
            raise UnsupportedError(f"input {node.name}: found {dtype}; allowed: dtypes of Relax; let the model make it")
    names = {node.target.__name__ for node in program.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    converters = {**dict.fromkeys(names - importer.convert_map.keys(), _missing), **CONVERTERS}
    try:
        # The parameters of the result share their memory with the program's.
        module = importer.from_exported_program(program, True, False, False, converters)
    except Exception as error:  # the importer raises many types; all mean the same to the user
        place = of_node(importer.node).place if importer.node is not None else "the program"
        raise UnsupportedError(f"Relax cannot import {place}: {first_line(error)}") from error
    module, _ = relax.frontend.detach_params(module)
    places = origins(module, ((of_node(node), importer.env.get(node)) for node in program.graph.nodes))
    return FunctionReader(canonical(module), parameters, places, importer.opaque_calls).read()


def _parameters(program: ExportedProgram) -> dict[str, Weight]:
    signature = program.graph_signature
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    held = {**program.state_dict, **program.constants}
    weights = {argument: Weight(name, held[name].detach()) for argument, name in named.items() if name in held}
    for argument, name in signature.inputs_to_lifted_tensor_constants.items():
        weights[argument] = Weight(name, program.constants[name].detach())
    return weights
