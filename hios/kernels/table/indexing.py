"""Reading and writing elements at given indices."""

from __future__ import annotations

from operator import itemgetter

import torch
from torch import Tensor

from hios.kernels.table.kernel_registry import Attributes, Kernel, kernel, only, plain, refuse


@kernel("relax.strided_slice")
def _strided_slice(attributes: Attributes) -> Kernel:
    axes, begin, end = attributes["axes"], attributes["begin"], attributes["end"]
    strides = attributes.get("strides") or [1] * len(axes)
    slices = [
        (axis, slice(first, last, step)) for axis, first, last, step in zip(axes, begin, end, strides, strict=True)
    ]

    def strided_slice(x: Tensor) -> Tensor:
        for axis, places in slices:
            if places.step > 0:
                x = x[(slice(None),) * (axis % x.ndim) + (places,)]
            else:  # torch has no views with negative strides
                chosen = torch.tensor(range(x.shape[axis])[places], dtype=torch.int64, device=x.device)
                x = x.index_select(axis, chosen)
        return x

    return strided_slice


@kernel("relax.take")
def _take(attributes: Attributes) -> Kernel:
    """Modes: ``fast`` leaves indices as they are, ``clip`` and ``wrap`` bring them into range.

    Relax promises nothing for negative indices in ``fast``; its importers pass torch's, which count from the end.
    """
    axis, mode = attributes["axis"], attributes["mode"]
    if mode not in ("fast", "clip", "wrap"):
        raise refuse("mode", mode, "fast, clip or wrap")

    def take(x: Tensor, indices: Tensor | int) -> Tensor:
        if axis is None:
            x = x.flatten()
        place = 0 if axis is None else axis % x.ndim
        if mode != "fast":
            indices = torch.as_tensor(indices, device=x.device)
            indices = indices.clamp(0, x.shape[place] - 1) if mode == "clip" else indices.remainder(x.shape[place])
        if isinstance(indices, int):
            return x.select(place, indices)
        return x[(slice(None),) * place + (indices,)]

    return take


@kernel("relax.index_put", allocates=True)
def _index_put(attributes: Attributes) -> Kernel:
    accumulate = attributes["accumulate"]

    def index_put(x: Tensor, *indices_and_values: Tensor) -> Tensor:
        *indices, values = indices_and_values
        return torch.index_put(x, [index.long() for index in indices], values, accumulate)

    return index_put


@kernel("relax.gather_nd", allocates=True)
def _gather_nd(attributes: Attributes) -> Kernel:
    only(attributes, "batch_dims", 0)
    return lambda x, indices: x[indices.long().unbind(-1)]


plain("relax.index_tensor", lambda x, *indices: x[indices])
plain("relax.gather_elements", lambda x, indices, axis: torch.gather(x, axis, indices.long()), itemgetter("axis"))
plain(
    "relax.slice_scatter",
    lambda x, source, start, end, step, axis: torch.slice_scatter(x, source, axis, start, end, step),
    itemgetter("axis"),
)

#: torch's names of Relax's reductions; ``update`` writes the value itself.
_REDUCTIONS = {"add": "sum", "mul": "prod", "mean": "mean", "max": "amax", "min": "amin"}


@kernel("relax.scatter_elements", allocates=True)
def _scatter_elements(attributes: Attributes) -> Kernel:
    axis, reduction = attributes["axis"], attributes["reduction"]
    if reduction == "update":
        return lambda x, indices, updates: torch.scatter(x, axis, indices.long(), updates)
    if reduction not in _REDUCTIONS:
        raise refuse("reduction", reduction, f"update, {', '.join(_REDUCTIONS)}")
    return lambda x, indices, updates: torch.scatter_reduce(
        x, axis, indices.long(), updates, _REDUCTIONS[reduction], include_self=True
    )


@kernel("relax.scatter_nd", allocates=True)
def _scatter_nd(attributes: Attributes) -> Kernel:
    reduction = attributes["reduction"]
    if reduction not in ("update", "add"):
        raise refuse("reduction", reduction, "update or add")
    accumulate = reduction == "add"

    def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        return torch.index_put(x, list(indices.long().unbind(-1)), updates, accumulate)

    return scatter_nd


@kernel("relax.one_hot", allocates=True)
def _one_hot(attributes: Attributes) -> Kernel:
    depth, axis = attributes["depth"], attributes["axis"]

    def one_hot(indices: Tensor, on: float, off: float) -> Tensor:
        # Relax takes the dtype from the number, which it keeps in the widest type.
        dtype = torch.float64 if isinstance(on, float) else torch.int64
        place = axis % (indices.ndim + 1)
        classes = torch.arange(depth, device=indices.device).reshape(-1, *[1] * (indices.ndim - place))
        chosen, others = (torch.full((), number, dtype=dtype, device=indices.device) for number in (on, off))
        return torch.where(indices.unsqueeze(place) == classes, chosen, others)

    return one_hot
