"""The papers' networks as the benchmarks build them."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.networks import (
    KIND,
    googlenet,
    inception_v3,
    nasnet_large,
    randwire,
    resnet50,
    squeezenet,
    synthetic_costs,
)
from hios import Graph, Problem
from tests.external_data import data_folder


def _kinds(graph: Graph) -> dict[str, int]:
    return dict(Counter(KIND[operator.type] for operator in graph.operators))


def _blocks(graph: Graph) -> list[int]:
    return [len(block) for block in graph.blocks]


def _check(graph: Graph, operators: int, edges: int, distinct: int, kinds: dict[str, int], blocks: list[int]) -> None:
    assert (len(graph.operators), len(graph.edges), len(set(graph.edges))) == (operators, edges, distinct)
    assert _kinds(graph) == kinds
    assert _blocks(graph) == blocks
    # Blocks hold every operator once, and no edge leads back to an earlier one: IOS schedules them one by one.
    place = {operator: number for number, block in enumerate(graph.blocks) for operator in block}
    assert len(place) == sum(_blocks(graph)) == operators
    assert all(place[edge.source] <= place[edge.target] for edge in graph.edges)


def test_inception_v3() -> None:
    """Inception-v3 has the operators, edges and blocks of LIOS table IV and IOS table 2."""
    kinds = {"conv": 94, "pool": 14, "concat or add": 11}
    _check(inception_v3(), 119, 153, 153, kinds, [7, 9, 9, 9, 6, 12, 12, 12, 12, 8, 11, 11, 1])


def test_squeezenet() -> None:
    """SqueezeNet with complex bypass has the operators, edges and blocks of LIOS table IV and IOS table 2."""
    kinds = {"conv": 30, "pool": 4, "concat or add": 16}
    _check(squeezenet(), 50, 65, 65, kinds, [2, 6, 5, 6, 1, 5, 6, 5, 6, 1, 5, 2])


def test_nasnet_large() -> None:
    """NASNet-A large has the operators and edges of LIOS table IV, 4 of them twice, in 25 blocks."""
    kinds = {"conv": 1, "relu-sepconv": 220, "relu-conv": 47, "pool": 71, "concat or add": 34, "other": 1}
    normal = [16] * 5
    _check(nasnet_large(), 374, 576, 572, kinds, [1, 18, 21, 18, *normal, 19, 18, *normal, 19, 18, *normal, 1, 1])


def test_randwire() -> None:
    """RandWire on the Watts-Strogatz graphs of the IOS benchmark has the operators and edges of LIOS table IV."""
    kinds = {"conv": 2, "relu-sepconv": 112, "pool": 1, "concat or add": 4, "other": 1}
    _check(randwire(data_folder("randwire")), 120, 260, 260, kinds, [1, 17, 33, 33, 33, 3])


def test_resnet50() -> None:
    """ResNet-50 has 86 operators, or with the global pool the 87 in 5 blocks of TOP table II."""
    _check(resnet50(), 86, 101, 101, {"conv": 53, "pool": 1, "concat or add": 16, "other": 16}, [2, 16, 21, 31, 16])
    assert len(resnet50(pooled=True).operators) == 87
    assert len(resnet50(pooled=True).blocks) == 5


def test_googlenet() -> None:
    """GoogLeNet has 57 convolutions, 9 modules of 8 operators, and 14 pools with the global one."""
    kinds = {"conv": 57, "pool": 14, "concat or add": 9}
    _check(googlenet(), 80, 106, 106, kinds, [5, 8, 8, 1, 8, 8, 8, 8, 8, 1, 8, 8, 1])


@pytest.mark.parametrize("seed", [0, 1])
def test_synthetic_costs(seed: int) -> None:
    """Costs come from the seed alone, fit the graph, and lie where the simulation of HIOS draws them."""
    graph = squeezenet()
    costs = synthetic_costs(graph, seed=seed)
    assert costs == synthetic_costs(graph, seed=seed)
    assert costs != synthetic_costs(graph, seed=seed + 1)
    problem = Problem(graph, costs)
    assert all(0.1 <= time <= 4.0 for time in problem.time)
    assert all(0.6 <= share <= 1.0 for share in problem.utilization)
    assert all(
        transfer == max(0.1, 0.8 * problem.time[source]) for row in problem.predecessors for source, transfer in row
    )
