"""Regions under autocast or without gradients within a model: their operators join those of the model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hios.errors import UnsupportedError
from hios.frontends import program as programs
from hios.frontends.extract import extract_program
from hios.frontends.extraction_check import run_graph


class Regions(nn.Module):
    """A model that switches autocast off for a part of it, as linear attention does for its sums.

    Args:
        enabled: whether it switches autocast on instead.
    """

    def __init__(self, enabled: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self._enabled = enabled

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Two values of the region, one of which is an output."""
        x = self.first(x)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._enabled):
            total = x.sum(-1, keepdim=True)
            scaled = self.second(x) / (total.abs() + 1)
            with torch.no_grad():
                scaled = scaled * 2
        return torch.relu(scaled), total


def test_regions_join_the_model() -> None:
    """The program has no regions any more, and its graph computes what the model does."""
    model, x = Regions().eval(), torch.randn(2, 4)
    program = programs.export(model, (x,))
    assert not [node for node in program.graph.nodes if "wrap_with" in str(node.target) or node.op == "get_attr"]
    graph, weights = extract_program(program, "net")
    assert set(weights) == {"first.weight", "first.bias", "second.weight", "second.bias"}
    with torch.no_grad():
        torch.testing.assert_close(run_graph(graph, weights, (x,)), list(model(x)))


def test_programs_with_regions_are_saved(tmp_path: object) -> None:
    """A program without its regions can be written and read again."""
    model, x = Regions().eval(), torch.randn(2, 4)
    path = f"{tmp_path}/net.pt2"
    programs.save(programs.export(model, (x,)), path)
    with torch.no_grad():
        torch.testing.assert_close(programs.load(path).module()(x), model(x))


def test_autocast_that_is_on_is_refused() -> None:
    """What would run in another precision is refused, with the place in the model."""
    with pytest.raises(UnsupportedError, match=r"where autocast is on; allowed: torch\.autocast with enabled=False"):
        programs.export(Regions(enabled=True).eval(), (torch.randn(2, 4),))
