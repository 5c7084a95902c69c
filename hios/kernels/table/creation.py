"""Tensors created from a shape, and triangles of matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from hios.kernels.table.attributes import dtype_of
from hios.kernels.table.kernel_registry import Attributes, Builder, Kernel, kernel, plain


def _number(value: Tensor | float) -> float:
    return value.item() if isinstance(value, Tensor) else value


@kernel("relax.full", allocates=True)
def _full(attributes: Attributes) -> Kernel:
    shape, dtype = tuple(attributes["shape"]), dtype_of(attributes)

    def full(fill: Tensor | float) -> Tensor:
        own = fill.dtype if isinstance(fill, Tensor) else None
        return torch.full(shape, _number(fill), dtype=dtype or own)

    return full


def _of_shape(function: Kernel) -> Builder:
    def builder(attributes: Attributes) -> Kernel:
        shape, dtype = tuple(attributes["shape"]), dtype_of(attributes)
        return lambda: function(shape, dtype=dtype)

    return builder


#: Functions whose only attribute is the dtype.
_BY_DTYPE: dict[str, Kernel] = {
    "arange": torch.arange,
    "full_like": lambda x, fill, dtype: torch.full_like(x, _number(fill), dtype=dtype),
    "ones_like": torch.ones_like,
    "zeros_like": torch.zeros_like,
}


def _by_dtype(function: Kernel) -> Builder:
    def builder(attributes: Attributes) -> Kernel:
        dtype = dtype_of(attributes)
        return lambda *arguments: function(*arguments, dtype=dtype)

    return builder


for _name, _function in (("zeros", torch.zeros), ("ones", torch.ones)):
    kernel(f"relax.{_name}", allocates=True)(_of_shape(_function))
for _name, _function in _BY_DTYPE.items():
    kernel(f"relax.{_name}", allocates=True)(_by_dtype(_function))
plain("relax.tril", torch.tril)
plain("relax.triu", torch.triu)
