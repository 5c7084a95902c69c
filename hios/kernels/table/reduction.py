"""Reductions over axes, running sums and products, argmax and argmin, sorting; normalizations and softmax."""

from __future__ import annotations

from functools import partial
from operator import itemgetter

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.errors import UnsupportedError
from hios.kernels.table.kernel_registry import (
    Attributes,
    Kernel,
    axes_of,
    cast,
    dtype_of,
    kernel,
    only,
    plain,
    refuse,
)


def _product(x: Tensor, axes: tuple[int, ...] | None, keepdims: bool) -> Tensor:
    dtype = x.dtype
    every = range(x.ndim) if axes is None else [axis % x.ndim for axis in axes]
    if not every:  # of a number: what allocates returns memory of its own
        return x.clone()
    for axis in sorted(every, reverse=True):  # torch takes one axis at a time
        x = torch.prod(x, axis, keepdims, dtype=dtype)
    return x


#: By Relax operator: functions of a tensor, its axes (None for all of them), and whether they are kept.
_OVER_AXES: dict[str, Kernel] = {
    "max": lambda x, axes, keepdims: torch.amax(x, axes or (), keepdims),
    "mean": torch.mean,
    "min": lambda x, axes, keepdims: torch.amin(x, axes or (), keepdims),
    "prod": _product,
    "std": lambda x, axes, keepdims: torch.std(x, axes, correction=0, keepdim=keepdims),
    # Relax keeps the dtype of integers, torch would widen it.
    "sum": lambda x, axes, keepdims: torch.sum(x, axes, keepdims, dtype=x.dtype),
    "variance": lambda x, axes, keepdims: torch.var(x, axes, correction=0, keepdim=keepdims),
}


def _running(function: Kernel, attributes: Attributes) -> Kernel:
    only(attributes, "exclusive", False)
    axis, dtype = attributes["axis"], dtype_of(attributes)
    if axis is None:
        return lambda x: function(x.flatten(), 0, dtype=dtype or x.dtype)
    return lambda x: function(x, axis, dtype=dtype or x.dtype)


for _name, _function in _OVER_AXES.items():
    plain(f"relax.{_name}", _function, axes_of, itemgetter("keepdims"))
plain("relax.argmax", torch.argmax, itemgetter("axis"), itemgetter("keepdims"))
plain("relax.argmin", torch.argmin, itemgetter("axis"), itemgetter("keepdims"))
plain(
    "relax.sort",
    lambda x, axis, descending: torch.sort(x, axis, descending).values,
    itemgetter("axis"),
    itemgetter("descending"),
)
kernel("relax.cumsum", allocates=True)(partial(_running, torch.cumsum))
kernel("relax.cumprod", allocates=True)(partial(_running, torch.cumprod))


@kernel("relax.argsort", allocates=True)
def _argsort(attributes: Attributes) -> Kernel:
    axis, descending = attributes["axis"], attributes["descending"]
    return cast(
        lambda x: torch.argsort(x, dim=axis, descending=descending, stable=True), dtype_of(attributes) or torch.int32
    )


@kernel("relax.topk")
def _topk(attributes: Attributes) -> Kernel:
    count, axis, largest = attributes["k"], attributes["axis"], attributes["largest"]
    dtype = dtype_of(attributes) or torch.int32
    if (kind := attributes["ret_type"]) == "both":
        return lambda x: (top := torch.topk(x, count, axis, largest)) and (top.values, top.indices.to(dtype))
    if kind == "values":
        return lambda x: torch.topk(x, count, axis, largest).values
    if kind == "indices":
        return lambda x: torch.topk(x, count, axis, largest).indices.to(dtype)
    raise refuse("ret_type", kind, "both, values or indices")


def _require_affine(attributes: Attributes) -> None:
    only(attributes, "center", True)
    only(attributes, "scale", True)


@kernel("relax.nn.batch_norm", allocates=True)
def _batch_norm(attributes: Attributes) -> Kernel:
    only(attributes, "axis", 1)
    only(attributes, "training", False)
    _require_affine(attributes)
    epsilon = attributes["epsilon"]

    # Relax returns (output, mean, variance); in inference only the output exists, see hios.frontends.relax_calls.
    def batch_norm(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return F.batch_norm(x, mean, variance, gamma, beta, training=False, eps=epsilon)

    return batch_norm


@kernel("relax.nn.layer_norm", allocates=True)
def _layer_norm(attributes: Attributes) -> Kernel:
    _require_affine(attributes)
    axes, epsilon = tuple(attributes["axes"]), attributes["epsilon"]
    last = tuple(range(-len(axes), 0))
    if axes == last:
        return lambda x, gamma, beta: F.layer_norm(x, gamma.shape, gamma, beta, epsilon)
    return lambda x, gamma, beta: F.layer_norm(x.movedim(axes, last), gamma.shape, gamma, beta, epsilon).movedim(
        last, axes
    )


@kernel("relax.nn.rms_norm", allocates=True)
def _rms_norm(attributes: Attributes) -> Kernel:
    axes, epsilon = tuple(attributes["axes"]), attributes["epsilon"]
    last = tuple(range(-len(axes), 0))
    return lambda x, weight: F.rms_norm(x.movedim(axes, last), weight.shape, weight, epsilon).movedim(last, axes)


@kernel("relax.nn.group_norm", allocates=True)
def _group_norm(attributes: Attributes) -> Kernel:
    only(attributes, "channel_axis", 1)
    _require_affine(attributes)
    groups, epsilon = attributes["num_groups"], attributes["epsilon"]
    axes = tuple(attributes["axes"])

    def group_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        _require_axes(axes, x, first=2)
        return F.group_norm(x, groups, gamma, beta, epsilon)

    return group_norm


@kernel("relax.nn.instance_norm", allocates=True)
def _instance_norm(attributes: Attributes) -> Kernel:
    only(attributes, "channel_axis", 1)
    _require_affine(attributes)
    axes, epsilon = tuple(attributes["axes"]), attributes["epsilon"]
    # Torch's exporter lays the batch into the channels; Relax's importer then names the batch an axis.
    if 0 in axes:

        def run(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
            _require_axes(axes[1:], x, first=2)
            return F.batch_norm(x, None, None, gamma, beta, training=True, eps=epsilon)

    else:

        def run(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
            _require_axes(axes, x, first=2)
            return F.instance_norm(x, weight=gamma, bias=beta, eps=epsilon)

    return run


def _require_axes(axes: tuple[int, ...], x: Tensor, first: int) -> None:
    if sorted(axis % x.ndim for axis in axes) != list(range(first, x.ndim)):
        raise UnsupportedError(f"axes {list(axes)} of a tensor of {x.ndim} dimensions are not supported, only all")


plain("relax.nn.softmax", torch.softmax, itemgetter("axis"))
plain("relax.nn.log_softmax", torch.log_softmax, itemgetter("axis"))
