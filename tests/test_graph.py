"""The computation graph."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hios import Edge, Graph, Operator, Problem
from hios.errors import ArtifactError
from hios.problem import positions, priority_order, upward_ranks
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
