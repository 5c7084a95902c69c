"""The computation graph G = (V, E): operators (scheduling units) and the values that pass between them."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import msgspec

from hios import artifacts
from hios.errors import ArtifactError, shown
from hios.formats.graph_file import Call, Edge, GraphFile, Operator, Shapes, TensorSpec, Value

__all__ = ["UNITS", "Call", "Edge", "Graph", "Operator", "Shapes", "TensorSpec", "Value"]

#: Kinds of scheduling units that extraction knows (``hios.frontends.patterns`` has what each of them groups).
UNITS = ("conv-relu", "relu-sepconv", "operator")


@dataclass(frozen=True)
class Graph:
    """A directed acyclic graph of operators.

    Parallel edges are allowed: an operator that reads a value twice has two. ``inputs``, ``outputs`` and
    ``weights`` are the entries of graph.json; synthetic graphs leave them empty. ``units`` says how operators were
    grouped into scheduling units.

    Raises:
        ArtifactError: a duplicate operator id, an edge names an unknown operator, or there is a cycle.

    Examples:
        >>> import hios
        >>> graph = hios.Graph(
        ...     "pair",
        ...     (hios.Operator("a", "conv2d"), hios.Operator("b", "relu")),
        ...     (hios.Edge("a", "b", bytes=4096),),
        ... )
        >>> graph.index["b"], graph.order
        (1, (0, 1))
        >>> hios.Graph("circle", graph.operators, (*graph.edges, hios.Edge("b", "a")))
        Traceback (most recent call last):
        hios.errors.ArtifactError: graph: edges: found the cycle a -> b -> a; allowed: a directed acyclic graph
    """

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[Value, ...] = ()
    weights: tuple[TensorSpec, ...] = ()
    blocks: tuple[tuple[str, ...], ...] = ()
    units: str | None = None
    source: str = "graph"

    def __post_init__(self) -> None:
        index = {operator.id: position for position, operator in enumerate(self.operators)}
        for defect in defects(self.operators, self.edges, self.blocks):
            raise ArtifactError(f"{self.source}: {defect}")
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "order", self._topological_order(index))

    #: Position of every operator id in ``operators``.
    index: Mapping[str, int] = field(init=False, repr=False, compare=False)
    #: Positions of the operators in topological order, ties by position.
    order: tuple[int, ...] = field(init=False, repr=False, compare=False)

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that distinguish graphs of the same name, such as those of two image sizes.

        Costs and schedules state the fingerprint of their graph. It covers what both depend on: operators with type,
        calls, shapes and dtype, edges, inputs, outputs, and the shapes of weights; not their order, the name, blocks,
        or the values of weights.
        """
        operators = [
            [operator.id, operator.type, operator.calls or None, operator.shapes, operator.dtype]
            for operator in self.operators
        ]
        edges = [[edge.source, edge.target, edge.bytes] for edge in self.edges]
        parts = [sorted(map(_canonical, part)) for part in (operators, edges, self.inputs, self.weights)]
        return hashlib.sha256(_canonical([*parts, self.outputs]).encode()).hexdigest()[:16]

    def _topological_order(self, index: Mapping[str, int]) -> tuple[int, ...]:
        successors: list[list[int]] = [[] for _ in self.operators]
        for edge in self.edges:
            successors[index[edge.source]].append(index[edge.target])
        order = topological_order(successors)
        if len(order) < len(self.operators):
            cycle = _cycle_in_words(self.operators[position].id for position in _find_cycle(successors, order))
            raise ArtifactError(f"{self.source}: edges: found the cycle {cycle}; allowed: a directed acyclic graph")
        return tuple(order)

    @classmethod
    def read(cls, path: str | Path) -> Graph:
        """Read graph.json."""
        return cls.of(artifacts.load(path, GraphFile), source=str(path))

    @classmethod
    def from_json(cls, data: Any, source: str = "graph") -> Graph:
        """Build a graph from the contents of graph.json."""
        return cls.of(artifacts.parsed(data, GraphFile, source), source)

    @classmethod
    def of(cls, file: GraphFile, source: str = "graph") -> Graph:
        """The graph in a parsed file."""
        return cls(**artifacts.contents(file), source=source)

    def to_file(self) -> GraphFile:
        """The contents of graph.json as an object."""
        return GraphFile(**{name: value for name, value in vars(self).items() if name in GraphFile.__struct_fields__})

    def to_json(self) -> artifacts.Json:
        """The contents of graph.json."""
        return artifacts.plain(self.to_file())

    def to_bytes(self) -> bytes:
        """The text of a graph.json."""
        return json.dumps({"format_version": artifacts.FORMAT_VERSION, **self.to_json()}).encode()

    def write(self, path: str | Path) -> None:
        """Write graph.json."""
        artifacts.write(path, "graph", self.to_file())


