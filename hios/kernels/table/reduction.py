"""Reductions over axes, running sums and products, argmax and argmin, and sorting."""

from __future__ import annotations

from operator import itemgetter

import torch
from torch import Tensor

from hios.kernels.table.attributes import axes_of, cast, dtype_of, only, refuse
from hios.kernels.table.kernel_registry import Attributes, Builder, Kernel, kernel, plain


def _product(x: Tensor, axes: tuple[int, ...] | None, keepdims: bool) -> Tensor:
    dtype = x.dtype
    every = range(x.ndim) if axes is None else [axis % x.ndim for axis in axes]
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


def _running(function: Kernel) -> Builder:
    def builder(attributes: Attributes) -> Kernel:
        only(attributes, "exclusive", False)
        axis, dtype = attributes["axis"], dtype_of(attributes)
        if axis is None:
            return lambda x: function(x.flatten(), 0, dtype=dtype or x.dtype)
        return lambda x: function(x, axis, dtype=dtype or x.dtype)

    return builder


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
kernel("relax.cumsum", allocates=True)(_running(torch.cumsum))
kernel("relax.cumprod", allocates=True)(_running(torch.cumprod))


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
