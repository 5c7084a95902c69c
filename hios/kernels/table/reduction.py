"""Reductions over axes, and running sums and products."""

from __future__ import annotations

import torch
from torch import Tensor

from hios.kernels.table.attributes import axes_of, dtype_of, only
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
