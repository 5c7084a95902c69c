"""NASNet-A 4 @ 1056 (Zoph et al., arXiv:1707.07012), the small NASNet: four cells a group, 44 filters at first.

Cells and wiring are those of nasnet_large, so that both can be compared; its docstring lists where they are not the
paper's. For one of them, 880 channels come out of the last cell, not 1056.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .nasnet_large import NASNet


def build(
    *, image_size: int = 224, batch_size: int = 1, classifier: bool = False
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The network and example inputs: an image batch of (batch_size, 3, image_size, image_size)."""
    network = NASNet(stem=32, filters=44, repeats=4, classifier=classifier)
    return network, (torch.randn(batch_size, 3, image_size, image_size),)
