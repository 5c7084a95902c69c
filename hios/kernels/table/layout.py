"""Operators that only rearrange elements: reshaping, permuting, joining, splitting, repeating, padding."""

from __future__ import annotations

from operator import itemgetter

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.kernels.table.kernel_registry import (
    Attributes,
    Builder,
    Kernel,
    axes_of,
    explicit_padding,
    kernel,
    plain,
    refuse,
)


def _joining(function: Kernel) -> Builder:
    def builder(attributes: Attributes) -> Kernel:
        axis = attributes["axis"] or 0
        return lambda *tensors: function(tensors, axis)

    return builder


kernel("relax.concat", allocates=True)(_joining(torch.cat))
kernel("relax.stack", allocates=True)(_joining(torch.stack))


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
