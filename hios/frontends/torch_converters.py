"""ATen operators that Relax's importer lacks or imports incorrectly, as operators of Relax.

Others become opaque calls (``torch_lowering``). A converter is for operators that schedulers should see as Relax has
them: that fuse, are counted, or are in the networks of the papers.

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


def _extremum(operator: Callable[..., Any]) -> _Converter:
    def convert(node: Any, importer: Any) -> relax.Var:
        given = arguments_of(node)
        value = importer.env[given["self"]]
        return importer.block_builder.emit(operator(value, list(given["dim"]) or None, keepdims=given["keepdim"]))

    return convert


def _hardswish(node: Any, importer: Any) -> relax.Var:
    """In the order of torch, which multiplies first: large numbers become infinite."""
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
