"""The computation graph G = (V, E): operators (scheduling units) and the values that pass between them.

graph.json has the operators with their calls, and the edges; it is the project's intermediate representation.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from hios.errors import ArtifactError, shown
from hios.files import artifacts
from hios.files.base import Amount, Count, FormatVersion, OperatorId, OrAbsent, Positive, Record, Text, doc

Shape = Annotated[tuple[Annotated[Count, doc("Size of one dimension.")], ...], doc("Sizes of the dimensions.")]
DType = Annotated[str, doc("Element type by its torch name, such as float32.")]
#: Of images: batch, channels, height, width.
IMAGE_DIMENSIONS = 4
#: A number, or the name of one that JSON lacks.
Number = bool | int | float | Literal["inf", "-inf", "nan"]


class Value(Record, frozen=True):
    """Where a tensor or number comes from: exactly one of operator, input, weight, call, constant."""

    schema_extra: ClassVar = {"minProperties": 1}

    operator: OrAbsent[Text] = None
    """Id of the operator that produces it."""
    item: OrAbsent[Count] = None
    """Which of the operator's outputs, if it has several."""
    input: OrAbsent[Text] = None
    """Name of an input of the graph."""
    weight: OrAbsent[Text] = None
    """Name of a tensor in the weights file."""
    call: OrAbsent[Count] = None
    """Position of an earlier call of the same operator."""
    constant: OrAbsent[Number] = None
    """A number; text for those that JSON lacks: inf, -inf, nan."""

    def __post_init__(self) -> None:
        if not self.kinds and self.item is None:
            raise ValueError("a value states where it comes from")

    @property
    def kinds(self) -> list[str]:
        """Which of operator, input, weight, call and constant it states; exactly one if it can be run."""
        return [kind for kind in ("operator", "input", "weight", "call", "constant") if getattr(self, kind) is not None]

    @property
    def external(self) -> tuple[str, str, int] | None:
        """What it reads from outside its operator, as (``"operator"`` or ``"input"``, name, item); else None."""
        if self.operator is not None:
            return ("operator", self.operator, self.item or 0)
        return None if self.input is None else ("input", self.input, 0)

    @property
    def number(self) -> bool | int | float:
        """The number behind a constant."""
        if self.constant is None:
            raise ValueError("this value is not a constant")
        return float(self.constant) if isinstance(self.constant, str) else self.constant


class Call(Record, frozen=True, omit_defaults=False):
    """One operator of Relax, or one that Relax cannot import, inside a scheduling unit."""

    function: Text
    """Name of the Relax operator, such as relax.nn.conv2d; of an operator that Relax cannot import, aten.NAME.OVERLOAD,
    which PyTorch runs, such as aten.scatter_add.default, or onnx.NAME, which ONNX Runtime runs."""
    arguments: tuple[Value, ...]
    """Its tensor arguments, in order."""
    attributes: dict[str, Any] = msgspec.field(default_factory=dict)
    """Its attributes by their Relax names: strides, padding and so on. Of aten.NAME.OVERLOAD: arguments, by name those
    that are not the default, with {"tensor": 0} for the first tensor argument; outputs, the positions of the results
    that are used. Of onnx.NAME: model, an ONNX model of this one node in base64."""


class TensorSpec(Record, frozen=True):
    """A named tensor."""

    name: Text
    """Its name."""
    shape: Shape
    dtype: DType
    below: OrAbsent[Positive] = None
    """For an integer input: upper limit of its values, which are smaller, such as the size of a vocabulary; 2 if left
    out."""


class Shapes(Record, frozen=True):
    """Shapes of its tensors."""

    inputs: tuple[Shape, ...]
    """Shape of each tensor that the operator reads from other operators and graph inputs."""
    outputs: tuple[Shape, ...]
    """Shape of each tensor that the operator produces."""


