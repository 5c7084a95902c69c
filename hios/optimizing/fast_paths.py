"""Fused operators that PyTorch uses in eval mode, decomposed: frontends support only their parts.

In eval mode nn.TransformerEncoderLayer is one operator of ATen, which torch.export avoids and Dynamo keeps.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx


def without_fast_paths(part: fx.GraphModule) -> fx.GraphModule:
    """A module with such operators decomposed; the module itself if it has none."""
    if not any(map(_is_plain_layer, part.graph.nodes)):
        return part
    written = fx.GraphModule(part, copy.deepcopy(part.graph))
    for node in list(written.graph.nodes):
        if _is_plain_layer(node):
            node.target = encoder_layer
    written.recompile()
    return written


def _is_plain_layer(node: fx.Node) -> bool:
    """Whether a node is an encoder layer without a mask."""
    return (
        node.op == "call_function"
        and node.target is torch._transformer_encoder_layer_fwd
        and all(value is None for value in node.args[20:])
        and not any(value is not None for name, value in node.kwargs.items() if name.startswith("mask"))
    )


def encoder_layer(
    x: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    *_: Any,
) -> Tensor:
    """What ``torch._transformer_encoder_layer_fwd`` computes without a mask.

    Args: as of that function; ``x`` is batch x length x ``embed_dim``.
    """

    def attend(value: Tensor) -> Tensor:
        batch, length, _ = value.shape
        parts = F.linear(value, qkv_weight, qkv_bias).chunk(3, -1)
        heads = [part.reshape(batch, length, num_heads, embed_dim // num_heads).transpose(1, 2) for part in parts]
        attended = F.scaled_dot_product_attention(heads[0], heads[1], heads[2])
        return F.linear(attended.transpose(1, 2).reshape(batch, length, embed_dim), proj_weight, proj_bias)

    def feed(value: Tensor) -> Tensor:
        inner = F.linear(value, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    def norm_1(value: Tensor) -> Tensor:
        return F.layer_norm(value, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(value: Tensor) -> Tensor:
        return F.layer_norm(value, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = x + attend(norm_1(x))
        return x + feed(norm_2(x))
    x = norm_1(x + attend(x))
    return norm_2(x + feed(x))
