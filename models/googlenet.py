"""GoogLeNet, the first Inception (Szegedy et al., arXiv:1409.4842, table 1): nine modules of four branches.

Local response normalization around the first convolutions is left out unless asked for: later networks dropped it,
and the scheduling papers count none. The auxiliary classifiers belong to training and are left out.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

#: Table 1 by module: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection. Max pools follow 3b and 4e.
_MODULES = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
_POOLED = ("3b", "4e")


class ConvRelu(nn.Module):
    """Convolution with bias, and ReLU."""

    def __init__(self, channels: int, filters: int, kernel_size: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size, stride, kernel_size // 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x))


class Inception(nn.Module):
    """Figure 2b: 1x1, 3x3 and 5x5 convolutions and a pool side by side, with 1x1 convolutions that narrow."""

    def __init__(self, channels: int, filters: tuple[int, int, int, int, int, int]) -> None:
        super().__init__()
        one, three_reduce, three, five_reduce, five, projection = filters
        self.branch1x1 = ConvRelu(channels, one, 1)
        self.branch3x3_1 = ConvRelu(channels, three_reduce, 1)
        self.branch3x3_2 = ConvRelu(three_reduce, three, 3)
        self.branch5x5_1 = ConvRelu(channels, five_reduce, 1)
        self.branch5x5_2 = ConvRelu(five_reduce, five, 5)
        self.branch_pool = ConvRelu(channels, projection, 1)
        self.channels = one + three + five + projection

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(
            [
                self.branch1x1(x),
                self.branch3x3_2(self.branch3x3_1(x)),
                self.branch5x5_2(self.branch5x5_1(x)),
                self.branch_pool(F.max_pool2d(x, 3, stride=1, padding=1)),
            ],
            1,
        )


def _halve(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, stride=2, ceil_mode=True)


class GoogLeNet(nn.Module):
    """Table 1: three convolutions, the modules, and a global pool."""

    def __init__(self, classifier: bool, lrn: bool) -> None:
        super().__init__()
        self.conv1 = ConvRelu(3, 64, 7, stride=2)
        self.conv2_reduce = ConvRelu(64, 64, 1)
        self.conv2 = ConvRelu(64, 192, 3)
        # Size and factors of Krizhevsky et al. 2012, section 3.3, as the released GoogLeNet has them.
        self.norm = nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75) if lrn else nn.Identity()
        self.inceptions = nn.ModuleDict()
        channels = 192
        for name, filters in _MODULES.items():
            self.inceptions[name] = inception = Inception(channels, filters)
            channels = inception.channels
        self.fc = nn.Linear(channels, 1000) if classifier else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(_halve(self.conv1(x)))
        x = _halve(self.norm(self.conv2(self.conv2_reduce(x))))
        for name, inception in self.inceptions.items():
            x = inception(x)
            if name in _POOLED:
                x = _halve(x)
        x = F.adaptive_avg_pool2d(x, 1)
        return x if self.fc is None else F.softmax(self.fc(torch.flatten(x, 1)), 1)


def build(
    *, image_size: int = 224, batch_size: int = 1, classifier: bool = False, lrn: bool = False
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The network and example inputs: an image batch of (batch_size, 3, image_size, image_size).

    ``lrn`` adds the local response normalization of the paper.
    """
    return GoogLeNet(classifier, lrn), (torch.randn(batch_size, 3, image_size, image_size),)
