"""RandWire (Xie et al., arXiv:1904.01569): a network wired at random, by Watts and Strogatz, in the regular regime.

Table 2, right: a convolution, stages of 16, 32, 32 and 32 nodes, and 154 channels in the first stage, which double at
each further one. The seed fixes the wiring. The default seed is one of those that give the 120 operators and 260 edges
that LIOS table IV counts; the wiring itself is not the published one, which depends on a library's random numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hios.study.random_graphs import Wiring, watts_strogatz


class Node(nn.Module):
    """Sum of the inputs weighted by sigmoids of learned weights, ReLU, separable convolution, batch norm (section 3.2).

    A single input is taken as it is.
    """

    def __init__(self, inputs: int, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(inputs)) if inputs > 1 else None
        self.depthwise = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False)
        self.pointwise = nn.Conv2d(channels, filters, 1, bias=False)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, *inputs: Tensor) -> Tensor:
        x = inputs[0]
        if self.weights is not None:
            shares = torch.sigmoid(self.weights)
            x = x * shares[0]
            for number, other in enumerate(inputs[1:], 1):
                x = x + other * shares[number]
        return self.norm(self.pointwise(self.depthwise(F.relu(x))))


class Stage(nn.Module):
    """Nodes wired at random; those without predecessor halve the input, those without successor are averaged."""

    def __init__(self, wiring: Wiring, channels: int, filters: int) -> None:
        super().__init__()
        self.wiring = wiring
        self.nodes = nn.ModuleList(
            Node(len(row), filters if row else channels, filters, 1 if row else 2) for row in wiring
        )
        followed = {source for row in wiring for source in row}
        self.sinks = [node for node in range(len(wiring)) if node not in followed]

    def forward(self, x: Tensor) -> Tensor:
        values: list[Tensor] = []
        for row, node in zip(self.wiring, self.nodes, strict=True):
            values.append(node(*[values[source] for source in row] or [x]))
        total = values[self.sinks[0]]
        for sink in self.sinks[1:]:
            total = total + values[sink]
        return total / len(self.sinks) if len(self.sinks) > 1 else total


class RandWire(nn.Module):
    """A convolution with half the channels, the stages, a 1x1 convolution to 1280 channels, and a global pool.

    Nodes begin with ReLU, so the first convolution has none, and one follows the last stage.

    Args:
        wirings: wiring of each stage.
        channels: channels of the first stage, C in table 2; they double from stage to stage.
        classifier: whether a fully connected layer and a softmax follow.
    """

    hios_units = "relu-sepconv"

    def __init__(self, wirings: Sequence[Wiring], channels: int, classifier: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, channels // 2, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels // 2)
        widths = [channels // 2, *(channels << number for number in range(len(wirings)))]
        self.stages = nn.ModuleList(
            Stage(wiring, *pair) for wiring, pair in zip(wirings, itertools.pairwise(widths), strict=True)
        )
        self.conv2 = nn.Conv2d(widths[-1], 1280, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(1280)
        self.fc = nn.Linear(1280, 1000) if classifier else None
        self.hios_blocks = tuple(f"stages.{number}" for number in range(len(wirings)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(self.conv1(x))
        for stage in self.stages:
            x = stage(x)
        x = F.adaptive_avg_pool2d(F.relu(self.norm2(self.conv2(F.relu(x)))), 1)
        return x if self.fc is None else F.softmax(self.fc(torch.flatten(x, 1)), 1)


def build(
    *,
    image_size: int = 224,
    batch_size: int = 1,
    classifier: bool = False,
    channels: int = 154,
    nodes: int = 32,
    k: int = 4,
    p: float = 0.75,
    graph_seed: int = 310,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The network and example inputs: an image batch of (batch_size, 3, image_size, image_size).

    The first stage has half of ``nodes``. ``k`` and ``p`` are the neighbors and the rewiring probability of Watts and
    Strogatz; the stages take the seeds ``graph_seed``, ``graph_seed + 1`` and so on.
    """
    sizes = (nodes // 2, nodes, nodes, nodes)
    wirings = [watts_strogatz(size, k, p, graph_seed + number) for number, size in enumerate(sizes)]
    return RandWire(wirings, channels, classifier), (torch.randn(batch_size, 3, image_size, image_size),)