class Operator(Record, frozen=True):
    """One scheduling unit.

    Examples:
        >>> import hios
        >>> operator = hios.Operator("stem.conv", "conv2d-relu", flops=21_676_032)
        >>> operator.id, operator.type, operator.calls
        ('stem.conv', 'conv2d-relu', ())
    """

    id: Text
    """Unique name."""
    type: Text
    """Kind of the unit, such as conv2d-relu, max_pool2d, concat."""
    calls: tuple[Call, ...] = ()
    """The operators that it consists of, in order; the last one produces its output."""
    shapes: OrAbsent[Shapes] = None
    dtype: OrAbsent[DType] = None
    dtypes: OrAbsent[tuple[DType, ...]] = None
    """Element type of each output, if they differ; dtype is that of the first."""
    flops: OrAbsent[Amount] = None
    """Floating-point operations (a multiply-add counts two); left out where unknown, as of operators that Relax cannot
    import."""
    bytes: OrAbsent[Count] = None
    """Bytes read and written: inputs, weights (only the rows looked up, for a table) and outputs, each once. Operators
    that only return a view of a value count as if they copied it."""

    @property
    def output_types(self) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Shape and dtype of each output; empty if the graph does not state them."""
        if self.shapes is None or self.dtype is None:
            return ()
        dtypes = self.dtypes or (self.dtype,) * len(self.shapes.outputs)
        return tuple(zip(self.shapes.outputs, dtypes, strict=True))


class Edge(Record, frozen=True):
    """A dependency: a value that target reads from source.

    Examples:
        >>> import hios
        >>> hios.Edge("conv", "relu", bytes=4096)
        Edge(source='conv', target='relu', bytes=4096)
    """

    source: Text
    """Id of the producer."""
    target: Text
    """Id of the consumer."""
    bytes: OrAbsent[Count] = None
    """Size of the value."""


class GraphFile(Record, frozen=True):
    """The computation graph: operators (scheduling units) and the values that pass between them."""

    name: Text
    """Name of the network."""
    operators: Annotated[tuple[Operator, ...], Meta(min_length=1)]
    """The scheduling units."""
    edges: tuple[Edge, ...]
    """One edge per value that an operator reads from another; a value that is read twice is two edges."""
    inputs: tuple[TensorSpec, ...] = ()
    """Inputs of the network."""
    outputs: tuple[Value, ...] = ()
    """Outputs of the network, in order."""
    weights: tuple[TensorSpec, ...] = ()
    """Tensors in the weights file."""
    blocks: tuple[Annotated[tuple[OperatorId, ...], doc("One block.")], ...] = ()
    """Operator ids by block, in execution order."""
    units: OrAbsent[Text] = None
    """How operators were grouped into scheduling units: conv-relu, relu-sepconv or operator."""
    format_version: FormatVersion = 1


#: Kinds of scheduling units that extraction knows (``hios.frontends.units`` has what each of them groups).
UNITS = ("conv-relu", "relu-sepconv", "operator")

#: Calls that read only the part of their first argument that they return.
LOOKUPS = frozenset(
    {
        *(f"relax.{name}" for name in ("take", "index_tensor", "gather_elements", "gather_nd", "strided_slice")),
        *("aten.embedding.default", "aten.index.Tensor", "aten.index_select.default"),
    }
)
#: Functions of calls that are a recurrent layer, a product of matrices for every step: rows of its weights for each
#: element of the hidden state.
RECURRENT: Mapping[str, int] = {
    **{"aten.lstm.input": 4, "aten.gru.input": 3, "aten.rnn_tanh.input": 1, "aten.rnn_relu.input": 1},
    **{"onnx.LSTM": 4, "onnx.GRU": 3, "onnx.RNN": 1},
}


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
        for defect in defects(self.operators, self.edges, self.blocks):
            raise ArtifactError(f"{self.source}: {defect}")
        object.__setattr__(self, "index", {operator.id: place for place, operator in enumerate(self.operators)})
        object.__setattr__(self, "order", self._topological_order())

    #: Position of every operator id in ``operators``.
    index: Mapping[str, int] = field(init=False, repr=False, compare=False)
    #: Positions of the operators in topological order, ties by position.
    order: tuple[int, ...] = field(init=False, repr=False, compare=False)

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that distinguish graphs of the same name, such as those of two image sizes.

        Costs and schedules state the fingerprint of their graph. It covers what both depend on: operators with type,
        calls, shapes and dtype, and, of those without calls, operations and bytes; edges, inputs, outputs, and the
        shapes of weights; not their order, the name, blocks, or the values of weights.
        """
        operators = [
            [operator.id, operator.type, operator.calls or None, operator.shapes, operator.dtype, *_work(operator)]
            for operator in self.operators
        ]
        edges = [[edge.source, edge.target, edge.bytes] for edge in self.edges]
        parts = [sorted(map(_canonical, part)) for part in (operators, edges, self.inputs, self.weights)]
        return hashlib.sha256(_canonical([*parts, self.outputs]).encode()).hexdigest()[:16]

    def _topological_order(self) -> tuple[int, ...]:
        successors: list[list[int]] = [[] for _ in self.operators]
        for edge in self.edges:
            successors[self.index[edge.source]].append(self.index[edge.target])
        order = topological_order(successors)
        if len(order) < len(self.operators):
            try:
                TopologicalSorter(dict(enumerate(successors))).prepare()
            except CycleError as error:  # it takes successors for predecessors
                cycle = _cycle_in_words(self.operators[place].id for place in reversed(error.args[1]))
                raise ArtifactError(
                    f"{self.source}: edges: found the cycle {cycle}; allowed: a directed acyclic graph"
                ) from None
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


def _work(operator: Operator) -> list[Any]:
    """Operations and bytes of an operator, where these are all that is known of what it does."""
    work = [operator.flops, operator.bytes]
    return [] if operator.calls or work == [None, None] else work


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
