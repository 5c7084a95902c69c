"""ResNet-50 (He et al., arXiv:1512.03385, table 1): bottlenecks of three convolutions around which the input goes.

It has 53 convolutions, 16 additions, 16 ReLUs behind them and a max pool: 86 operators, or with the global average
pool, which is the default here as in the network, the 87 in 5 blocks of TOP table II. The blocks are the rows of table
1: conv1 with the max pool, conv2_x to conv5_x, the last with the global pool. A bottleneck that halves the image does
so in its first 1x1 convolution, as in the paper, and its shortcut is a projection (option B).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class ConvNorm(nn.Module):
    """Convolution and batch norm, with ReLU where ``relu`` says so."""

    def __init__(self, channels: int, filters: int, kernel_size: int, stride: int = 1, *, relu: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size, stride, kernel_size // 2, bias=False)
        self.norm = nn.BatchNorm2d(filters)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return F.relu(x) if self.relu else x


class Residual(nn.Module):
    """ReLU of the sum of a few convolutions and the shortcut around them (section 3.2)."""

    def __init__(self, convolutions: nn.Sequential, shortcut: nn.Module | None) -> None:
        super().__init__()
        self.convolutions = convolutions
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.convolutions(x) + (x if self.shortcut is None else self.shortcut(x)))


def _shortcut(channels: int, filters: int, stride: int) -> ConvNorm | None:
    """None where the input itself fits, else a projection (option B)."""
    return None if stride == 1 and channels == filters else ConvNorm(channels, filters, 1, stride, relu=False)


def bottleneck(channels: int, width: int, stride: int) -> Residual:
    """Figure 5 right: 1x1, 3x3 and 1x1 convolutions; four times the width comes out."""
    convolutions = nn.Sequential(
        ConvNorm(channels, width, 1, stride), ConvNorm(width, width, 3), ConvNorm(width, 4 * width, 1, relu=False)
    )
    return Residual(convolutions, _shortcut(channels, 4 * width, stride))


def basic(channels: int, width: int, stride: int) -> Residual:
    """Figure 5 left: two 3x3 convolutions."""
    convolutions = nn.Sequential(ConvNorm(channels, width, 3, stride), ConvNorm(width, width, 3, relu=False))
    return Residual(convolutions, _shortcut(channels, width, stride))


class ResNet(nn.Module):
    """Convolution, max pool, four groups of residual blocks and a global pool (table 1).

    Args:
        repeats: residual blocks of each group.
        deep: bottlenecks instead of pairs of 3x3 convolutions.
        classifier: whether a fully connected layer and a softmax follow.
    """

    hios_blocks = ("conv1", "conv2", "conv3", "conv4", "conv5")

    def __init__(self, repeats: Sequence[int], *, deep: bool, classifier: bool) -> None:
        super().__init__()
        block, expansion = (bottleneck, 4) if deep else (basic, 1)
        groups: list[list[nn.Module]] = []
        channels = 64
        for group, count in enumerate(repeats):
            groups.append([])
            for number in range(count):
                groups[-1].append(block(channels, 64 << group, 2 if group > 0 and number == 0 else 1))
                channels = expansion * (64 << group)
        self.conv1 = nn.Sequential(ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, stride=2, padding=1))
        self.conv2, self.conv3, self.conv4 = (nn.Sequential(*blocks) for blocks in groups[:3])
        self.conv5 = nn.Sequential(*groups[3], nn.AdaptiveAvgPool2d(1))
        self.fc = nn.Linear(channels, 1000) if classifier else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv5(self.conv4(self.conv3(self.conv2(self.conv1(x)))))
        return x if self.fc is None else F.softmax(self.fc(torch.flatten(x, 1)), 1)


def build(
    *, image_size: int = 224, batch_size: int = 1, classifier: bool = False
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The network and example inputs: an image batch of (batch_size, 3, image_size, image_size)."""
    network = ResNet((3, 4, 6, 3), deep=True, classifier=classifier)
    return network, (torch.randn(batch_size, 3, image_size, image_size),)
