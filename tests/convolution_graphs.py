"""Graphs of convolutions as hios extract writes them, small enough to write down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hios import Costs, Edge, Graph, Operator, Problem
from hios.core.graph import TensorSpec
from tests.operators import operator_from


@dataclass(frozen=True)
class Conv:
    """A convolution; ``value`` is the id of the operator that it reads, empty for the input of the graph."""

    kernel: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    value: str = ""
    stride: tuple[int, int] = (1, 1)
    activation: tuple[str, ...] = ("relax.nn.relu",)
    filters: int = 2
    bias: bool = True
    image: tuple[int, int] = (8, 8)
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of what it makes."""
        rows, columns = (
            (size + 2 * p - k) // step + 1
            for size, p, k, step in zip(self.image, self.padding, self.kernel, self.stride, strict=True)
        )
        return rows, columns

    def operator(self, name: str) -> Operator:
        """Its entry in graph.json; ``changes`` replaces attributes of the convolution."""
        reads = {"operator": self.value} if self.value else {"input": "x"}
        weights = [{"weight": f"{name}.weight"}, *([{"weight": f"{name}.bias"}] if self.bias else [])]
        attributes = {
            "strides": list(self.stride),
            "padding": [*self.padding, *self.padding],
            "dilation": [1, 1],
            "groups": 1,
            "data_layout": "NCHW",
            "kernel_layout": "OIHW",
            **self.changes,
        }
        calls: list[dict[str, Any]] = [
            {"function": "relax.nn.conv2d", "arguments": [reads, *weights], "attributes": attributes}
        ]
        for number, function in enumerate(self.activation):
            calls.append({"function": function, "arguments": [{"call": number}], "attributes": {}})
        shapes = {"inputs": [[1, 2, *self.image]], "outputs": [[1, self.filters, *self.output]]}
        return operator_from(name, "conv2d", {"calls": calls, "shapes": shapes, "dtype": "float32"})

    def weights(self, name: str) -> list[TensorSpec]:
        """Its tensors in graph.json."""
        filters = TensorSpec(f"{name}.weight", (self.filters, 2, *self.kernel), "float32")
        bias = TensorSpec(f"{name}.bias", (self.filters,), "float32")
        return [filters, bias] if self.bias else [filters]


def conv_graph(members: Mapping[str, Conv], blocks: Sequence[Sequence[str]] = ()) -> Graph:
    """A graph of convolutions by id."""
    return Graph(
        "convolutions",
        tuple(member.operator(name) for name, member in members.items()),
        tuple(Edge(member.value, name) for name, member in members.items() if member.value),
        inputs=(TensorSpec("x", (1, 2, 8, 8), "float32"),),
        weights=tuple(entry for name, member in members.items() for entry in member.weights(name)),
        blocks=tuple(tuple(block) for block in blocks),
    )


def conv_problem(
    members: Mapping[str, Conv],
    times: Mapping[str, float],
    *,
    transfer: float = 0.0,
    blocks: Sequence[Sequence[str]] = (),
    **costs: Any,
) -> Problem:
    """A problem of convolutions whose transfers all take the same time; ``costs`` are the other fields of `Costs`."""
    graph = conv_graph(members, blocks)
    return Problem(graph, Costs(times, {(edge.source, edge.target): transfer for edge in graph.edges}, **costs))
