"""Random operator graphs with costs, as the simulation of HIOS (section V-A) draws them, and wirings of RandWire."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hios.core.costs import Costs
from hios.core.graph import Edge, Graph, Operator
from hios.core.problem import Problem
from hios.errors import HiosError
from hios.files.artifacts import Json

#: Least time of a transfer in milliseconds, and the range of operator times (HIOS, section V-A).
LEAST_TRANSFER_MS = 0.1
OPERATOR_MS = (0.1, 4.0)
#: Range of utilizations, and the share of serialization: those of the authors' released program, not in the paper.
UTILIZATION = (0.6, 1.0)
ALPHA = 0.5

#: Source and target of an edge, by operator number.
_Edge = tuple[int, int]
#: Predecessors of each node of a stage of RandWire; none where it takes the input of the stage.
Wiring = list[list[int]]


@dataclass(frozen=True, slots=True)
class RandomGraph:
    """A graph without shapes, with the costs that make it a scheduling problem.

    Utilization is in (0, 1]; ``alpha`` is the share of serialization of the contention model.
    """

    name: str
    time_ms: tuple[float, ...]
    utilization: tuple[float, ...]
    transfers_ms: Mapping[_Edge, float]
    alpha: float = ALPHA

    def graph(self) -> Graph:
        """The graph; operators are v0, v1, ..."""
        return Graph(
            self.name,
            tuple(Operator(f"v{number}", "task") for number in range(len(self.time_ms))),
            tuple(Edge(f"v{source}", f"v{target}") for source, target in sorted(self.transfers_ms)),
        )

    def costs(self) -> Json:
        """The contents of costs.json."""
        rows = enumerate(zip(self.time_ms, self.utilization, strict=True))
        return {
            "operators": {f"v{number}": {"time_ms": time, "utilization": share} for number, (time, share) in rows},
            "transfers": [
                {"source": f"v{source}", "target": f"v{target}", "time_ms": time}
                for (source, target), time in sorted(self.transfers_ms.items())
            ],
            "contention": {"kind": "blend", "alpha": self.alpha},
        }

    def problem(self) -> Problem:
        """The scheduling problem."""
        return Problem(self.graph(), Costs.from_json(self.costs()))


#: Makes a graph of so many operators, layers and edges, whose transfers take the share p of an operator's time.
Generator = Callable[..., RandomGraph]


def random_layers(
    *, operators: int = 200, layers: int = 14, edges: int = 400, p: float = 0.8, alpha: float = ALPHA, seed: int = 0
) -> RandomGraph:
    """One instance of HIOS section V-A, with layers of random sizes.

    A transfer takes max(0.1 ms, p * t(u)) for the operator u that makes the value. The paper does not say how edges
    are drawn. Here the borders between layers are random; every operator has a predecessor in the layer before and a
    successor in the layer after; further edges join any two layers. More edges than ``edges`` are drawn where these
    rules need them.

    Raises:
        HiosError: fewer operators than layers, or more edges than the layers have room for.
    """
    _check_layers(operators, layers)
    draw = random.Random(seed)
    borders = [0, *sorted(draw.sample(range(1, operators), layers - 1)), operators]
    members = [list(range(first, end)) for first, end in pairwise(borders)]
    layer = [rank for rank, row in enumerate(members) for _ in row]
    chosen = {(draw.choice(members[layer[target] - 1]), target) for target in range(operators) if layer[target] > 0}
    sources = {source for source, _ in chosen}
    for source in range(operators):
        if source not in sources and layer[source] + 1 < layers:
            chosen.add((source, draw.choice(members[layer[source] + 1])))
    _check_edges(edges, members)
    while len(chosen) < edges:
        source, target = sorted(draw.sample(range(operators), 2))
        if layer[source] < layer[target]:
            chosen.add((source, target))
    return _with_costs(f"hios-simulation-{seed}", operators, chosen, p, alpha, draw)


def even_layers(
    *, operators: int = 200, layers: int = 14, edges: int = 400, p: float = 0.8, alpha: float = ALPHA, seed: int = 0
) -> RandomGraph:
    """One instance with layers of about equal size, as the program that the authors of HIOS released draws them.

    The first and the last layer hold one operator. The layers between are filled in rounds: the first gives each
    ceil(layers / 2) operators, every other up to as many, until all are used up; operators are numbered in that
    order, which is no topological order. Every operator has an edge into the next layer and one from the layer
    before; further edges lead from a layer between to any later one. Where a first round needs more operators than
    there are, as with 22 layers of 200, it gives what there is in equal parts.

    Raises:
        HiosError: fewer operators than layers, fewer than three layers, or more edges than the layers have room for.
    """
    _check_layers(operators, layers)
    if layers < 3:
        raise HiosError(f"layers: found {layers}; allowed: at least 3")
    draw = random.Random(seed)
    quota = min(math.ceil(layers / 2), (operators - 2) // (layers - 2))
    members: list[list[int]] = [[0], *([] for _ in range(layers - 2)), [operators - 1]]
    number, first = 1, True
    while number < operators - 1:
        for row in members[1:-1]:
            end = min(number + (quota if first else draw.randint(0, quota)), operators - 1)
            row.extend(range(number, end))
            number = end
        first = False
    chosen: set[_Edge] = set()
    for above, below in pairwise(members):
        chosen |= {(source, draw.choice(below)) for source in above}
        chosen |= {(draw.choice(above), target) for target in below}
    _check_edges(edges, members[1:])
    while len(chosen) < edges:
        source_layer = draw.randint(1, layers - 2)
        target_layer = draw.randint(source_layer + 1, layers - 1)
        chosen.add((draw.choice(members[source_layer]), draw.choice(members[target_layer])))
    return _with_costs(f"hios-even-layers-{seed}", operators, chosen, p, alpha, draw)


def _with_costs(
    name: str, operators: int, edges: Iterable[_Edge], p: float, alpha: float, draw: random.Random
) -> RandomGraph:
    """A graph with drawn times and utilizations; a transfer takes max(0.1 ms, p * t(u)) for the operator u."""
    times = tuple(draw.uniform(*OPERATOR_MS) for _ in range(operators))
    transfers = {(source, target): max(LEAST_TRANSFER_MS, p * times[source]) for source, target in sorted(edges)}
    utilization = tuple(draw.uniform(*UTILIZATION) for _ in range(operators))
    return RandomGraph(name, times, utilization, transfers, alpha)


#: The generators by name, for the ablation of the released program.
GENERATORS: dict[str, Generator] = {"random_layers": random_layers, "even_layers": even_layers}


def charged_by_destination(graph: RandomGraph, p: float) -> RandomGraph:
    """The graph with transfers of max(0.1 ms, p * t(v)) for the operator v that takes the value."""
    transfers = {
        (source, target): max(LEAST_TRANSFER_MS, p * graph.time_ms[target]) for source, target in graph.transfers_ms
    }
    return replace(graph, transfers_ms=transfers)


def _check_layers(operators: int, layers: int) -> None:
    if operators < layers:
        raise HiosError(f"operators: found {operators}; allowed with {layers} layers: at least {layers}")


def _check_edges(edges: int, members: Sequence[Sequence[int]]) -> None:
    """Refuse more edges than there are pairs of operators in different layers."""
    count = sum(map(len, members))
    room = (count * count - sum(len(row) ** 2 for row in members)) // 2
    if edges > room:
        raise HiosError(
            f"edges: found {edges}; allowed with {count} operators in {len(members)} layers: at most {room}"
        )


def watts_strogatz(nodes: int, k: int, p: float, seed: int) -> Wiring:
    """Random wiring of a stage (Watts and Strogatz 1998; section 3.3 of the RandWire paper).

    Each node of a ring is joined to its k nearest, k/2 on either side; going round once for each distance, the far end
    of an edge is moved with probability p to a node drawn from those that the near end is not joined to. An edge leads
    from the node with the lower to the one with the higher number.

    Raises:
        ValueError: k is odd, negative or not below the number of nodes.
    """
    if k % 2 or not 0 <= k < nodes:
        raise ValueError(f"k is {k}; allowed: even numbers from 0 to below {nodes}, the nodes of the smallest stage")
    draw = random.Random(seed)
    joined: list[set[int]] = [
        {(node + step) % nodes for step in range(-(k // 2), k // 2 + 1) if step} for node in range(nodes)
    ]
    for distance in range(1, k // 2 + 1):
        for near in range(nodes):
            free = [node for node in range(nodes) if node != near and node not in joined[near]]
            if draw.random() < p and free:
                far, new = (near + distance) % nodes, draw.choice(free)
                joined[near].remove(far)
                joined[far].remove(near)
                joined[near].add(new)
                joined[new].add(near)
    return [sorted(other for other in joined[node] if other < node) for node in range(nodes)]
