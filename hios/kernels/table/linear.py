"""Matrix products and attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.kernels.table.attributes import cast, dtype_of, only, refuse
from hios.kernels.table.kernel_registry import Attributes, Kernel, kernel, plain

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
