"""Reductions over axes, running sums and products, argmax and argmin, and sorting."""

from __future__ import annotations

import torch
from torch import Tensor

from hios.kernels.table.attributes import axes_of, cast, dtype_of, only, refuse
from hios.kernels.table.kernel_registry import Attributes, Kernel, kernel


@kernel("relax.sum", allocates=True)
def _sum(attributes: Attributes) -> Kernel:
    axes, keepdims = axes_of(attributes), attributes["keepdims"]
    # Relax keeps the dtype of integers, torch would widen it.
    return lambda x: torch.sum(x, axes, keepdims, dtype=x.dtype)


@kernel("relax.mean", allocates=True)
def _mean(attributes: Attributes) -> Kernel:
    axes, keepdims = axes_of(attributes), attributes["keepdims"]
    return lambda x: torch.mean(x, axes, keepdims)


@kernel("relax.variance", allocates=True)
def _variance(attributes: Attributes) -> Kernel:
    axes, keepdims = axes_of(attributes), attributes["keepdims"]
    return lambda x: torch.var(x, axes, correction=0, keepdim=keepdims)


@kernel("relax.std", allocates=True)
def _std(attributes: Attributes) -> Kernel:
    axes, keepdims = axes_of(attributes), attributes["keepdims"]
    return lambda x: torch.std(x, axes, correction=0, keepdim=keepdims)


@kernel("relax.max", allocates=True)
def _max(attributes: Attributes) -> Kernel:
    axes, keepdims = axes_of(attributes) or (), attributes["keepdims"]
    return lambda x: torch.amax(x, axes, keepdims)


@kernel("relax.min", allocates=True)
def _min(attributes: Attributes) -> Kernel:
    axes, keepdims = axes_of(attributes) or (), attributes["keepdims"]
    return lambda x: torch.amin(x, axes, keepdims)


@kernel("relax.prod", allocates=True)
def _prod(attributes: Attributes) -> Kernel:
    axes, keepdims = axes_of(attributes), attributes["keepdims"]

    def prod(x: Tensor) -> Tensor:
        dtype = x.dtype
        every = range(x.ndim) if axes is None else [axis % x.ndim for axis in axes]
        for axis in sorted(every, reverse=True):  # torch takes one axis at a time
            x = torch.prod(x, axis, keepdims, dtype=dtype)
        return x

    return prod


@kernel("relax.cumsum", allocates=True)
def _cumsum(attributes: Attributes) -> Kernel:
    return _running(attributes, torch.cumsum)


@kernel("relax.cumprod", allocates=True)
def _cumprod(attributes: Attributes) -> Kernel:
    return _running(attributes, torch.cumprod)


def _running(attributes: Attributes, function: Kernel) -> Kernel:
    only(attributes, "exclusive", False)
    axis, dtype = attributes["axis"], dtype_of(attributes)

    def run(x: Tensor) -> Tensor:
        result: Tensor = (
            function(x.flatten(), 0, dtype=dtype or x.dtype)
            if axis is None
            else function(x, axis, dtype=dtype or x.dtype)
        )
        return result

    return run


@kernel("relax.argmax", allocates=True)
def _argmax(attributes: Attributes) -> Kernel:
    axis, keepdims = attributes["axis"], attributes["keepdims"]
    return lambda x: torch.argmax(x, axis, keepdims)


@kernel("relax.argmin", allocates=True)
def _argmin(attributes: Attributes) -> Kernel:
    axis, keepdims = attributes["axis"], attributes["keepdims"]
    return lambda x: torch.argmin(x, axis, keepdims)


@kernel("relax.sort", allocates=True)
def _sort(attributes: Attributes) -> Kernel:
    axis, descending = attributes["axis"], attributes["descending"]
    return lambda x: torch.sort(x, axis, descending).values


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
