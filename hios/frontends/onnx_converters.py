"""Converters of ONNX operators that Relax's importer lacks or turns into its own kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from onnx.numpy_helper import to_array
from tvm import relax

from hios.errors import UnsupportedError


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
