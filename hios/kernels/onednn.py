"""Convolutions and matrix products prepared for the CPU: constants in oneDNN's layout, activations in the same pass.

``torch.conv2d`` reorders filters, and images in the default layout, in every call, and applies the activation in a
separate pass; ``torch.matmul`` calls MKL, which prepares the matrix in every call and took twice as long as oneDNN on
an AMD EPYC. The constants of a schedule never change, so both are prepared once, when the operator first runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.core.graph import Call
from hios.kernels.table import Kernel
from hios.kernels.table.kernel_registry import dtype_of, split_padding

#: Activations that oneDNN computes while it writes the result, by Relax name: what torch calls them, and how.
_FUSED = {
    "relax.nn.relu": ("relu", ""),
    "relax.sigmoid": ("sigmoid", ""),
    "relax.tanh": ("tanh", ""),
    "relax.nn.silu": ("swish", ""),
    "relax.nn.gelu": ("gelu", "none"),
    "relax.nn.gelu_tanh": ("gelu", "tanh"),
}
_UNFUSED = ("none", "")


#: What can be packed.
CONVOLUTION, PRODUCT = "relax.nn.conv2d", "relax.matmul"


def can_pack(call: Call, weights: Mapping[str, Tensor]) -> bool:
    """Whether a call is a 2-d convolution with constant filters, or a product with a constant matrix, in float32."""
    if call.function not in (CONVOLUTION, PRODUCT):
        return False
    if dtype_of(call.attributes, "out_dtype") not in (None, torch.float32):
        return False
    constants = [tensor.weight for tensor in call.arguments[1:]]
    if not all(name is not None and is_packable(weights[name]) for name in constants):
        return False
    return call.function == CONVOLUTION or all(weights[name or ""].ndim == 2 for name in constants)


def is_packable(weight: Tensor) -> bool:
    """Whether oneDNN is available and can reorder these filters, or this matrix."""
    fits = weight.dtype is torch.float32 and weight.device.type == "cpu" and weight.numel() > 0
    return torch.backends.mkldnn.is_available() and fits


def can_fuse(call: Call) -> bool:
    """Whether a call is an activation that a packed convolution or product can compute too."""
    return call.function in _FUSED


def packed_convolution(
    attributes: Mapping[str, Any], weight: Tensor, bias: Tensor | None, activation: str | None = None
) -> Kernel:
    """A convolution of images (N, C, H, W) as a function of the image alone; its result is in channels-last order.

    ``attributes`` are those of relax.nn.conv2d, filters (O, I/groups, H, W) are float32, the bias is (O,);
    ``activation`` is the Relax name of the one that follows. The first run releases the filters in their original
    layout.
    """
    stride, dilation = tuple(attributes["strides"]), tuple(attributes["dilation"])
    groups = attributes["groups"]
    padding, explicit = split_padding(attributes["padding"])
    fused, algorithm = _UNFUSED if activation is None else _FUSED[activation]
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
        return run(x, filters, bias, padding, stride, dilation, groups, fused, [], algorithm)

    return convolution


def packed_product(weight: Tensor, bias: Tensor | None, activation: str | None = None) -> Kernel:
    """A product (..., K) by (K, N) with a constant float32 matrix, as a function of the first factor alone.

    The bias is (N,); ``activation`` is the Relax name of the one that follows. The first run releases the matrix in its
    original layout.
    """
    fused, algorithm = _UNFUSED if activation is None else _FUSED[activation]
    pack, run = torch.ops.mkldnn._reorder_linear_weight, torch.ops.mkldnn._linear_pointwise.default
    kept = weight, False  # one variable, as for convolutions

    def product(x: Tensor) -> Tensor:
        nonlocal kept
        matrix, packed = kept
        if not packed:
            # At the first run, because the best layout depends on the number of rows.
            matrix = pack(matrix.t().contiguous(), x.numel() // matrix.shape[0])
            kept = matrix, True
        if x.ndim == 1:
            return run(x[None], matrix, bias, fused, [], algorithm)[0]
        return run(x, matrix, bias, fused, [], algorithm)

    return product


def as_made(value: Tensor) -> Tensor:
    """A value in the memory format that packed convolutions produce: images channels last."""
    return value.contiguous(memory_format=torch.channels_last) if value.ndim == 4 else value
