"""Reductions, running sums, extremes and sorting against numpy's, normalizations against their formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.kernels.table.checks import (
    Draw,
    Run,
    axes_of,
    check,
    distinct,
    integers,
    normal,
    shape_of,
    uniform,
    whole,
)

#: Functions of numpy, and whether whole numbers may be reduced.
_REDUCTIONS: dict[str, tuple[Any, bool]] = {
    "max": (np.max, True),
    "mean": (np.mean, False),
    "min": (np.min, True),
    "prod": (np.prod, True),
    "std": (np.std, False),
    "sum": (np.sum, True),
    "variance": (np.var, False),
}


def _reduction(draw: Draw, run: Run, function: Any, whole_numbers: bool) -> tuple[Tensor, Tensor]:
    shape, axes, keepdims = integers(draw, 2, 4, 3), axes_of(draw, 3), draw(st.booleans())
    x = uniform(draw, 0.5, 1.5, *shape)
    if whole_numbers and draw(st.booleans()):
        x = whole(draw, 1, 3, *shape).int()
    wide = x.double() if x.is_floating_point() else x
    result = function(wide.numpy(), None if axes is None else tuple(axes), keepdims=keepdims)
    return run({"axis": axes, "keepdims": keepdims}, x), torch.as_tensor(result).to(x.dtype)


for _name, _kind in _REDUCTIONS.items():
    check(_name, *_kind)(_reduction)


def _running(draw: Draw, run: Run, function: Any) -> tuple[Tensor, Tensor]:
    shape, axis = integers(draw, 1, 5, 2), draw(st.sampled_from([None, 0, 1, -1]))
    x = draw(st.sampled_from([normal(draw, *shape), whole(draw, 1, 3, *shape).int()]))
    dtype = draw(st.sampled_from([None, "float64"]))
    result = torch.from_numpy(np.asarray(function(x.double().numpy(), axis)))
    attributes = {"axis": axis, "dtype": dtype, "exclusive": False}
    return run(attributes, x), result.to(torch.float64 if dtype else x.dtype)


check("cumsum", np.cumsum)(_running)
check("cumprod", np.cumprod)(_running)


def _extreme(draw: Draw, run: Run, function: Any) -> tuple[Tensor, Tensor]:
    x, axis = distinct(draw, *shape_of(draw, 3)), draw(st.sampled_from([None, 0, 1, -1]))
    keepdims = draw(st.booleans())
    expected = torch.from_numpy(np.asarray(function(x.numpy(), axis, keepdims=keepdims)))
    return run({"axis": axis, "keepdims": keepdims}, x), expected


check("argmax", np.argmax)(_extreme)
check("argmin", np.argmin)(_extreme)


def _sorting(draw: Draw) -> tuple[Tensor, dict[str, Any], Tensor]:
    """A tensor, attributes, and the order along the axis."""
    x, axis, descending = distinct(draw, *shape_of(draw, 3)), draw(st.integers(-3, 2)), draw(st.booleans())
    order = torch.from_numpy(np.argsort(-x.numpy() if descending else x.numpy(), axis))
    return x, {"axis": axis, "descending": descending}, order


@check("sort")
def _sort(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, attributes, order = _sorting(draw)
    expected = torch.from_numpy(np.take_along_axis(x.numpy(), order.numpy(), attributes["axis"]))
    return run(attributes, x), expected


@check("argsort")
def _argsort(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, attributes, order = _sorting(draw)
    dtype = draw(st.sampled_from(["int32", "int64"]))
    return run({**attributes, "dtype": dtype}, x), order.to(getattr(torch, dtype))


@check("topk")
def _topk(draw: Draw, run: Run) -> tuple[Any, Any]:
    x, attributes, order = _sorting(draw)
    axis, count = attributes["axis"], draw(st.integers(1, x.shape[attributes["axis"]]))
    order = order.narrow(axis, 0, count)
    values = torch.from_numpy(np.take_along_axis(x.numpy(), order.numpy(), axis))
    dtype, kind = draw(st.sampled_from(["int32", "int64"])), draw(st.sampled_from(["both", "values", "indices"]))
    chosen = {"k": count, "axis": axis, "ret_type": kind, "largest": attributes["descending"], "dtype": dtype}
    indices = order.to(getattr(torch, dtype))
    expected = {"both": (values, indices), "values": values, "indices": indices}[kind]
    return run(chosen, x), expected


_EPSILON = st.sampled_from([1e-5, 1e-3, 0.1])


def _normalized(x: Tensor, axes: Any, epsilon: float) -> Tensor:
    mean = x.mean(axes, keepdim=True)
    return (x - mean) / torch.sqrt(((x - mean) ** 2).mean(axes, keepdim=True) + epsilon)


def _affine(draw: Draw) -> dict[str, Any]:
    return {"epsilon": draw(_EPSILON), "center": True, "scale": True}


@check("nn.batch_norm")
def _batch_norm(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    channels = draw(st.integers(1, 4))
    x = normal(draw, 2, channels, *draw(st.sampled_from([(), (3,), (2, 3)])))
    gamma, beta, mean = (normal(draw, channels) for _ in range(3))
    variance = normal(draw, channels).abs()
    attributes = {"axis": 1, "momentum": 0.1, "training": False, **_affine(draw)}
    column = (channels, *[1] * (x.ndim - 2))
    g, b, m, v = (tensor.reshape(column) for tensor in (gamma, beta, mean, variance))
    expected = (x - m) / torch.sqrt(v + attributes["epsilon"]) * g + b
    return run(attributes, x, gamma, beta, mean, variance), expected


@check("nn.layer_norm")
def _layer_norm(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, attributes = normal(draw, *integers(draw, 2, 6, 4)), _affine(draw)
    axes = attributes["axes"] = draw(st.sampled_from([[-1], [-2, -1], [3], [2, 3], [1], [1, 3]]))
    gamma, beta = (normal(draw, *(x.shape[axis] for axis in axes)) for _ in range(2))
    shape = [size if axis in axes or axis - 4 in axes else 1 for axis, size in enumerate(x.shape)]
    expected = _normalized(x, axes, attributes["epsilon"]) * gamma.reshape(shape) + beta.reshape(shape)
    return run(attributes, x, gamma, beta), expected


@check("nn.rms_norm")
def _rms_norm(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, epsilon = normal(draw, *integers(draw, 2, 6, 3)), draw(_EPSILON)
    axes = draw(st.sampled_from([[-1], [2], [-2, -1], [1]]))
    weight = normal(draw, *(x.shape[axis] for axis in axes))
    shape = [size if axis in axes or axis - 3 in axes else 1 for axis, size in enumerate(x.shape)]
    expected = x / torch.sqrt((x**2).mean(axes, keepdim=True) + epsilon) * weight.reshape(shape)
    return run({"axes": axes, "epsilon": epsilon}, x, weight), expected


@check("nn.group_norm")
def _group_norm(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    groups, per_group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x = normal(draw, 2, groups * per_group, *integers(draw, 2, 5, draw(st.integers(1, 2))))
    gamma, beta = (normal(draw, groups * per_group) for _ in range(2))
    attributes = {"num_groups": groups, "channel_axis": 1, "axes": list(range(2, x.ndim)), **_affine(draw)}
    parts = _normalized(x.reshape(2, groups, -1), -1, attributes["epsilon"]).reshape(x.shape)
    column = (-1, *[1] * (x.ndim - 2))
    expected = parts * gamma.reshape(column) + beta.reshape(column)
    return run(attributes, x, gamma, beta), expected


@check("nn.instance_norm")
def _instance_norm(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x = normal(draw, 2, draw(st.integers(1, 4)), *integers(draw, 2, 5, draw(st.integers(1, 2))))
    gamma, beta = (normal(draw, x.shape[1]) for _ in range(2))
    axes = [*draw(st.sampled_from([[], [0]])), *range(2, x.ndim)]
    attributes = {"channel_axis": 1, "axes": axes, **_affine(draw)}
    column = (-1, *[1] * (x.ndim - 2))
    expected = _normalized(x, axes, attributes["epsilon"]) * gamma.reshape(column) + beta.reshape(column)
    return run(attributes, x, gamma, beta), expected


def _softmax_of(x: Tensor, axis: int) -> Tensor:
    exponential = torch.exp(x - x.amax(axis, keepdim=True))
    return exponential / exponential.sum(axis, keepdim=True)


@check("nn.softmax")
def _softmax(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, axis = 10 * normal(draw, *shape_of(draw, 3)), draw(st.integers(-3, 2))
    return run({"axis": axis}, x), _softmax_of(x, axis)


@check("nn.log_softmax")
def _log_softmax(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, axis = normal(draw, *shape_of(draw, 3)), draw(st.integers(-3, 2))
    return run({"axis": axis}, x), _softmax_of(x, axis).clamp(min=math.ulp(0)).log()