def defects(operators: Sequence[Operator], edges: Sequence[Edge], blocks: Sequence[Sequence[str]]) -> Iterator[str]:
    """Contradictions between the parts of a graph, each valid by itself; without cycles."""
    known: set[str] = set()
    for position, operator in enumerate(operators):
        if operator.id in known:
            yield f"operators[{position}].id: duplicate id {_name(operator.id)}; ids are unique"
        known.add(operator.id)
    for position, edge in enumerate(edges):
        for end, name in (("source", edge.source), ("target", edge.target)):
            if name not in known:
                yield f"edges[{position}].{end}: found {_name(name)}; allowed: the id of an operator"
    for position, block in enumerate(blocks):
        for name in block:
            if name not in known:
                yield f"blocks[{position}]: found {_name(name)}, which is not the id of an operator"


def _canonical(value: Any) -> str:
    return json.dumps(msgspec.to_builtins(value), sort_keys=True)


def _name(operator: str) -> str:
    return shown(operator, quoted=False)


#: Operators of a cycle that a message names at most.
_MOST_NAMED = 12


def _cycle_in_words(cycle: Iterable[str]) -> str:
    names = [_name(operator) for operator in cycle]
    if len(names) > _MOST_NAMED:
        half = _MOST_NAMED // 2
        names = [*names[:half], f"({len(names) - _MOST_NAMED} more)", *names[-half:]]
    return " -> ".join(names)


def _find_cycle(successors: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """One cycle among the positions that topological sorting could not place, first position repeated."""
    placed = set(order)
    predecessor = {
        successor: position
        for position, targets in enumerate(successors)
        if position not in placed
        for successor in targets
    }
    position = next(position for position in range(len(successors)) if position not in placed)
    trail: list[int] = []
    while position not in trail:
        trail.append(position)
        position = predecessor[position]
    return [position, *reversed(trail[trail.index(position) :])]


def topological_order(successors: Sequence[Iterable[int]], preference: Iterable[int] | None = None) -> list[int]:
    """Nodes of a directed graph, each after all its predecessors (Kahn's algorithm with a heap).

    Args:
        successors: for every node, the nodes that come after it; parallel edges are allowed.
        preference: every node once; among the nodes that could come next, the first one in it does. None: by number.

    Returns:
        All nodes in order; nodes on cycles, and those after them, are left out.
    """
    nodes = list(range(len(successors)) if preference is None else preference)
    rank = [0] * len(nodes)
    for place, node in enumerate(nodes):
        rank[node] = place
    missing = [0] * len(nodes)  # predecessors that are not in the order yet
    for following in successors:
        for node in following:
            missing[node] += 1
    ready = [place for place, node in enumerate(nodes) if missing[node] == 0]
    order = []
    while ready:
        node = nodes[heappop(ready)]
        order.append(node)
        for successor in successors[node]:
            missing[successor] -= 1
            if missing[successor] == 0:
                heappush(ready, rank[successor])
    return order
