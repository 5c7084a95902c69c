"""Floating-point operations of a Relax operator; a multiply-add counts two, as in torch's own counter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hios.core.graph import LOOKUPS, RECURRENT

Shape = Sequence[int]
#: Operations from attributes, shapes of the arguments and shape of the output.
_Count = Callable[[Mapping[str, Any], Sequence[Shape], Shape], int]


def flops(function: str, attributes: Mapping[str, Any], arguments: Sequence[Shape], output: Shape) -> int | None:
    """Operations of one call, by the shapes of its tensor arguments and of its (first) output; None if unknown.

    Convolutions, matrix products and attention are counted exactly (of attention the two products, without
    softmax, as torch does), pooling one per element of the window, reductions one per element of the input,
    operators that only create, move or convert data as none, and everything else as one per element of the output.
    Of opaque calls only look-ups and recurrent layers are known, of these the matrix products.
    """
    if not function.startswith("relax."):
        if function in RECURRENT:
            return 2 * math.prod(arguments[0][:2]) * _weights(function, arguments, output)
        return 0 if function in LOOKUPS else None
    name = function.removeprefix("relax.")
    if name in _MOVES:
        return 0
    if name in _REDUCTIONS:
        return math.prod(arguments[0])
    return _COUNTS[name](attributes, arguments, output) if name in _COUNTS else math.prod(output)


def _weights(function: str, arguments: Sequence[Shape], output: Shape) -> int:
    """Elements of the matrices of a recurrent layer, each used once a step; of torch's also that of a projection."""
    if function.startswith("onnx."):  # small ones are no arguments
        directions = output[1] if len(output) == 4 else output[0]  # of the sequence, or of the last states
        return RECURRENT[function] * output[-1] * (arguments[0][-1] + output[-1]) * directions
    return sum(math.prod(shape) for shape in arguments if len(shape) == 2)


_MOVES = frozenset(
    {
        *("arange", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like", "tril", "triu"),
        *("concat", "stack", "split", "reshape", "flatten", "nn.batch_flatten", "expand_dims", "squeeze"),
        *("permute_dims", "broadcast_to", "meshgrid", "tile", "repeat", "flip", "nn.pad", "nn.pixel_shuffle"),
        *("strided_slice", "take", "index_tensor", "index_put", "gather_elements", "gather_nd", "slice_scatter"),
        *("astype", "where", "one_hot", "nn.dropout"),
    }
)
_REDUCTIONS = frozenset(
    {
        *("sum", "mean", "prod", "max", "min", "variance", "std", "argmax", "argmin"),
        *("nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d"),
    }
)


def _attention(attributes: Mapping[str, Any], arguments: Sequence[Shape], output: Shape) -> int:
    batch, queries, heads, features = arguments[0]
    keys, own = arguments[2][1], arguments[2][3]
    return 2 * batch * heads * queries * keys * (features + own)


def _einsum(attributes: Mapping[str, Any], arguments: Sequence[Shape], output: Shape) -> int:
    """A multiply-add for each combination of indices; with one operand a sum of its elements."""
    if len(arguments) == 1:
        return math.prod(arguments[0])
    sizes: dict[str, int] = {}
    for term, shape in zip(attributes["subscripts"].replace(" ", "").split("->")[0].split(","), arguments, strict=True):
        before, dots, behind = term.partition("...")
        middle = shape[len(before) : len(shape) - len(behind)]
        sizes.update(zip(before, shape, strict=False))
        sizes.update(zip(reversed(behind), reversed(shape), strict=False))
        if dots:
            sizes[dots] = max(sizes.get(dots, 1), math.prod(middle))
    return 2 * math.prod(sizes.values())


_COUNTS: dict[str, _Count] = {
    **dict.fromkeys(
        ("nn.conv1d", "nn.conv2d", "nn.conv3d"),
        lambda attributes, arguments, output: 2 * math.prod(output) * math.prod(arguments[1][1:]),
    ),
    **dict.fromkeys(
        ("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"),
        lambda attributes, arguments, output: 2 * math.prod(arguments[0]) * math.prod(arguments[1][1:]),
    ),
    **dict.fromkeys(
        [f"nn.{kind}_pool{dimensions}d" for kind in ("max", "avg") for dimensions in (1, 2, 3)],
        lambda attributes, arguments, output: math.prod(output) * math.prod(attributes["pool_size"]),
    ),
    "einsum": _einsum,
    "matmul": lambda attributes, arguments, output: 2 * math.prod(output) * arguments[0][-1],
    "nn.attention": _attention,
    "nn.attention_bias": _attention,
}
