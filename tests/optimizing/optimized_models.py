"""Models that hios.optimize takes in different ways, and a machine that pretends to be idle or busy."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import hios
from hios.optimizing import autotune, optimize, race
from hios.optimizing.module import Guards, OptimizedModule, TracedRunner
from hios.optimizing.report import Report
from hios.optimizing.tracing import ModelInputs, ModelOutputs
from tests.runtime.small import Branches

#: The ways that need no other runtime, which take long to prepare.
OWN = ("eager", "schedule")
DEVICES = min(2, len(os.sched_getaffinity(0)))


def image(seed: int, batch: int = 1) -> Tensor:
    """A random input of `Branches`."""
    return torch.randn(batch, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def require_equal(fast: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor) -> None:
    """Check that what is optimized computes what the model does, within rounding."""
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)


def scheduled(
    model: nn.Module, inputs: Any, cache: Path | bool | None, *more: Any, devices: int = DEVICES
) -> OptimizedModule:
    """A model that the engine runs, whatever is faster."""
    return hios.optimize(
        model, inputs, *more, algorithm="hios-lp", devices=devices, budget_s=0.1, cache=cache, timeout_s=300.0
    )


def as_optimized(
    model: nn.Module, args: tuple[Any, ...], way: Callable[[list[Tensor]], list[Tensor]], limits: Any = ()
) -> Any:
    """An optimized module that runs a way of the test."""
    with torch.no_grad():
        outputs = ModelOutputs(model(*args), args)
    outputs.forget()
    runner = TracedRunner(ModelInputs(args, {}, model), outputs, Guards(model), way, lambda: None, limits)
    return OptimizedModule(model, Report(type(model).__name__, "a way", "so"), runner)


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
        """Sums of two parts of the columns; the operator does not check where they end."""
        rows = self.body(x).flatten(1).T
        return torch.segment_reduce(rows, "sum", lengths=torch.tensor([3, len(rows) - 3]))


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


class Acting(nn.Module):
    """A network that does something else when it runs.

    Args:
        action: what it does, with the network and its input.
        outputs: what it returns, of the network, its input and what the network computes; only that if left out.
    """

    def __init__(
        self, action: Callable[[Any, Tensor], object] | None = None, outputs: Callable[..., Any] | None = None
    ) -> None:
        super().__init__()
        self.body = Branches()
        self.register_buffer("position", torch.zeros((), dtype=torch.long))
        self.register_buffer("kept", torch.ones(6))
        self.plain = torch.ones(2)
        self.calls = 0
        self.seen: list[int] = []
        self.held: dict[str, list[int]] = {"a": []}
        self._action, self._outputs = action, outputs

    def forward(self, x: Tensor) -> Any:
        """Act, then compute."""
        if self._action is not None:
            self._action(self, x)
        y = self.body(x)
        return y if self._outputs is None else self._outputs(self, x, y)


class _Other:
    """Other work as a test wants it."""

    taken = 0.0

    def __init__(self, cores: Collection[int], children: Collection[int] = ()) -> None:
        pass

    def share(self, children: Collection[int] = ()) -> float:
        """What the test said last."""
        return _Other.taken


def pretend_busy(patch: pytest.MonkeyPatch, share: float = 0.0) -> None:
    """Have hios.optimize see other work that takes this share of the cores' time, whatever there is."""
    patch.setattr(_Other, "taken", share)
    patch.setattr(autotune, "busy_share", lambda cores: share)
    for module in (autotune, optimize, race):
        patch.setattr(module, "OtherWork", _Other)
