"""A small network with branches, and engines that run it."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from hios.core.schedule import StagedPlan
from hios.machine.description import usable_cores
from hios.platforms.cpu.engine import Engine, Task
from tests.frontends.small_networks import Network, extracted_once
from tests.runtime.schedules import one_by_one


class Branches(nn.Module):
    """Two branches of convolutions that are joined."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.left = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.right = nn.Conv2d(8, 8, 5, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        """Join both branches."""
        x = self.stem(x).relu()
        return torch.cat([self.left(x), self.right(x).relu()], 1)


class Amplifying(nn.Module):
    """Differences of 1e-6 in the sums of a product are a thousand times as large in the output."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(512, 256)

    def forward(self, x: Tensor) -> Tensor:
        """Scale and fold."""
        return torch.sin(1e3 * self.linear(x))


@functools.cache
def branches() -> Network:
    """The network with its graph."""
    torch.manual_seed(0)
    return extracted_once("branches", Branches(), (torch.randn(1, 3, 16, 16),))


def image(seed: int) -> tuple[Tensor]:
    """Random inputs of the network."""
    return (torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(seed)),)


def require_right(output: Tensor, x: Tensor) -> None:
    """An output is what the network itself makes of an image."""
    with torch.no_grad():
        expected = branches().module(x)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)


def require_right_run(engine: Engine, name: str, seed: int) -> None:
    """A task makes of a random image what the network itself does."""
    (output,) = engine.run(name, image(seed))
    require_right(output, *image(seed))


def alternating() -> StagedPlan:
    """Operators one by one, on two devices in turns."""
    order = branches().graph.order
    return StagedPlan(tuple(tuple(((operator,),) for operator in order[device::2]) for device in (0, 1)))


def sequential() -> StagedPlan:
    """Operators one by one on one device."""
    return one_by_one(branches().graph)


def small_engine(timeout_s: float = 120.0) -> Engine:
    """An engine with two workers that runs the network one by one, on one of them or on both."""
    network, cores = branches(), usable_cores()
    tasks = {"first": Task(sequential()), "second": Task(sequential(), (1,)), "both": Task(alternating())}
    return Engine(network.graph, network.tensors, tasks, [[cores[0]], [cores[-1]]], timeout_s)
