"""Operators that compare elements along an axis: argmax and argmin, sorting."""

from __future__ import annotations

import torch

from hios.kernels.table.attributes import cast, dtype_of, refuse
from hios.kernels.table.kernel_registry import Attributes, Kernel, kernel


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
