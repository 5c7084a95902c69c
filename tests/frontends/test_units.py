"""Scheduling units by name: what each kind of units makes one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hios.core.graph import UNITS as NAMES
from hios.files import artifacts
from hios.frontends.extract import extract_program
from hios.frontends.extraction_check import run_graph
from hios.frontends.program import export
from hios.frontends.units import DEFAULT_UNITS, UNITS
from tests.frontends.small_networks import Model, batch_norm


class Separable(nn.Module):
    """ReLU, depthwise and pointwise convolution, batch norm, of the sum of its inputs with weights."""

    def __init__(self, **depthwise: Any) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(4, 4, 3, **{"padding": 1, "groups": 4, "bias": False, **depthwise})
        self.pointwise = nn.Conv2d(4, 4, 1, bias=False)
        self.norm = batch_norm(4)
        self.weight = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Sum, then convolve."""
        scales = torch.sigmoid(self.weight)
        x = inputs[0]
        if len(inputs) > 1:
            x = sum((value * scales[number] for number, value in enumerate(inputs[1:], 1)), inputs[0] * scales[0])
        return self.norm(self.pointwise(self.depthwise(F.relu(x))))


def _parts() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "conv": nn.Conv2d(4, 4, 3, padding=1),
        "norm": batch_norm(4),
        "separable": Separable(),
        "grouped": Separable(groups=2),
        "relu_conv": Model(
            lambda m, x: m.norm(m.conv(F.relu(x))), conv=nn.Conv2d(4, 4, 1, bias=False), norm=batch_norm(4)
        ),
        "sum": Model(lambda m, a, b: a + b),  # an operator of its own
        "average": Model(lambda m, a, b, c: (a + b + c) / 3),
        "linear": nn.Linear(9, 5),
    }


def _three(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.tanh(x), torch.sigmoid(x), F.max_pool2d(x, 1)


THREE = ["tanh", "sigmoid", "max_pool2d"]


@pytest.mark.parametrize(
    ("units", "function", "types"),
    [
        ("relu-sepconv", lambda m, x: m.separable(x), ["relu-sepconv"]),
        ("conv-relu", lambda m, x: m.separable(x), ["relu", "conv2d", "conv2d"]),
        ("operator", lambda m, x: m.separable(x), ["relu", "conv2d", "conv2d"]),
        ("relu-sepconv", lambda m, x: m.grouped(x), ["relu-conv2d", "conv2d"]),
        ("relu-sepconv", lambda m, x: m.relu_conv(x), ["relu-conv2d"]),
        ("relu-sepconv", lambda m, x: m.separable(m.separable(x)), ["relu-sepconv", "relu-sepconv"]),
        ("relu-sepconv", lambda m, x: F.relu(m.relu_conv(x)), ["relu", "conv2d-relu"]),
        ("relu-sepconv", lambda m, x: m.separable(*_three(x)), [*THREE, "relu-sepconv"]),
        ("conv-relu", lambda m, x: F.relu(m.norm(m.conv(x))), ["conv2d-relu"]),
        ("operator", lambda m, x: F.relu(m.norm(m.conv(x))), ["conv2d", "relu"]),
        ("conv-relu", lambda m, x: F.relu6(m.norm(m.conv(x))), ["conv2d-clip"]),
        ("conv-relu", lambda m, x: F.leaky_relu(m.conv(x)), ["conv2d-leakyrelu"]),
        ("conv-relu", lambda m, x: F.gelu(m.linear(x)), ["linear-gelu"]),
        ("operator", lambda m, x: m.linear(x), ["matmul", "add"]),
        # a product of two values is no linear layer
        (
            "conv-relu",
            lambda m, x: (lambda y: y @ y.T + y[:, :8])(x.reshape(8, -1)),
            ["reshape", "permute_dims", "matmul", "strided_slice", "add"],
        ),
        ("relu-sepconv", lambda m, x: m.relu_conv(m.conv(x) + torch.tanh(x)), ["conv2d", "tanh", "relu-conv2d"]),
        (
            "relu-sepconv",
            lambda m, x: m.relu_conv(m.sum(m.conv(x), torch.tanh(x))),
            ["conv2d", "tanh", "add", "relu-conv2d"],
        ),
        ("relu-sepconv", lambda m, x: torch.cat([torch.tanh(x) + x, x], 1), ["tanh", "concat"]),
        ("relu-sepconv", lambda m, x: F.relu(m.average(*_three(x))), [*THREE, "add", "relu"]),
        ("conv-relu", lambda m, x: m.average(*_three(x)), [*THREE, "add", "add", "divide"]),
        (
            "relu-sepconv",
            lambda m, x: (lambda y: m.relu_conv(y) + m.separable(y))(torch.tanh(x) + x),
            ["tanh", "add", "relu-conv2d", "relu-sepconv", "add"],
        ),
        (
            "relu-sepconv",
            lambda m, x: (lambda y: (m.relu_conv(y), y))(torch.tanh(x) + x),
            ["tanh", "add", "relu-conv2d"],
        ),
        # a value plus a bias of its own is no sum of inputs
        ("relu-sepconv", lambda m, x: m.relu_conv(torch.tanh(x) + m.linear.bias[:1]), ["tanh", "add", "relu-conv2d"]),
    ],
)
def test_units(units: str, function: Callable[..., Any], types: list[str]) -> None:
    """Operators of a small module by kind of units, and that their graph gives what the module gives."""
    module = Model(function, **_parts()).eval()
    x = torch.randn(2, 4, 9, 9, generator=torch.Generator().manual_seed(0))
    graph, tensors = extract_program(export(module, (x,)), "test", units=units)
    assert [operator.type for operator in graph.operators] == types
    assert graph.units == units
    with torch.inference_mode():
        expected = module(x)
    expected = list(expected) if isinstance(expected, tuple) else [expected]
    torch.testing.assert_close(run_graph(graph, tensors, (x,)), expected, rtol=1e-5, atol=1e-5)


def test_folded_sums_have_an_edge_for_each_term() -> None:
    """An operator that adds up its inputs takes each of them by an edge, one that it adds twice by two."""
    module = Model(lambda m, x: (lambda three: m.separable(three[0], three[1], three[0]))(_three(x)), **_parts()).eval()
    graph, _ = extract_program(export(module, (torch.randn(2, 4, 9, 9),)), "test", units="relu-sepconv")
    target = graph.operators[-1].id
    assert sorted((edge.source, edge.target) for edge in graph.edges) == sorted(
        (source, target) for source in ("tanh", "tanh", "sigmoid")
    )


def test_names_of_units() -> None:
    """config.yaml, the command line and the patterns know the same units."""
    model = artifacts.schema("config")["properties"]["models"]["additionalProperties"]
    assert tuple(model["properties"]["units"]["enum"]) == tuple(UNITS) == NAMES
    assert DEFAULT_UNITS in UNITS
