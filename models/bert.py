"""BERT (Devlin et al., arXiv:1810.04805): the encoder with its pooler, BERT-base by default (section 3).

The network is that of the package transformers, made from a configuration, with random weights; nothing is
downloaded. Attention is written out (transformers calls it eager), so that each of its operators can be scheduled:
queries, keys and values are three matrix products side by side.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._transformers import load


class Bert(nn.Module):
    """The encoder as a function of token ids (batch, position), all of one segment and none of them padding.

    Returns the last hidden states (batch, position, hidden) and the pooled first one (batch, hidden).
    """

    hios_units = "operator"

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        output = self.encoder(input_ids=input_ids)
        return output.last_hidden_state, output.pooler_output


def build(
    *,
    batch_size: int = 1,
    sequence_length: int = 128,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocabulary: int = 30522,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The network and example inputs: token ids of (batch_size, sequence_length)."""
    transformers = load()
    configuration = transformers.BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        vocab_size=vocabulary,
        max_position_embeddings=max(512, sequence_length),
        attn_implementation="eager",
    )
    return Bert(transformers.BertModel(configuration)), (torch.randint(vocabulary, (batch_size, sequence_length)),)
