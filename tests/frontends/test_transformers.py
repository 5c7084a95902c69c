"""BERT and T5: their extracted graphs compute what the networks do, with the operations that torch counts."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hios.frontends.export import build_model
from tests.frontends.small_networks import Network, extracted
from tests.refusals import refused

pytest.importorskip("transformers", reason="needs the extra transformers")

SMALL = {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 120}


def _network(name: str, **options: Any) -> Network:
    return extracted(*build_model(name, {**SMALL, **options}, seed=0))


@pytest.mark.parametrize("name", ["bert", "t5"])
@pytest.mark.parametrize(
    ("batch_size", "sequence_length"),
    [(1, 8), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in [(1, 37), (4, 8), (4, 37)])],
)
def test_graph_equals_network(name: str, batch_size: int, sequence_length: int) -> None:
    """At two lengths and batch sizes, on ids of the whole vocabulary, every output is the network's."""
    network = _network(name, batch_size=batch_size, sequence_length=sequence_length)
    assert all(ids.shape == (batch_size, sequence_length) and ids.max() > 1 for ids in network.inputs)
    outputs, expected = network.run(), network.eager()
    assert len(outputs) == len(expected) == (2 if name == "bert" else 1)
    for ours, theirs in zip(outputs, expected, strict=True):
        assert theirs.std() > 0.1
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_flops_equal_torch_counter(name: str) -> None:
    """The matrix products have the operations that torch's own counter finds in the network."""
    network = _network(name, batch_size=2, sequence_length=9)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        network.module(*network.inputs)
    products = [operator for operator in network.graph.operators if operator.type == "matmul"]
    assert sum(operator.flops or 0 for operator in products) == counter.get_total_flops() > 1e5


def test_outputs_depend_on_all_inputs() -> None:
    """Another token anywhere, in the text or in its translation, changes T5's states at the last position."""
    module, (text, translation) = build_model("t5", {**SMALL, "sequence_length": 6}, seed=0)
    with torch.inference_mode():
        before = module(text, translation)[0, -1]
        for place in range(6):
            other = text.clone()
            other[0, place] += 1 if other[0, place] == 0 else -1
            assert not torch.equal(module(other, translation)[0, -1], before)
            assert not torch.equal(module(text, other)[0, -1], before)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without transformers one line says which extra to install."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refused("model bert: ", "it needs the package transformers; pip install"):
        build_model("bert", {}, seed=0)
