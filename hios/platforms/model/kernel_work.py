"""The kernels of operators on a GPU: the FLOPs and bytes of each.

Only this module of the platform reads calls, arguments and shapes of operators. ``hios.platforms.model.roofline``
computes how long a kernel takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hios.core.graph import LOOKUPS, RECURRENT, Call, Graph, Operator, Value
from hios.errors import UnsupportedError

Shape = tuple[int, ...]
Attributes = Mapping[str, Any]

#: Bytes of an element, by its torch name.
ELEMENT_BYTES = {
    **dict.fromkeys(("float64", "int64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool"), 1),
}

#: Element types of convolutions and products of matrices whose rates descriptions state.
CONTRACTED = ("float32", "float16", "bfloat16")

#: Calls that launch nothing: torch returns a view of the same memory.
VIEWS = frozenset(
    f"relax.{name}"
    for name in (
        *("reshape", "flatten", "nn.batch_flatten", "expand_dims", "squeeze", "permute_dims", "broadcast_to"),
        *("split", "strided_slice", "nn.dropout"),
    )
)

#: Calls that read every element of their inputs once and write one for each: the kernel before them does that for
#: them, as cuDNN does for bias and activation, and compilers do for chains of them.
_ELEMENTWISE = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "clip", "where", "astype"),
        *("nn.relu", "nn.silu", "nn.leakyrelu", "nn.gelu", "nn.gelu_tanh", "sigmoid", "tanh", "exp", "log", "erf"),
        *("sqrt", "rsqrt", "negative", "abs", "square", "sin", "cos"),
    )
)

#: Calls that read their input more than once: first for statistics, then to apply them.
_PASSES = {"relax.nn.softmax": 2, "relax.nn.log_softmax": 2, "relax.nn.layer_norm": 2, "relax.nn.group_norm": 2}


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """Matrix products, including convolutions: ``batch`` times (m x k) by (k x n).

    Attributes:
        batch: independent products: groups of a convolution, heads of attention.
        m: rows: pixels of all images.
        n: columns: output channels.
        k: terms of a sum: input channels times window.
        bytes: read and written, each value once.
        window: (height, width) of the filters of a convolution; empty for others.
        dense: whether it is a convolution of stride 1, dilation 1 and one group, for which fast algorithms exist.
        dtype: element type.
    """

    batch: int
    m: int
    n: int
    k: int
    bytes: int
    window: Shape
    dense: bool
    dtype: str

    @property
    def flops(self) -> int:
        """Floating-point operations; a multiply-add counts two."""
        return 2 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class Streaming:
    """A memory-bound kernel: elementwise, pooling, reduction, copies, depthwise filters.

    Attributes:
        elements: of the output, or of the input where that is larger (reductions).
        operations: floating-point operations.
        bytes: read and written.
    """

    elements: int
    operations: int
    bytes: int


Kernel = MatrixProduct | Streaming


def kernels(graph: Graph) -> dict[str, tuple[Kernel, ...]]:
    """The kernels of every operator by id; none for operators that only give another view of a value.

    An operator without calls (of a graph that was not extracted) is one kernel by its ``flops`` and ``bytes``.

    Raises:
        UnsupportedError: an operator has neither calls with shapes, nor flops and bytes.
    """
    reader = _Reader(graph)
    return {operator.id: reader.kernels(operator) for operator in graph.operators}


class _Reader:
    """Shapes of everything that operators read, by origin."""

    def __init__(self, graph: Graph) -> None:
        self._source = graph.source
        self._named = {
            **{("weight", entry.name): entry.shape for entry in graph.weights},
            **{("input", entry.name): entry.shape for entry in graph.inputs},
        }
        self._outputs = {
            operator.id: operator.shapes.outputs for operator in graph.operators if operator.shapes is not None
        }
        self._dtypes = {
            **{("weight", entry.name, 0): entry.dtype for entry in graph.weights},
            **{("input", entry.name, 0): entry.dtype for entry in graph.inputs},
            **{
                ("operator", operator.id, item): dtype
                for operator in graph.operators
                for item, (_, dtype) in enumerate(operator.output_types)
            },
        }

    def kernels(self, operator: Operator) -> tuple[Kernel, ...]:
        """The kernels of an operator."""
        if operator.calls and operator.shapes is not None:
            own = tuple(self._of_calls(operator))
            self._require_known_types(operator, own)
            return own
        if operator.flops is not None and operator.bytes is not None:
            size = ELEMENT_BYTES.get(operator.dtype or "float32", 4)
            return (Streaming(max(1, operator.bytes // (2 * size)), int(operator.flops), operator.bytes),)
        raise UnsupportedError(
            f"{self._source}: operator {operator.id}: states neither calls with shapes, nor flops and bytes; "
            "required for predictions: one of both, as `hios extract` writes them"
        )

    def _require_known_types(self, operator: Operator, kernels: Sequence[Kernel]) -> None:
        for kernel in kernels:
            if isinstance(kernel, MatrixProduct) and kernel.dtype not in CONTRACTED:
                raise UnsupportedError(
                    f"{self._source}: operator {operator.id}: dtype: found {kernel.dtype}; allowed for predictions of "
                    f"convolutions and products of matrices: {', '.join(CONTRACTED)}"
                )

    def _of_calls(self, operator: Operator) -> list[Kernel]:
        dtype = operator.dtype or "float32"
        outputs = self._outputs[operator.id]
        made: list[Sequence[Shape]] = []
        kernels: list[Kernel] = []
        for position, call in enumerate(operator.calls):
            arguments = [self._shape(argument, made) for argument in call.arguments]
            last = position == len(operator.calls) - 1
            made.append(outputs if last else [_output(call, arguments, outputs[0])])
            if call.function in VIEWS:
                continue
            if call.function in RECURRENT:
                kernels += _steps(operator, call, arguments[0], made[-1], dtype)
            elif call.function in LOOKUPS:
                kernels.append(self._lookup(call, arguments, made[-1], dtype))
            elif kernels and call.function in _ELEMENTWISE and any(value.call is not None for value in call.arguments):
                kernels[-1] = _joined(kernels[-1], call, arguments, dtype)
            else:
                kernels.append(_kernel(call, arguments, made[-1], dtype))
        return kernels

    def _lookup(self, call: Call, arguments: Sequence[Shape], outputs: Sequence[Shape], dtype: str) -> Streaming:
        """Of a table it reads what it looks up, each row once, and the indices."""
        made = sum(map(math.prod, outputs))
        read = min(made, math.prod(arguments[0]))
        indices = 0
        for shape, argument in zip(arguments[1:], call.arguments[1:], strict=True):
            place = ("weight", argument.weight, 0) if argument.weight is not None else argument.external
            index_type = "int64" if place is None else self._dtypes.get(place, "int64")
            indices += math.prod(shape) * ELEMENT_BYTES.get(index_type, 8)
        return Streaming(made, 0, (read + made) * ELEMENT_BYTES.get(dtype, 4) + indices)

    def _shape(self, argument: Value, made: Sequence[Sequence[Shape]]) -> Shape:
        if argument.call is not None:
            return made[argument.call][argument.item or 0]
        if argument.operator is not None:
            return self._outputs[argument.operator][argument.item or 0]
        if argument.weight is not None:
            return self._named["weight", argument.weight]
        return () if argument.input is None else self._named["input", argument.input]


def _steps(operator: Operator, call: Call, given: Shape, outputs: Sequence[Shape], dtype: str) -> list[Kernel]:
    """A recurrent layer, which is an operator of its own: a product of matrices for each step, with all weights."""
    first, second, features = given
    batch_first = call.attributes.get("arguments", {}).get("batch_first", False)
    steps, batch = (second, first) if batch_first else (first, second)
    hidden = outputs[0][-1]
    weights = int(operator.flops or 0) // (2 * steps * batch)
    moved = ELEMENT_BYTES.get(dtype, 4) * (weights + batch * (features + 2 * hidden))
    return [MatrixProduct(1, batch, hidden, max(1, weights // hidden), moved, (), False, dtype)] * steps


def _joined(kernel: Kernel, call: Call, arguments: Sequence[Shape], dtype: str) -> Kernel:
    """A kernel fused with an elementwise call, whose other operands it reads too."""
    size = ELEMENT_BYTES.get(dtype, 4)
    more = size * sum(
        math.prod(shape)
        for shape, argument in zip(arguments, call.arguments, strict=True)
        if argument.call is None and argument.constant is None
    )
    if isinstance(kernel, MatrixProduct):
        return replace(kernel, bytes=kernel.bytes + more)
    return replace(kernel, operations=kernel.operations + kernel.elements, bytes=kernel.bytes + more)


def _output(call: Call, arguments: Sequence[Shape], otherwise: Shape) -> Shape:
    """The output shape of a call within an operator; graph.json states only that of the last one."""
    function, attributes = call.function, call.attributes
    if function.startswith("relax.nn.conv") and not function.endswith("transpose"):
        return _convolved(attributes, arguments)
    if function == "relax.matmul":
        return (*_broadcast([arguments[0][:-2], arguments[1][:-2]]), *arguments[0][-2:-1], arguments[1][-1])
    if function in _ELEMENTWISE:
        return _broadcast(arguments)
    return otherwise


def _convolved(attributes: Attributes, arguments: Sequence[Shape]) -> Shape:
    image, filters = arguments[:2]
    size = len(image) - 2
    padding, strides, dilation = (list(attributes[key]) for key in ("padding", "strides", "dilation"))
    return (
        image[0],
        filters[0],
        *(
            (image[axis + 2] + padding[axis] + padding[axis + size] - dilation[axis] * (filters[axis + 2] - 1) - 1)
            // strides[axis]
            + 1
            for axis in range(size)
        ),
    )


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    longest = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (longest - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


def _kernel(call: Call, arguments: Sequence[Shape], outputs: Sequence[Shape], dtype: str) -> Kernel:
    size = ELEMENT_BYTES.get(dtype, 4)
    made = sum(map(math.prod, outputs))
    moved = size * (sum(map(math.prod, arguments)) + made)
    function = call.function
    contracted = _CONTRACTIONS.get(function.removeprefix("relax."))
    if contracted is not None:
        return contracted(call.attributes, arguments, outputs[0], moved, dtype)
    read = max((math.prod(shape) for shape in arguments), default=0)
    window = math.prod(call.attributes.get("pool_size", (1,)))
    passes = _PASSES.get(function, 1)
    return Streaming(max(made, read if window == 1 else made), passes * max(made * window, read), passes * moved)


def _convolution(attributes: Attributes, arguments: Sequence[Shape], output: Shape, moved: int, dtype: str) -> Kernel:
    filters = arguments[1]
    groups = attributes["groups"]
    pixels = output[0] * math.prod(output[2:])
    terms = math.prod(filters[1:])
    if groups > 1 and filters[1] == 1:  # depthwise: no sums over channels, so no product of matrices
        return Streaming(math.prod(output), 2 * math.prod(output) * terms, moved)
    plain = all(value == 1 for key in ("strides", "dilation") for value in attributes[key])
    return MatrixProduct(
        groups, pixels, filters[0] // groups, terms, moved, tuple(filters[2:]), plain and groups == 1, dtype
    )


def _transposed(attributes: Attributes, arguments: Sequence[Shape], output: Shape, moved: int, dtype: str) -> Kernel:
    image, filters = arguments[:2]
    groups = attributes["groups"]
    pixels = image[0] * math.prod(image[2:])
    return MatrixProduct(
        groups, pixels, math.prod(filters[1:]), image[1] // groups, moved, tuple(filters[2:]), False, dtype
    )


def _matmul(attributes: Attributes, arguments: Sequence[Shape], output: Shape, moved: int, dtype: str) -> Kernel:
    left, right = arguments[:2]
    rows = left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    batch = math.prod(output) // max(1, rows * columns)
    if len(right) <= 2:  # one matrix of weights for the whole batch
        rows, batch = rows * batch, 1
    return MatrixProduct(max(1, batch), max(1, rows), max(1, columns), left[-1], moved, (), False, dtype)


def _attention(attributes: Attributes, arguments: Sequence[Shape], output: Shape, moved: int, dtype: str) -> Kernel:
    batch, queries, heads, features = arguments[0]
    keys, own = arguments[2][1], arguments[2][3]
    return MatrixProduct(batch * heads, queries, features + own, keys, moved, (), False, dtype)


_CONTRACTIONS: dict[str, Callable[[Attributes, Sequence[Shape], Shape, int, str], Kernel]] = {
    **{f"nn.conv{dimensions}d": _convolution for dimensions in (1, 2, 3)},
    **{f"nn.conv{dimensions}d_transpose": _transposed for dimensions in (1, 2, 3)},
    "matmul": _matmul,
    "nn.attention": _attention,
    "nn.attention_bias": _attention,
}
