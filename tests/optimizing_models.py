"""Models that hios.optimize takes in different ways."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from tests.runtime.small import Branches


class Pair(NamedTuple):
    """Two outputs by name."""

    joined: Tensor
    mean: Tensor


class Structured(nn.Module):
    """A network whose inputs and outputs are nested, with values that are no tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Branches()

    def forward(self, images: dict[str, Tensor], scale: float, *, offset: Tensor | None = None) -> dict[str, object]:
        """Run both images; one output is an input, one stands twice, one is a number."""
        left, right = self.body(images["left"]) * scale, self.body(images["right"])
        if offset is not None:
            left = left + offset
        return {"pair": Pair(left + right, right.mean((2, 3))), "given": images["left"], "again": [left, left], "n": 3}


class Unsupported(nn.Module):
    """A network with an operator that the graph cannot have."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Branches()

    def forward(self, x: Tensor) -> Tensor:
        """Singular values of every channel."""
        return torch.linalg.svdvals(self.body(x))


class Broken(nn.Module):
    """A network in two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Branches(), nn.Conv2d(16, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Run one part, leave the graph, run the other."""
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)
