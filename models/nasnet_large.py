"""NASNet-A 6 @ 4032 (Zoph et al., arXiv:1707.07012, figure 4 and appendix A) as the IOS benchmark wires it.

The benchmark's network is the one that the scheduling papers count: 374 operators, 576 edges (LIOS table IV). Where it
is not the paper's:

- a normal cell does not concatenate its left input, except behind a reduction: 3360 channels come out, not 4032;
- in the cell behind a reduction the first combination takes the right input twice;
- the left input of that cell is the one of the reduction, a cell earlier than in the paper;
- the fourth combination of stem 0 adds the first combination, not the second;
- a reduction cell computes its second combination twice: by itself for the fourth, and where it is concatenated.

Left inputs of twice the size are halved by two plain 1x1 convolutions with stride 2, side by side; the paper pools, and
shifts the second by a pixel. Drop-path and the auxiliary classifier belong to training and are left out.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

_EPS = 0.001


class ConvNorm(nn.Module):
    """The first convolution: 3x3 with stride 2, no padding, and batch norm."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(filters, eps=_EPS)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class ReluConv(nn.Module):
    """ReLU, 1x1 convolution, batch norm: gives an input the cell's number of channels, with stride 2 half its size."""

    def __init__(self, channels: int, filters: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 1, stride, bias=False)
        self.norm = nn.BatchNorm2d(filters, eps=_EPS)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(F.relu(x)))


class Halved(nn.Module):
    """Half the size by two strided convolutions of half the channels each."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.first = ReluConv(channels, filters // 2, stride=2)
        self.second = ReluConv(channels, filters - filters // 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.first(x), self.second(x)], 1)


class ReluSepConv(nn.Module):
    """ReLU, depthwise convolution, pointwise convolution, batch norm."""

    def __init__(self, channels: int, filters: int, kernel_size: int, stride: int = 1) -> None:
        super().__init__()
        padding = kernel_size // 2
        self.depthwise = nn.Conv2d(channels, channels, kernel_size, stride, padding, groups=channels, bias=False)
        self.pointwise = nn.Conv2d(channels, filters, 1, bias=False)
        self.norm = nn.BatchNorm2d(filters, eps=_EPS)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.pointwise(self.depthwise(F.relu(x))))


class Separable(nn.Sequential):
    """A separable convolution of NASNet: always applied twice, the first time with the stride (appendix A.4)."""

    def __init__(self, channels: int, filters: int, kernel_size: int, stride: int = 1) -> None:
        super().__init__(
            ReluSepConv(channels, filters, kernel_size, stride), ReluSepConv(filters, filters, kernel_size)
        )


class Sum(nn.Module):
    """A sum that is an operator of its own; sums within a cell belong to the concatenation that reads them."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


def _average(x: Tensor, stride: int = 1) -> Tensor:
    return F.avg_pool2d(x, 3, stride, padding=1, count_include_pad=False)


def _most(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, stride=2, padding=1)


class NormalCell(nn.Module):
    """Normal cell (figure 4 left) of two values; ``halved``: the left one has twice the size."""

    def __init__(self, left: int, right: int, filters: int, *, halved: bool) -> None:
        super().__init__()
        self.halved = halved
        self.left = Halved(left, filters) if halved else ReluConv(left, filters)
        self.right = ReluConv(right, filters)
        self.first_5x5 = Separable(filters, filters, 5)
        self.first_3x3 = Separable(filters, filters, 3)
        self.second_5x5 = Separable(filters, filters, 5)
        self.second_3x3 = Separable(filters, filters, 3)
        self.fifth_3x3 = Separable(filters, filters, 3)
        self.channels = (6 if halved else 5) * filters

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        left, right = self.left(left), self.right(right)
        combinations = [
            self.first_5x5(right) + self.first_3x3(right if self.halved else left),
            self.second_5x5(left) + self.second_3x3(left),
            _average(right) + left,
            _average(left) + _average(left),
            self.fifth_3x3(right) + right,
        ]
        return torch.cat([left, *combinations] if self.halved else combinations, 1)


