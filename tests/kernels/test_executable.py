"""Which graphs can be run."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hios import Graph
from hios.errors import ArtifactError
from hios.kernels.executable import require_executable

_SHAPES = {"inputs": [[1, 3]], "outputs": [[1, 3]]}
GRAPH: dict[str, Any] = {
    "name": "two",
    "operators": [
        {
            "id": "a",
            "type": "multiply",
            "calls": [
                {"function": "relax.multiply", "arguments": [{"input": "x"}, {"weight": "w"}]},
                {"function": "relax.nn.relu", "arguments": [{"call": 0}]},
            ],
            "shapes": _SHAPES,
            "dtype": "float32",
        },
        {
            "id": "b",
            "type": "add",
            "calls": [{"function": "relax.add", "arguments": [{"operator": "a"}, {"constant": 1.0}]}],
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
        (
            "operators.0.calls.0.arguments.0",
            {"input": "y"},
            r"arguments\[0\]\.input: found y, which the graph",
        ),
        ("operators.0.calls.0.arguments.1", {"weight": "v"}, r"arguments\[1\]\.weight: found v, which the graph"),
        (
            "operators.0.calls.1.arguments.0",
            {"call": 1},
            r"calls\[1\]\.arguments\[0\]\.call: found 1; allowed: an",
        ),
        ("operators.1.calls.0.arguments.0", {"operator": "z"}, r"operator: found z, which is not the id"),
        ("operators.1.calls.0.arguments.0", {"operator": "a", "item": 1}, r"item: found 1; allowed: below 1"),
        (
            "operators.1.calls.0.arguments.0",
            {"operator": "a", "input": "x"},
            r"found operator and input; allowed: ",
        ),
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
