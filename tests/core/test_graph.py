"""The computation graph, and the topological order that graphs, blocks and plans share."""

from __future__ import annotations

import copy
import dataclasses
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hios import Edge, Graph, Operator, Problem
from hios.core.graph import topological_order
from hios.core.problem import positions, priority_order, upward_ranks
from hios.errors import ArtifactError
from tests.problems import problems


@given(problems())
def test_order_is_topological(instance: Problem) -> None:
    """Every operator stands once in the order, behind all its predecessors; so it does by priority."""
    for order in (list(instance.graph.order), priority_order(instance)):
        assert sorted(order) == list(range(len(instance)))
        place = positions(order)
        for operator in order:
            assert all(place[before] < place[operator] for before, _ in instance.predecessors[operator])


@given(problems())
def test_priority_descends_along_every_edge(instance: Problem) -> None:
    """The priority indicator of an operator is its time plus the longest way down, and at least its successors'."""
    ranks = upward_ranks(instance)
    for operator in range(len(instance)):
        ways = [transfer + ranks[after] for after, transfer in instance.successors[operator]]
        assert ranks[operator] == instance.time[operator] + max(ways, default=0.0)


@given(problems())
def test_json_round_trip(instance: Problem) -> None:
    """A graph survives the way through graph.json."""
    assert Graph.from_json(instance.graph.to_json(), source=instance.graph.source) == instance.graph


@given(problems(), st.data())
def test_an_edge_backwards_makes_a_cycle(instance: Problem, data: st.DataObject) -> None:
    """Whatever the graph, an edge from an operator to one it depends on is refused, and the cycle named."""
    assume(instance.graph.edges)
    edge = data.draw(st.sampled_from(instance.graph.edges))
    back = Edge(edge.target, edge.source)
    with pytest.raises(ArtifactError, match=r"edges: found the cycle .*; allowed: a directed acyclic") as caught:
        Graph("cyclic", instance.graph.operators, (*instance.graph.edges, back))
    named = str(caught.value).partition("cycle ")[2].partition(";")[0].split(" -> ")
    assert named[0] == named[-1]
    ends = {(e.source, e.target) for e in (*instance.graph.edges, back)}
    assert all(pair in ends for pair in pairwise(named))


def test_blocks_name_operators() -> None:
    """A block that names an unknown operator is refused."""
    with pytest.raises(ArtifactError, match=r"blocks\[0\]: found z"):
        Graph("net", (Operator("a", "task"),), (), blocks=(("a", "z"),))


#: Two operators as extraction writes them.
_EXTRACTED: dict[str, Any] = {
    "name": "net",
    "operators": [
        {
            "id": "conv",
            "type": "conv2d",
            "calls": [
                {"function": "relax.nn.conv2d", "arguments": [{"input": "x"}], "attributes": {"strides": [1, 1]}}
            ],
            "shapes": {"inputs": [[1, 3, 8, 8]], "outputs": [[1, 4, 8, 8]]},
            "dtype": "float32",
            "flops": 100,
        },
        {"id": "relu", "type": "relu"},
    ],
    "edges": [{"source": "conv", "target": "relu", "bytes": 1024}],
    "inputs": [{"name": "x", "shape": [1, 3, 8, 8], "dtype": "float32"}],
    "outputs": [{"operator": "relu"}],
    "weights": [{"name": "w", "shape": [4, 3, 3, 3], "dtype": "float32"}],
}


@pytest.mark.parametrize(
    ("place", "value", "same"),
    [
        (("name",), "other", True),
        (("blocks",), [["conv"], ["relu"]], True),
        (("operators", 0, "flops"), 200, True),
        (("operators", 0, "id"), "convolution", False),
        (("operators", 0, "type"), "conv2d-relu", False),
        (("operators", 0, "calls", 0, "attributes", "strides"), [2, 2], False),
        (("operators", 0, "calls", 0, "arguments"), [{"input": "y"}], False),
        (("operators", 0, "shapes", "outputs"), [[1, 4, 4, 4]], False),
        (("operators", 0, "dtype"), "float16", False),
        (("edges", 0, "bytes"), 2048, False),
        (("edges",), [], False),
        (("inputs", 0, "shape"), [2, 3, 8, 8], False),
        (("outputs",), [{"operator": "conv"}], False),
        (("weights", 0, "shape"), [4, 3, 5, 5], False),
    ],
)
def test_fingerprint(place: tuple[Any, ...], value: Any, same: bool) -> None:
    """Whatever changes what operators do, on which sizes, changes the fingerprint; names and counts do not."""
    changed = copy.deepcopy(_EXTRACTED)
    part: Any = changed
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    if place[-1] == "id":
        changed["edges"][0]["source"] = value
    assert (Graph.from_json(changed).fingerprint == Graph.from_json(_EXTRACTED).fingerprint) is same


def test_fingerprint_of_operators_without_calls() -> None:
    """What they compute is known by their operations and bytes alone, from which costs are predicted."""

    def fingerprint(**work: Any) -> str:
        return Graph("one", (Operator("a", "conv", **work),), ()).fingerprint

    works: list[dict[str, int]] = [{}, {"flops": 2, "bytes": 4}, {"flops": 3, "bytes": 4}, {"flops": 2}, {"bytes": 4}]
    assert len({fingerprint(**work) for work in works}) == len(works)


@given(problems(), st.randoms())
def test_fingerprint_knows_no_order(instance: Problem, chance: Any) -> None:
    """The order of operators and edges in the file does not matter; another operator does."""
    graph = instance.graph
    operators, edges = list(graph.operators), list(graph.edges)
    chance.shuffle(operators)
    chance.shuffle(edges)
    shuffled = dataclasses.replace(graph, operators=tuple(operators), edges=tuple(edges))
    assert shuffled.fingerprint == graph.fingerprint
    more = dataclasses.replace(graph, operators=(*graph.operators, Operator("one more", "task")))
    assert more.fingerprint != graph.fingerprint


@pytest.mark.parametrize(
    ("successors", "preference", "order"),
    [
        pytest.param([[3], [3], [0], []], None, [1, 2, 0, 3], id="ties go by number"),
        pytest.param([[2], [2], [], []], [3, 1, 2, 0], [3, 1, 0, 2], id="ties go by preference"),
        pytest.param([[], [0, 0]], None, [1, 0], id="parallel edges count each"),
        pytest.param([[1], [2], [1, 3], [], []], None, [0, 4], id="nodes on a cycle and after it are left out"),
        pytest.param([], None, [], id="no nodes"),
    ],
)
def test_topological_order(successors: list[list[int]], preference: list[int] | None, order: list[int]) -> None:
    """A node comes after its predecessors, once; of those that could come next, the first of the preference does."""
    assert topological_order(successors, preference) == order
