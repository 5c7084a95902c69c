"""Inception-v3 (Szegedy et al., arXiv:1512.00567) in the form that became its reference: five kinds of blocks."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class ConvRelu(nn.Module):
    """Convolution, batch norm and ReLU."""

    def __init__(
        self,
        channels: int,
        filters: int,
        kernel_size: int | tuple[int, int],
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size, stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(filters, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)))


def _average(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 3, stride=1, padding=1)


class BlockA(nn.Module):
    """Figure 5: two 3x3 convolutions stand for a 5x5 one."""

    def __init__(self, channels: int, pool_filters: int) -> None:
        super().__init__()
        self.branch1x1 = ConvRelu(channels, 64, 1)
        self.branch5x5_1 = ConvRelu(channels, 48, 1)
        self.branch5x5_2 = ConvRelu(48, 64, 5, padding=2)
        self.branch3x3_1 = ConvRelu(channels, 64, 1)
        self.branch3x3_2 = ConvRelu(64, 96, 3, padding=1)
        self.branch3x3_3 = ConvRelu(96, 96, 3, padding=1)
        self.branch_pool = ConvRelu(channels, pool_filters, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(
            [
                self.branch1x1(x),
                self.branch5x5_2(self.branch5x5_1(x)),
                self.branch3x3_3(self.branch3x3_2(self.branch3x3_1(x))),
                self.branch_pool(_average(x)),
            ],
            1,
        )


class BlockB(nn.Module):
    """Figure 10: halves the grid from 35x35 to 17x17."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch3x3 = ConvRelu(channels, 384, 3, stride=2)
        self.double3x3_1 = ConvRelu(channels, 64, 1)
        self.double3x3_2 = ConvRelu(64, 96, 3, padding=1)
        self.double3x3_3 = ConvRelu(96, 96, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        double = self.double3x3_3(self.double3x3_2(self.double3x3_1(x)))
        return torch.cat([self.branch3x3(x), double, F.max_pool2d(x, 3, stride=2)], 1)


class BlockC(nn.Module):
    """Figure 6: n x n convolutions as 1 x n and n x 1, here n = 7."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.branch1x1 = ConvRelu(channels, 192, 1)
        self.branch7x7_1 = ConvRelu(channels, filters, 1)
        self.branch7x7_2 = ConvRelu(filters, filters, (1, 7), padding=(0, 3))
        self.branch7x7_3 = ConvRelu(filters, 192, (7, 1), padding=(3, 0))
        self.double7x7_1 = ConvRelu(channels, filters, 1)
        self.double7x7_2 = ConvRelu(filters, filters, (7, 1), padding=(3, 0))
        self.double7x7_3 = ConvRelu(filters, filters, (1, 7), padding=(0, 3))
        self.double7x7_4 = ConvRelu(filters, filters, (7, 1), padding=(3, 0))
        self.double7x7_5 = ConvRelu(filters, 192, (1, 7), padding=(0, 3))
        self.branch_pool = ConvRelu(channels, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        double = self.double7x7_3(self.double7x7_2(self.double7x7_1(x)))
        return torch.cat(
            [
                self.branch1x1(x),
                self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x))),
                self.double7x7_5(self.double7x7_4(double)),
                self.branch_pool(_average(x)),
            ],
            1,
        )


class BlockD(nn.Module):
    """Halves the grid from 17x17 to 8x8."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch3x3_1 = ConvRelu(channels, 192, 1)
        self.branch3x3_2 = ConvRelu(192, 320, 3, stride=2)
        self.branch7x7_1 = ConvRelu(channels, 192, 1)
        self.branch7x7_2 = ConvRelu(192, 192, (1, 7), padding=(0, 3))
        self.branch7x7_3 = ConvRelu(192, 192, (7, 1), padding=(3, 0))
        self.branch7x7_4 = ConvRelu(192, 192, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        branch7x7 = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        return torch.cat(
            [self.branch3x3_2(self.branch3x3_1(x)), self.branch7x7_4(branch7x7), F.max_pool2d(x, 3, stride=2)], 1
        )


class BlockE(nn.Module):
    """Figure 7: expanded filter banks, with 1x3 and 3x1 convolutions of the same value side by side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch1x1 = ConvRelu(channels, 320, 1)
        self.branch3x3_1 = ConvRelu(channels, 384, 1)
        self.branch3x3_2a = ConvRelu(384, 384, (1, 3), padding=(0, 1))
        self.branch3x3_2b = ConvRelu(384, 384, (3, 1), padding=(1, 0))
        self.double3x3_1 = ConvRelu(channels, 448, 1)
        self.double3x3_2 = ConvRelu(448, 384, 3, padding=1)
        self.double3x3_3a = ConvRelu(384, 384, (1, 3), padding=(0, 1))
        self.double3x3_3b = ConvRelu(384, 384, (3, 1), padding=(1, 0))
        self.branch_pool = ConvRelu(channels, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        branch3x3 = self.branch3x3_1(x)
        double3x3 = self.double3x3_2(self.double3x3_1(x))
        return torch.cat(
            [
                self.branch1x1(x),
                self.branch3x3_2a(branch3x3),
                self.branch3x3_2b(branch3x3),
                self.double3x3_3a(double3x3),
                self.double3x3_3b(double3x3),
                self.branch_pool(_average(x)),
            ],
            1,
        )


class InceptionV3(nn.Module):
    """Table 1: a stem, then blocks A A A, B, C C C C, D, E E and global average pooling."""

    def __init__(self, classifier: bool) -> None:
        super().__init__()
        self.stem1 = ConvRelu(3, 32, 3, stride=2)
        self.stem2 = ConvRelu(32, 32, 3)
        self.stem3 = ConvRelu(32, 64, 3, padding=1)
        self.stem4 = ConvRelu(64, 80, 1)
        self.stem5 = ConvRelu(80, 192, 3)
        self.blocks = nn.ModuleDict(
            {
                "a1": BlockA(192, 32),
                "a2": BlockA(256, 64),
                "a3": BlockA(288, 64),
                "b": BlockB(288),
                "c1": BlockC(768, 128),
                "c2": BlockC(768, 160),
                "c3": BlockC(768, 160),
                "c4": BlockC(768, 192),
                "d": BlockD(768),
                "e1": BlockE(1280),
                "e2": BlockE(2048),
            }
        )
        self.fc = nn.Linear(2048, 1000) if classifier else None

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem3(self.stem2(self.stem1(x))), 3, stride=2)
        x = F.max_pool2d(self.stem5(self.stem4(x)), 3, stride=2)
        for block in self.blocks.values():
            x = block(x)
        x = F.adaptive_avg_pool2d(x, 1)
        return x if self.fc is None else F.softmax(self.fc(torch.flatten(x, 1)), 1)


def build(
    *, image_size: int = 299, batch_size: int = 1, classifier: bool = False
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The network and example inputs: an image batch of (batch_size, 3, image_size, image_size)."""
    return InceptionV3(classifier), (torch.randn(batch_size, 3, image_size, image_size),)