class _Reduction(nn.Module):
    """What the reductions share (figure 4 right): their combinations, of values ``a`` and ``b``, at half the size."""

    def __init__(self, a: int, b: int, filters: int) -> None:
        super().__init__()
        self.first_5x5 = Separable(a, filters, 5, stride=2)
        self.first_7x7 = Separable(b, filters, 7, stride=2)
        self.first = Sum()
        self.second_7x7 = Separable(b, filters, 7, stride=2)
        self.second = Sum()
        self.third_5x5 = Separable(b, filters, 5, stride=2)
        self.fifth_3x3 = Separable(filters, filters, 3)
        self.channels = 4 * filters


class ReductionCell(_Reduction):
    """Reduction cell: halves the size."""

    def __init__(self, left: int, right: int, filters: int) -> None:
        super().__init__(filters, filters, filters)
        self.left = ReluConv(left, filters)
        self.right = ReluConv(right, filters)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        left, right = self.left(left), self.right(right)
        first = self.first(self.first_5x5(right), self.first_7x7(left))
        most, separable = _most(right), self.second_7x7(left)
        return torch.cat(
            [
                most + separable,
                _average(right, stride=2) + self.third_5x5(left),
                _average(first) + self.second(most, separable),
                self.fifth_3x3(first) + _most(right),
            ],
            1,
        )


class Stem0(_Reduction):
    """The first reduction: of the first convolution alone."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__(filters, channels, filters)
        self.right = ReluConv(channels, filters)

    def forward(self, x: Tensor) -> Tensor:
        right = self.right(x)
        first = self.first(self.first_5x5(right), self.first_7x7(x))
        second = self.second(_most(right), self.second_7x7(x))
        return torch.cat(
            [
                second,
                _average(right, stride=2) + self.third_5x5(x),
                _average(first) + first,
                self.fifth_3x3(first) + _most(right),
            ],
            1,
        )


class Stem1(_Reduction):
    """The second reduction: of stem 0 and the first convolution, which has twice its size."""

    def __init__(self, channels: int, stem0: int, filters: int) -> None:
        super().__init__(filters, filters, filters)
        self.left = Halved(channels, filters)
        self.right = ReluConv(stem0, filters)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        left, right = self.left(left), self.right(right)
        first = self.first(self.first_5x5(right), self.first_7x7(left))
        second = self.second(_most(right), self.second_7x7(left))
        return torch.cat(
            [
                second,
                _average(right, stride=2) + self.third_5x5(left),
                _average(first) + second,
                self.fifth_3x3(first) + _most(right),
            ],
            1,
        )


class NASNet(nn.Module):
    """First convolution, two stems, three times ``repeats`` normal cells with reductions between, and a global pool.

    Args:
        stem: filters of the first convolution.
        filters: filters of the first normal cells; a reduction doubles them, the stems have a quarter and half.
        repeats: normal cells between reductions, N in the paper.
        classifier: whether a fully connected layer and a softmax follow.
    """

    hios_units = "relu-sepconv"

    def __init__(self, *, stem: int, filters: int, repeats: int, classifier: bool) -> None:
        super().__init__()
        self.conv0 = ConvNorm(3, stem)
        self.stem0 = Stem0(stem, filters // 4)
        self.stem1 = Stem1(stem, self.stem0.channels, filters // 2)
        self.cells = nn.ModuleList()
        before, channels = self.stem0.channels, self.stem1.channels
        for group in range(3):
            if group > 0:
                # The left input stays that of the reduction: see the deviations above.
                self.cells.append(reduction := ReductionCell(before, channels, filters << group))
                channels = reduction.channels
            for repeat in range(repeats):
                cell = NormalCell(before, channels, filters << group, halved=repeat == 0)
                self.cells.append(cell)
                before, channels = channels, cell.channels
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, 1000) if classifier else None
        cells = (f"cells.{number}" for number in range(len(self.cells)))
        self.hios_blocks = ("conv0", "stem0", "stem1", *cells, "relu", "pool")

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv0(x)
        before = self.stem0(x)
        x = self.stem1(x, before)
        for cell in self.cells:
            if isinstance(cell, ReductionCell):
                x = cell(before, x)
            else:
                before, x = x, cell(before, x)
        x = self.pool(self.relu(x))
        return x if self.fc is None else F.softmax(self.fc(torch.flatten(x, 1)), 1)


def build(
    *, image_size: int = 331, batch_size: int = 1, classifier: bool = False
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The network and example inputs: an image batch of (batch_size, 3, image_size, image_size)."""
    network = NASNet(stem=96, filters=168, repeats=6, classifier=classifier)
    return network, (torch.randn(batch_size, 3, image_size, image_size),)
