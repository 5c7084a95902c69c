"""The sample network of IOS's README, which its figure 2 and figure 8 show: four 3x3 convolutions of one value.

Channels as in the README; the last operator concatenates b after a, c and d.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .googlenet import ConvRelu


class Sample(nn.Module):
    """The block: a and then b beside c and d."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.a = ConvRelu(channels, channels, 3)
        self.b = ConvRelu(channels, 2 * channels, 3)
        self.c = ConvRelu(channels, channels, 3)
        self.d = ConvRelu(channels, 2 * channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.b(self.a(x)), self.d(x), self.c(x)], 1)


def build(*, image_size: int = 15, batch_size: int = 1, channels: int = 375) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The network and example inputs: a batch of values of (batch_size, channels, image_size, image_size)."""
    return Sample(channels), (torch.randn(batch_size, channels, image_size, image_size),)
