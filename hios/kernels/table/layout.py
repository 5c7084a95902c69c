"""Operators that only move elements: reshaping, permuting, joining, splitting, repeating, padding, and by indices."""

from __future__ import annotations

from functools import partial
from operator import itemgetter

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.kernels.table.kernel_registry import (
    Attributes,
    Kernel,
    axes_of,
    explicit_padding,
    kernel,
    only,
    plain,
    refuse,
)


def _joining(function: Kernel, attributes: Attributes) -> Kernel:
    axis = attributes["axis"] or 0
    return lambda *tensors: function(tensors, axis)


kernel("relax.concat", allocates=True)(partial(_joining, torch.cat))
kernel("relax.stack", allocates=True)(partial(_joining, torch.stack))


@kernel("relax.split")
def _split(attributes: Attributes) -> Kernel:
    parts, axis = attributes["indices_or_sections"], attributes["axis"]
    if isinstance(parts, int):
        # Equal parts; the last one is smaller if the size is not divisible.
        return lambda x: torch.split(x, -(-x.shape[axis] // parts), axis)
    return lambda x: torch.tensor_split(x, list(parts), axis)


@kernel("relax.expand_dims")
def _expand_dims(attributes: Attributes) -> Kernel:
    axes = axes_of(attributes) or ()

    def expand_dims(x: Tensor) -> Tensor:
        # Axes count in the result.
        for axis in sorted(axis % (x.ndim + len(axes)) for axis in axes):
            x = x.unsqueeze(axis)
        return x

    return expand_dims


@kernel("relax.squeeze")
def _squeeze(attributes: Attributes) -> Kernel:
    axes = axes_of(attributes)
    return torch.squeeze if axes is None else lambda x: torch.squeeze(x, axes)


@kernel("relax.permute_dims")
def _permute_dims(attributes: Attributes) -> Kernel:
    axes = axes_of(attributes, "axes")
    if axes is None:
        return lambda x: x.permute(*reversed(range(x.ndim)))
    return lambda x: x.permute(axes)


@kernel("relax.meshgrid")
def _meshgrid(attributes: Attributes) -> Kernel:
    indexing = attributes["indexing"] or "ij"
    return lambda *tensors: torch.meshgrid(*tensors, indexing=indexing)


#: torch's names of Relax's modes.
_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "circular": "circular"}


@kernel("relax.nn.pad", allocates=True)
def _pad(attributes: Attributes) -> Kernel:
    width, value, mode = attributes["pad_width"], float(attributes["pad_value"]), attributes["pad_mode"]
    if mode not in _PAD_MODES:
        raise refuse("pad_mode", mode, " or ".join(_PAD_MODES))
    padding = explicit_padding([*width[::2], *width[1::2]])
    if mode == "constant":
        return lambda x: F.pad(x, padding, value=value)
    used = max((place // 2 + 1 for place, side in enumerate(padding) if side), default=1)

    def pad(x: Tensor) -> Tensor:
        # For other modes than constant, torch wants padding for all axes but the first one or two.
        return F.pad(x, padding[: 2 * max(used, x.ndim - 2)], mode=_PAD_MODES[mode])

    return pad


def _shape(attributes: Attributes) -> tuple[int, ...]:
    return tuple(attributes["shape"])


plain("relax.reshape", torch.reshape, _shape, allocates=False)
plain("relax.flatten", torch.flatten, allocates=False)
plain("relax.nn.batch_flatten", lambda x: torch.flatten(x, 1), allocates=False)
plain("relax.broadcast_to", torch.broadcast_to, _shape, allocates=False)
plain("relax.tile", torch.tile, lambda attributes: tuple(attributes["repeats"]), allocates=False)
plain("relax.repeat", torch.repeat_interleave, itemgetter("repeats"), itemgetter("axis"))
plain("relax.flip", torch.flip, lambda attributes: axes_of(attributes) or ())
plain("relax.nn.pixel_shuffle", F.pixel_shuffle, itemgetter("upscale_factor"), allocates=False)


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


# Indices that are numbers select a part, without a copy, so neither of these two allocates.
@kernel("relax.gather_nd")
def _gather_nd(attributes: Attributes) -> Kernel:
    only(attributes, "batch_dims", 0)
    return lambda x, indices: x[indices.long().unbind(-1)]


plain("relax.index_tensor", lambda x, *indices: x[indices], allocates=False)
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
