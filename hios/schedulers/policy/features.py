"""What the policy knows of an operator: the raw state s_v of TOP, items (i) to (ix) of section V-C."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hios.graph import Call, Graph, Operator

#: (i) Types that are distinguished, by a word of the operator's type; the first match counts.
TYPES = (
    *("conv2d", "sepconv", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "mean", "concat", "add", "matmul"),
    *("relu", "other"),
)
#: (viii) Activations; an operator without one has the identity.
ACTIVATIONS = ("relu", "sigmoid", "tanh", "identity")
#: (ix) Kinds of pooling.
POOLS = ("max", "avg", "global max", "global avg")
#: Sizes of a shape that count: batch, channels, height, width.
_SIZES = 4

#: Number of features of an operator.
FEATURES = len(TYPES) + 2 * _SIZES + 3 * 2 + 1 + len(ACTIVATIONS) + len(POOLS)

_CONVOLUTION = "relax.nn.conv2d"
_POOLING = {
    "relax.nn.max_pool2d": "max",
    "relax.nn.avg_pool2d": "avg",
    "relax.nn.adaptive_max_pool2d": "global max",
    "relax.nn.adaptive_avg_pool2d": "global avg",
    "relax.max": "global max",
    "relax.mean": "global avg",
}


def features(graph: Graph) -> list[list[float]]:
    """The features of every operator, ``FEATURES`` numbers each.

    Type, activation and kind of pooling are one number for each that is possible, 1 for that of the operator. Sizes are
    logarithms to the base 2 (of padding, plus one), and 0 where they do not apply or the graph does not state them.
    A unit of several calls has the stride, kernel, padding and groups of its first convolution, or else of its first
    pooling; of several inputs the largest counts.
    """
    kernels = {weight.name: weight.shape for weight in graph.weights}
    return [_features(operator, kernels) for operator in graph.operators]


def _features(operator: Operator, kernels: Mapping[str, Sequence[int]]) -> list[float]:
    shapes = operator.shapes
    window = next((call for call in operator.calls if call.function == _CONVOLUTION), None)
    pooling = next((call for call in operator.calls if call.function in _POOLING), None)
    window = window or pooling
    attributes = window.attributes if window is not None else {}
    return [
        *_one_hot(TYPES, _type(operator)),
        *_sizes(max(shapes.inputs, key=math.prod) if shapes and shapes.inputs else ()),
        *_sizes(shapes.outputs[0] if shapes and shapes.outputs else ()),
        *_pair(attributes.get("strides", ())),
        *_pair(_kernel(window, kernels)),
        *_pair([step + 1 for step in attributes.get("padding", ())]),
        _log(attributes.get("groups", 1)),
        *_one_hot(ACTIVATIONS, _activation(operator)),
        *_one_hot(POOLS, None if pooling is None else _POOLING[pooling.function]),
    ]


def _type(operator: Operator) -> str:
    words = operator.type.replace("-", " ").split()
    return next((name for name in TYPES if name in words), "other")


def _activation(operator: Operator) -> str:
    for call in reversed(operator.calls):
        for name in ACTIVATIONS:
            if call.function in (f"relax.{name}", f"relax.nn.{name}"):
                return name
    words = operator.type.split("-")
    return next((name for name in ACTIVATIONS if name in words[1:]), "identity")


def _kernel(window: Call | None, kernels: Mapping[str, Sequence[int]]) -> Sequence[int]:
    if window is None:
        return ()
    if window.function == _CONVOLUTION:
        weight = window.arguments[1].weight if len(window.arguments) > 1 else None
        return list(kernels.get(weight or "", ()))[2:]
    return list(window.attributes.get("pool_size", ()))


def _one_hot(names: Sequence[str], name: str | None) -> list[float]:
    return [float(name == known) for known in names]


def _sizes(shape: Sequence[int]) -> list[float]:
    return [_log(size) for size in (*shape, *(1,) * _SIZES)[:_SIZES]]


def _pair(sizes: Any) -> list[float]:
    return [_log(size) for size in (*sizes, 1, 1)[:2]]


def _log(size: float) -> float:
    return math.log2(size) if size > 0 else 0.0
