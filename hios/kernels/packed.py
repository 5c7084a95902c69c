"""Convolutions prepared for the CPU: filters in oneDNN's layout, channels-last images, fused activation.

``torch.conv2d`` reorders filters, and images in the default layout, in every call, and applies the activation in a
separate pass. The filters of a schedule never change, so this is done once, when the operator is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.graph import Call
from hios.kernels.table import Kernel
from hios.kernels.table.attributes import dtype_of, split_padding

#: Activations that oneDNN computes while it writes the result, by Relax name, as torch names them.
_FUSED = {"relax.nn.relu": "relu", "relax.sigmoid": "sigmoid", "relax.tanh": "tanh"}


def can_pack(call: Call, weights: Mapping[str, Tensor]) -> bool:
    """Whether a call is a 2-d convolution with constant filters that oneDNN can compute."""
    if call.function != "relax.nn.conv2d" or dtype_of(call.attributes, "out_dtype") not in (None, torch.float32):
        return False
    tensors = call.arguments[1:]
    return all(tensor.weight is not None and is_packable(weights[tensor.weight]) for tensor in tensors)


def is_packable(filters: Tensor) -> bool:
    """Whether oneDNN is available and can reorder these filters."""
    return torch.backends.mkldnn.is_available() and filters.dtype is torch.float32 and filters.device.type == "cpu"


def can_fuse(call: Call) -> bool:
    """Whether a call is an activation that a packed convolution can compute too."""
    return call.function in _FUSED


def packed_convolution(
    attributes: Mapping[str, Any], weight: Tensor, bias: Tensor | None, activation: str | None = None
) -> Kernel:
    """A convolution of images (N, C, H, W) as a function of the image alone.

    Args:
        attributes: of relax.nn.conv2d.
        weight: filters (O, I/groups, H, W), float32.
        bias: (O,), or None.
        activation: Relax name of the activation that follows.

    Returns:
        A function whose result is in channels-last order. Its first run releases the filters in their original layout.
    """
    stride, dilation = tuple(attributes["strides"]), tuple(attributes["dilation"])
    groups = attributes["groups"]
    padding, explicit = split_padding(attributes["padding"])
    fused = "none" if activation is None else _FUSED[activation]
    pack, run = torch.ops.mkldnn._reorder_convolution_weight, torch.ops.mkldnn._convolution_pointwise.default
    # One variable for both, so that other threads see them change together.
    kept = weight, False

    def convolution(x: Tensor) -> Tensor:
        nonlocal kept
        if explicit is not None:
            x = F.pad(x, explicit)
        filters, packed = kept
        if not packed:
            # At the first run, because the best layout depends on the image; a wrong one is ten times as slow.
            ordered = filters.contiguous(memory_format=torch.channels_last)
            filters = pack(ordered, padding, stride, dilation, groups, list(x.shape))
            kept = filters, True
        result: Tensor = run(x, filters, bias, padding, stride, dilation, groups, fused, [], "")
        return result

    return convolution


def as_made(value: Tensor) -> Tensor:
    """A value in the memory format that packed convolutions produce: images channels last."""
    return value.contiguous(memory_format=torch.channels_last) if value.ndim == 4 else value
