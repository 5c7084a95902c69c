"""Matrix products, attention and convolutions as torch calls; ``kernels.onednn`` has faster ones for the CPU."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.kernels.table.kernel_registry import (
    Attributes,
    Kernel,
    cast,
    count,
    dtype_of,
    kernel,
    only,
    plain,
    refuse,
    sizes,
    split_padding,
)

plain("relax.outer", torch.outer)


@kernel("relax.matmul", allocates=True)
def _matmul(attributes: Attributes) -> Kernel:
    return cast(torch.matmul, dtype_of(attributes, "out_dtype"))


@kernel("relax.einsum")
def _einsum(attributes: Attributes) -> Kernel:
    subscripts = attributes["subscripts"]
    return lambda *tensors: torch.einsum(subscripts, *tensors)


@kernel("relax.nn.attention", "relax.nn.attention_bias")
def _attention(attributes: Attributes) -> Kernel:
    """Relax's tensors are (batch, position, head, feature), torch's (batch, head, position, feature)."""
    scale, causal = attributes["scale"], attributes["causal_mask"]
    only(attributes, "window_size", None)
    if causal not in (None, "TopLeft", "BottomRight"):
        raise refuse("causal_mask", causal, "TopLeft or BottomRight")

    def attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
        if causal == "TopLeft" and bias is None:  # NaN that a query may not see stays unseen, which no mask gives
            return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale).transpose(1, 2)
        mask = bias
        if causal is not None:
            mask = _causal(query, key, causal)
            mask = mask if bias is None else torch.where(mask, bias, -torch.inf)
        return F.scaled_dot_product_attention(query, key, value, mask, scale=scale).transpose(1, 2)

    return attention


def _causal(query: Tensor, key: Tensor, corner: str) -> Tensor:
    """Which keys a query may see: the lower triangle from one corner of the matrix."""
    rows, columns = query.shape[2], key.shape[2]
    diagonal = 0 if corner == "TopLeft" else abs(rows - columns)
    return torch.ones(rows, columns, dtype=torch.bool, device=query.device).tril(diagonal)


#: By number of dimensions: spatial axes, and torch's functions. Images are NC and these, filters OI (transposed IO).
_AXES = {1: "W", 2: "HW", 3: "DHW"}
_CONVOLUTION: dict[int, Kernel] = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
_TRANSPOSED: dict[int, Kernel] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _convolution(dimensions: int, attributes: Attributes, *, transposed: bool) -> Kernel:
    function = (_TRANSPOSED if transposed else _CONVOLUTION)[dimensions]
    axes = _AXES[dimensions]
    only(attributes, "data_layout", f"NC{axes}")
    only(attributes, "kernel_layout", f"{'IO' if transposed else 'OI'}{axes}")
    only(attributes, "out_layout", f"NC{axes}")
    stride, dilation = sizes(attributes, "strides", dimensions), sizes(attributes, "dilation", dimensions)
    groups = count(attributes, "groups")
    more = (sizes(attributes, "output_padding", dimensions, 0), groups, dilation) if transposed else (dilation, groups)
    padding, explicit = split_padding(sizes(attributes, "padding", 2 * dimensions, 0))
    if explicit is not None and transposed:
        raise refuse("padding", attributes["padding"], "equal padding on both sides of an axis")

    # Relax's convolution has no bias; folding adds one, see hios.frontends.extract.
    def run(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if explicit is not None:
            x = F.pad(x, explicit)
        return function(x, weight, bias, stride, padding, *more)

    return cast(run, dtype_of(attributes, "out_dtype"))


for _dimensions in _AXES:
    kernel(f"relax.nn.conv{_dimensions}d", allocates=True)(partial(_convolution, _dimensions, transposed=False))
    kernel(f"relax.nn.conv{_dimensions}d_transpose", allocates=True)(
        partial(_convolution, _dimensions, transposed=True)
    )
