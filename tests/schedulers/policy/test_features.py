"""Features of operators."""

from __future__ import annotations

from typing import Any

import pytest

from hios import Graph, Operator
from hios.schedulers.policy.network import ACTIVATIONS, FEATURES, POOLS, TYPES, features
from tests.convolution_graphs import Conv, conv_graph
from tests.platforms.model.gpu_graphs import one_operator


def _parts(row: list[float]) -> dict[str, Any]:
    """A row of features by their names in the paper."""
    sizes = {
        "type": len(TYPES),
        "input": 4,
        "output": 4,
        "stride": 2,
        "kernel": 2,
        "padding": 2,
        "groups": 1,
        "activation": len(ACTIVATIONS),
        "pool": len(POOLS),
    }
    assert sum(sizes.values()) == FEATURES == len(row)
    parts: dict[str, Any] = {}
    for name, size in sizes.items():
        parts[name], row = row[:size], row[size:]
    for name, names in (("type", TYPES), ("activation", ACTIVATIONS), ("pool", POOLS)):
        parts[name] = [word for word, value in zip(names, parts[name], strict=True) if value]
    return parts


def test_convolution() -> None:
    """(i) to (viii) of a convolution with ReLU, sizes as logarithms."""
    graph = conv_graph({"a": Conv((1, 3), (0, 1), stride=(2, 1), filters=16)})
    assert _parts(features(graph)[0]) == {
        "type": ["conv2d"],
        "input": [0.0, 1.0, 3.0, 3.0],
        "output": [0.0, 4.0, 2.0, 3.0],
        "stride": [1.0, 0.0],
        "kernel": [0.0, pytest.approx(1.585, abs=1e-3)],
        "padding": [0.0, 1.0],
        "groups": [0.0],
        "activation": ["relu"],
        "pool": [],
    }


@pytest.mark.parametrize(("function", "kind"), [("max_pool2d", "max"), ("avg_pool2d", "avg")])
def test_pooling(function: str, kind: str) -> None:
    """(ix) and the window of a pooling; it has the identity for activation."""
    attributes = {"pool_size": [4, 4], "strides": [2, 2], "padding": [1, 1, 1, 1]}
    graph = one_operator(f"relax.nn.{function}", [[1, 8, 16, 16]], [1, 8, 8, 8], attributes=attributes)
    parts = _parts(features(graph)[0])
    assert (parts["pool"], parts["kernel"], parts["stride"], parts["padding"]) == ([kind], [2, 2], [1, 1], [1, 1])
    assert parts["activation"] == ["identity"]


def test_global_pooling_and_groups() -> None:
    """A mean is a global pooling; the groups of a convolution count."""
    assert _parts(features(one_operator("relax.mean", [[1, 8, 4, 4]], [1, 8]))[0])["pool"] == ["global avg"]
    graph = conv_graph({"a": Conv(changes={"groups": 8}, activation=("relax.tanh",))})
    parts = _parts(features(graph)[0])
    assert parts["groups"] == [3.0]
    assert parts["activation"] == ["tanh"]


def test_operators_of_which_only_the_type_is_known() -> None:
    """Synthetic graphs have types; all sizes are 0."""
    graph = Graph("two", (Operator("a", "conv2d-relu"), Operator("b", "task")), ())
    one, other = map(_parts, features(graph))
    assert (one["type"], one["activation"]) == (["conv2d"], ["relu"])
    assert (other["type"], other["activation"]) == (["other"], ["identity"])
    assert one["input"] == other["kernel"] + other["stride"] == [0.0] * 4
