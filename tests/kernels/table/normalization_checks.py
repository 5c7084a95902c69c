"""Normalizations against their formulas."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.kernels.table.checks import Draw, Run, check, integers, normal, shape_of

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
