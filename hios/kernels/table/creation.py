"""Tensors created from a shape, and triangles of matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from hios.kernels.table.attributes import dtype_of
from hios.kernels.table.kernel_registry import Attributes, Kernel, kernel


def _number(value: Tensor | float) -> float:
    return value.item() if isinstance(value, Tensor) else value


@kernel("relax.full", allocates=True)
def _full(attributes: Attributes) -> Kernel:
    shape, dtype = tuple(attributes["shape"]), dtype_of(attributes)

    def full(fill: Tensor | float) -> Tensor:
        own = fill.dtype if isinstance(fill, Tensor) else None
        return torch.full(shape, _number(fill), dtype=dtype or own)

    return full


@kernel("relax.full_like", allocates=True)
def _full_like(attributes: Attributes) -> Kernel:
    dtype = dtype_of(attributes)
    return lambda x, fill: torch.full_like(x, _number(fill), dtype=dtype)


@kernel("relax.zeros", allocates=True)
def _zeros(attributes: Attributes) -> Kernel:
    shape, dtype = tuple(attributes["shape"]), dtype_of(attributes)
    return lambda: torch.zeros(shape, dtype=dtype)


@kernel("relax.ones", allocates=True)
def _ones(attributes: Attributes) -> Kernel:
    shape, dtype = tuple(attributes["shape"]), dtype_of(attributes)
    return lambda: torch.ones(shape, dtype=dtype)


@kernel("relax.zeros_like", allocates=True)
def _zeros_like(attributes: Attributes) -> Kernel:
    dtype = dtype_of(attributes)
    return lambda x: torch.zeros_like(x, dtype=dtype)


@kernel("relax.ones_like", allocates=True)
def _ones_like(attributes: Attributes) -> Kernel:
    dtype = dtype_of(attributes)
    return lambda x: torch.ones_like(x, dtype=dtype)


@kernel("relax.arange", allocates=True)
def _arange(attributes: Attributes) -> Kernel:
    dtype = dtype_of(attributes)
    return lambda start, end, step: torch.arange(start, end, step, dtype=dtype)


@kernel("relax.tril", allocates=True)
def _tril(attributes: Attributes) -> Kernel:
    return lambda x, k=0: torch.tril(x, k)


@kernel("relax.triu", allocates=True)
def _triu(attributes: Attributes) -> Kernel:
    return lambda x, k=0: torch.triu(x, k)
