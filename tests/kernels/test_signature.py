"""Signatures: which operators are measured together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from hios.kernels.executable import signatures
from tests.frontends.small_networks import Model, extracted, network


def _same(function: Callable[..., Any], *sizes: tuple[int, ...], **parts: nn.Module) -> bool:
    """Whether the last two operators of a module have the same signature."""
    inputs = tuple(torch.zeros(size) for size in sizes)
    graph = extracted(Model(function, **parts), inputs).graph
    hashes = signatures(graph)
    first, second = graph.operators[-2:]
    return hashes[first.id] == hashes[second.id]


@pytest.mark.parametrize(
    ("same", "function", "sizes"),
    [
        (True, lambda m, x, y: (F.relu(x), F.relu(y)), [(2, 3), (2, 3)]),
        (False, lambda m, x, y: (F.relu(x), F.relu(y)), [(2, 3), (3, 2)]),
        (False, lambda m, x, y: (F.relu(x), torch.sigmoid(y)), [(2, 3), (2, 3)]),
        (False, lambda m, x, y: (x + x, x + y), [(2, 3), (2, 3)]),
        (True, lambda m, x, y: (x + y, y + x), [(2, 3), (2, 3)]),
        (True, lambda m, x, y: (x + x, y + y), [(2, 3), (2, 3)]),
        (True, lambda m, x, y: (F.relu(x), F.relu(F.relu(y)))[1:], [(2, 3), (2, 3)]),
        (False, lambda m, x: (x + 1.0, x + 2.0), [(2, 3)]),
        (False, lambda m, x: (torch.cat([x, x], 0), torch.cat([x, x], 1)), [(2, 2)]),
    ],
)
def test_small_signatures(same: bool, function: Callable[..., Any], sizes: list[tuple[int, ...]]) -> None:
    """Equal calls on equal shapes are the same, whatever the values; x + x reads less than x + y."""
    assert _same(function, *sizes) is same


def test_convolutions() -> None:
    """Convolutions with other weights of the same shapes cost the same; other strides, paddings or filters do not."""

    def both(m: Any, x: torch.Tensor) -> Any:
        return m.one(x), m.two(x)

    def pair(**other: Any) -> bool:
        options = {"kernel_size": 3, "stride": 1, "padding": 1, "out_channels": 4, "bias": True}
        one, two = (nn.Conv2d(in_channels=4, **{**options, **change}) for change in ({}, other))
        return _same(both, (1, 4, 9, 9), one=one, two=two)

    assert pair()
    for other in (
        {"stride": 2},
        {"padding": 0},
        {"out_channels": 8},
        {"bias": False},
        {"kernel_size": 1},
        {"groups": 2},
    ):
        assert not pair(**other), other


def test_equal_modules_of_squeezenet() -> None:
    """Fire modules 6 and 7 have the same squeeze convolution up to channels, their expansions are the same."""
    graph = network("squeezenet", 64).graph
    hashes = signatures(graph)
    assert hashes["fire6.expand3x3"] == hashes["fire7.expand3x3"]
    assert hashes["fire6.expand3x3"] != hashes["fire6.expand1x1"]
    assert hashes["fire6.squeeze"] != hashes["fire7.squeeze"]
    groups: dict[str, list[str]] = defaultdict(list)
    for operator, signature in hashes.items():
        groups[signature].append(operator)
    assert len(groups) < len(graph.operators)
