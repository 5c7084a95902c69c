"""The graphs of HIOS's simulation, by both generators."""

from __future__ import annotations

import statistics

import pytest

from hios.errors import HiosError
from hios.study.random_graphs import Generator, charged_by_destination, even_layers, random_layers

BOTH = pytest.mark.parametrize("generator", [random_layers, even_layers])


@BOTH
def test_what_the_paper_states(generator: Generator) -> None:
    """200 operators, 400 edges, times in 0.1 to 4 ms, transfers of at least 0.1 ms and p of the operator before."""
    graph = generator(seed=3)
    assert len(graph.time_ms) == 200
    assert len(graph.transfers_ms) == 400
    assert all(0.1 <= time <= 4 for time in graph.time_ms)
    assert all(0.6 <= share <= 1 for share in graph.utilization)
    assert all(ms == max(0.1, 0.8 * graph.time_ms[source]) for (source, _), ms in graph.transfers_ms.items())
    assert graph == generator(seed=3)
    assert graph != generator(seed=4)
    assert len(graph.problem()) == 200  # without a cycle


def test_charged_by_destination() -> None:
    """Transfers go by the operator that takes the value; nothing else changes."""
    graph = random_layers(seed=1)
    charged = charged_by_destination(graph, 0.8)
    assert all(ms == max(0.1, 0.8 * graph.time_ms[target]) for (_, target), ms in charged.transfers_ms.items())
    assert (charged.time_ms, charged.transfers_ms.keys()) == (graph.time_ms, graph.transfers_ms.keys())


def test_even_layers() -> None:
    """First and last layer hold one operator, the others about as many each; numbers are no topological order."""
    graph = even_layers(seed=0)
    depth = [0] * 200
    problem = graph.problem()
    for operator in problem.order:
        depth[operator] = max((depth[before] + 1 for before, _ in problem.predecessors[operator]), default=0)
    sizes = [depth.count(layer) for layer in range(14)]
    assert sizes[0] == sizes[-1] == 1
    assert min(sizes[1:-1]) >= 7
    assert any(source > target for source, target in graph.transfers_ms)
    random_sizes = statistics.pstdev(sizes[1:-1])
    assert random_sizes < 6


def test_layers_that_a_round_cannot_fill() -> None:
    """22 layers of 200 operators get equal parts, none of them empty."""
    assert len(even_layers(layers=22, seed=0).problem()) == 200


@BOTH
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"operators": 10, "layers": 14, "edges": 20}, "operators: found 10; allowed with 14 layers: at least 14"),
        ({"operators": 20, "layers": 5, "edges": 400}, "edges: found 400; allowed with "),
    ],
)
def test_what_cannot_be_drawn_is_refused(generator: Generator, parameters: dict[str, int], message: str) -> None:
    """Instead of trying for ever."""
    with pytest.raises(HiosError, match=message):
        generator(**parameters)
