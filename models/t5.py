"""T5 (Raffel et al., arXiv:1910.10683): encoder and decoder, T5-small by default (section 3.7).

One forward takes the ids of a text and of as much of its translation, as training and scoring do; nothing is cached
between positions. The decoder's first layers do not wait for the encoder. The network is that of the package
transformers, made from a configuration, with random weights; nothing is downloaded. Attention is written out, so
that each of its operators can be scheduled.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._transformers import load


class T5(nn.Module):
    """Encoder and decoder as a function of the token ids of both (batch, position), none of them padding.

    Returns the decoder's last hidden states (batch, position, hidden).
    """

    hios_units = "operator"

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor) -> Tensor:
        output = self.network(input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False)
        states: Tensor = output.last_hidden_state
        return states


def build(
    *,
    batch_size: int = 1,
    sequence_length: int = 128,
    layers: int = 6,
    hidden: int = 512,
    heads: int = 8,
    vocabulary: int = 32128,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The network and example inputs: token ids of (batch_size, sequence_length), for encoder and decoder.

    ``layers`` is for each of the two. Heads are of 64 features, whatever ``hidden`` is, as in all sizes of T5.
    """
    transformers = load()
    configuration = transformers.T5Config(
        num_layers=layers,
        d_model=hidden,
        num_heads=heads,
        d_ff=4 * hidden,
        vocab_size=vocabulary,
        attn_implementation="eager",
    )
    inputs = tuple(torch.randint(vocabulary, (batch_size, sequence_length)) for _ in range(2))
    return T5(transformers.T5Model(configuration)), inputs
