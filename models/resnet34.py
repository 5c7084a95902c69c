"""ResNet-34 (He et al., arXiv:1512.03385, table 1): residual blocks of two 3x3 convolutions, with projections.

36 convolutions, 16 additions, 16 ReLUs behind them and 2 pools: 70 operators, in the 5 blocks of resnet50.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .resnet50 import ResNet


def build(
    *, image_size: int = 224, batch_size: int = 1, classifier: bool = False
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The network and example inputs: an image batch of (batch_size, 3, image_size, image_size)."""
    network = ResNet((3, 4, 6, 3), deep=False, classifier=classifier)
    return network, (torch.randn(batch_size, 3, image_size, image_size),)
