"""Which graphs can be run."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hios import Graph
from hios.errors import ArtifactError, UnsupportedError
from hios.kernels.executable import require_executable
from tests.operators import CONVOLUTION, call

_SHAPES = {"inputs": [[1, 3]], "outputs": [[1, 3]]}
GRAPH: dict[str, Any] = {
    "name": "two",
    "operators": [
        {
            "id": "a",
            "type": "multiply",
            "calls": [call("multiply", {"input": "x"}, {"weight": "w"}), call("nn.relu", {"call": 0})],
            "shapes": _SHAPES,
            "dtype": "float32",
        },
        {
            "id": "b",
            "type": "add",
            "calls": [call("add", {"operator": "a"}, {"constant": 1.0})],
            "shapes": _SHAPES,
            "dtype": "float32",
        },
    ],
    "edges": [{"source": "a", "target": "b"}],
    "inputs": [{"name": "x", "shape": [1, 3], "dtype": "float32"}],
    "outputs": [{"operator": "b"}],
    "weights": [{"name": "w", "shape": [3], "dtype": "float32"}],
}


def _set(path: str, value: Any) -> Graph:
    data = copy.deepcopy(GRAPH)
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    node: Any = data
    for part in way:
        node = node[part]
    node[last] = value
    return Graph.from_json(data, source="graph.json")


def test_complete_graph_passes() -> None:
    """The graph that the others damage is fine itself."""
    require_executable(Graph.from_json(GRAPH))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("operators.0.calls", [], r"operators\[0\]\.calls: operator a has none"),
        ("operators.1.dtype", "float99", r"operators\[1\]\.dtype: found float99; allowed: a dtype of torch"),
        ("operators.0.shapes.outputs", [], r"operators\[0\]\.shapes\.outputs: found none"),
        ("operators.0.calls.0.arguments.0", {"input": "y"}, r"arguments\[0\]\.input: found y, which the graph"),
        ("operators.0.calls.0.arguments.1", {"weight": "v"}, r"arguments\[1\]\.weight: found v, which the graph"),
        ("operators.0.calls.1.arguments.0", {"call": 1}, r"calls\[1\]\.arguments\[0\]\.call: found 1; allowed: an"),
        ("operators.1.calls.0.arguments.0", {"operator": "z"}, r"operator: found z, which is not the id"),
        ("operators.1.calls.0.arguments.0", {"operator": "a", "item": 1}, r"item: found 1; allowed: below 1"),
        ("operators.1.calls.0.arguments.0", {"operator": "a", "input": "x"}, r"found operator and input; allowed: "),
        ("operators.1.calls.0.arguments.0", {"item": 0}, r"found none; allowed: exactly one of operator"),
        ("outputs", [], "outputs: found none"),
        ("outputs.0", {"input": "x"}, r"outputs\[0\]: an output that no operator makes"),
        ("weights.0.dtype", "abs", r"weights: w: found abs; allowed: a dtype"),
        ("edges", [], "edges: found 0 from a to b; required: 1, as the calls of b take its output"),
        ("edges", [{"source": "a", "target": "b"}] * 2, "edges: found 2 from a to b; required: 1"),
    ],
)
def test_contradictions_are_named(path: str, value: Any, message: str) -> None:
    """A reference that leads nowhere, or edges that the calls do not need, are refused with file and field."""
    with pytest.raises(ArtifactError, match=r"graph\.json: .*" + message if path != "edges" else message):
        require_executable(_set(path, value))


#: A convolution of images and a pooling, as Relax writes them.
WINDOWS: dict[str, dict[str, Any]] = {
    "relax.nn.conv2d": CONVOLUTION,
    "relax.nn.max_pool2d": {
        "pool_size": [2, 2],
        "strides": [1, 1],
        "padding": [0, 0, 0, 0],
        "dilation": [1, 1],
        "ceil_mode": False,
    },
}


def _windowed(function: str, attributes: dict[str, Any]) -> Graph:
    data = copy.deepcopy(GRAPH)
    data["operators"][0]["calls"][0] |= {"function": function, "attributes": attributes}
    return Graph.from_json(data, source="graph.json")


@pytest.mark.parametrize("function", WINDOWS)
def test_windows_as_relax_writes_them_pass(function: str) -> None:
    """The attributes that the next test damages are fine themselves."""
    require_executable(_windowed(function, WINDOWS[function]))


@pytest.mark.parametrize("function", WINDOWS)
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("strides", [0, 0], r"strides \[0, 0\] is not supported, only 2 whole numbers of at least 1"),
        ("strides", [1.5, 1], r"strides \[1\.5, 1\] is not supported"),
        ("strides", "ab", r'strides "ab" is not supported'),
        ("strides", [1] * 100_000, r"strides \[1, 1, .{,60}\.\.\. is not supported"),
        ("dilation", [-1, 1], r"dilation \[-1, 1\] is not supported"),
        ("padding", [0, 0], r"padding \[0, 0\] is not supported, only 4 whole numbers of at least 0"),
        ("padding", None, "the attribute padding is missing"),
    ],
)
def test_attributes_are_checked_before_a_worker_reads_them(function: str, name: str, value: Any, message: str) -> None:
    """A stride of 0 would end a worker by a signal; the message names operator, call and attribute."""
    attributes = {**WINDOWS[function], name: value}
    if value is None:
        del attributes[name]
    with pytest.raises(UnsupportedError, match=rf"operators\[0\]\.calls\[0\]: operator a: {function}: {message}"):
        require_executable(_windowed(function, attributes))


def test_layouts_are_checked_for_packed_convolutions_too() -> None:
    """Packed convolutions take the images as they come, so that another layout would give wrong numbers."""
    attributes = {**WINDOWS["relax.nn.conv2d"], "data_layout": "NHWC"}
    with pytest.raises(UnsupportedError, match="data_layout NHWC is not supported, only NCHW"):
        require_executable(_windowed("relax.nn.conv2d", attributes))
