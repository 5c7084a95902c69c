"""ATen operators that Relax's importer lacks or imports incorrectly.

A converter takes the node of a program's graph (a ``torch.fx.Node``) and the importer (an ``ExportedProgramImporter``),
whose ``env`` holds the Relax values of nodes, and emits Relax operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from tvm import relax
from tvm.tirx import FloatImm

from hios.errors import UnsupportedError
from hios.frontends.program_interface import arguments_of, dtype_name

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


def _arithmetic(operator: Callable[..., Any]) -> _Converter:
    """In the dtype of the result, as in torch: dividing integers gives floats."""

    def convert(node: Any, importer: Any) -> relax.Var:
        first, second = importer.retrieve_args(node)[:2]
        dtype = _dtype(node)
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


def _rounded_division(node: Any, importer: Any) -> relax.Var:
    mode = arguments_of(node).get("rounding_mode", "floor")
    divide = _arithmetic(relax.op.floor_divide if mode == "floor" else relax.op.divide)(node, importer)
    if mode == "trunc" and node.meta["val"].dtype.is_floating_point:
        return importer.block_builder.emit(relax.op.trunc(divide))
    return divide


def _extremum(operator: Callable[..., Any]) -> _Converter:
    def convert(node: Any, importer: Any) -> relax.Var:
        given = arguments_of(node)
        value = importer.env[given["self"]]
        return importer.block_builder.emit(operator(value, list(given["dim"]) or None, keepdims=given["keepdim"]))

    return convert


def _largest_with_index(node: Any, importer: Any) -> tuple[relax.Var, relax.Var]:
    """Maximum and its index, the first one of equals and of NaN; Relax's importer takes any of these."""
    given, emit = arguments_of(node), importer.block_builder.emit
    value = importer.env[given["self"]]
    options = (given["dim"], given["keepdim"])
    return emit(relax.op.max(value, *options)), emit(relax.op.argmax(value, *options))


def _hardswish(node: Any, importer: Any) -> relax.Var:
    """In the order of torch, which multiplies first: large numbers become infinite."""
    value, dtype, emit = importer.env[node.args[0]], _dtype(node), importer.block_builder.emit
    factor = relax.op.clip(relax.op.add(value, relax.const(3, dtype)), 0, 6)
    return emit(relax.op.divide(relax.op.multiply(value, factor), relax.const(6, dtype)))


def _any(node: Any, importer: Any) -> relax.Var:
    """Whether any element is nonzero, as a maximum over integers: Relax has none for booleans."""
    given, emit = arguments_of(node), importer.block_builder.emit
    value, dtype = importer.env[given["self"]], _dtype(given["self"])
    if dtype != "bool":
        value = emit(relax.op.not_equal(value, relax.const(0, dtype)))
    largest = emit(relax.op.max(_cast(value, "int8", importer), given.get("dim"), keepdims=given.get("keepdim", False)))
    return _cast(largest, "bool", importer)


def _exp2(node: Any, importer: Any) -> relax.Var:
    dtype = _dtype(node)
    exponent = _cast(importer.env[node.args[0]], dtype, importer)
    return importer.block_builder.emit(relax.op.power(relax.const(2, dtype), exponent))


def _adaptive_max_pool2d(node: Any, importer: Any) -> tuple[relax.Var, None]:
    """Only for images that the windows divide evenly; indices are not computed."""
    image, size = importer.env[node.args[0]], list(node.args[1])
    height, width = node.args[0].meta["val"].shape[-2:]
    if height % size[0] or width % size[1]:
        raise UnsupportedError(f"output size {size} is not supported, only one that divides the image's")
    window = (height // size[0], width // size[1])
    return importer.block_builder.emit(relax.op.nn.max_pool2d(image, window, strides=window)), None


def _cumsum(node: Any, importer: Any) -> relax.Var:
    """Integers for non-floating input, as in torch; Relax keeps the dtype."""
    values = importer.block_builder.emit(relax.op.astype(importer.env[node.args[0]], _dtype(node)))
    return importer.block_builder.emit(relax.op.cumsum(values, axis=int(node.args[1])))


def _index(node: Any, importer: Any) -> relax.Var:
    """Indices of several axes that belong together; Relax's importer mixes them with the axes between or beside."""
    data, indices = importer.retrieve_args(node)
    emit, axes = importer.block_builder.emit, [axis for axis, index in enumerate(indices) if index is not None]
    if len(axes) == 1:
        return emit(relax.op.take(data, indices[axes[0]], axis=axes[0]))
    rest = [axis for axis in range(data.ty.ndim) if axis not in axes]
    if (order := [*axes, *rest]) != sorted(order):
        data = emit(relax.op.permute_dims(data, order))
    result = emit(relax.op.index_tensor(data, [indices[axis] for axis in axes]))
    before = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0  # as torch: apart, they come first
    if before == 0:
        return result
    made = result.ty.ndim - len(rest)
    return emit(
        relax.op.permute_dims(
            result, [*range(made, made + before), *range(made), *range(made + before, result.ty.ndim)]
        )
    )


#: By the name of an operator in a program's graph; add missing ones here.
CONVERTERS: dict[str, _Converter] = {
    "adaptive_max_pool2d.default": _adaptive_max_pool2d,
    "addmm.default": _addmm,
    "amax.default": _extremum(relax.op.max),
    "amin.default": _extremum(relax.op.min),
    **dict.fromkeys(("any.default", "any.dim", "any.dims"), _any),
    "convolution.default": _convolution,
    "cumsum.default": _cumsum,
    **dict.fromkeys(("div.Tensor_mode", "div.Scalar_mode", "floor_divide.default"), _rounded_division),
    "exp2.default": _exp2,
    **dict.fromkeys(("hardswish.default", "hardswish_.default"), _hardswish),
    "index.Tensor": _index,
    "linear.default": _linear,
    "max.dim": _largest_with_index,
    **dict.fromkeys(("matmul.default", "mm.default", "bmm.default"), _matmul),
    "scaled_dot_product_attention.default": _attention,
    **{
        f"{name}.{kind}": _arithmetic(operator)
        for name, operator in {
            "add": relax.op.add,
            "sub": relax.op.subtract,
            "mul": relax.op.multiply,
            "div": relax.op.divide,
            "remainder": relax.op.floor_mod,
        }.items()
        for kind in ("Tensor", "Scalar")
    },
    **{
        f"{name}.{kind}": _comparison(operator)
        for name, operator in {
            "eq": relax.op.equal,
            "ne": relax.op.not_equal,
            "lt": relax.op.less,
            "le": relax.op.less_equal,
            "gt": relax.op.greater,
            "ge": relax.op.greater_equal,
        }.items()
        for kind in ("Tensor", "Scalar")
    },
}
