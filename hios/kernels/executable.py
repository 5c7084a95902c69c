"""Whether a graph can be run: its calls are complete and say the same as its edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from hios.errors import ArtifactError
from hios.graph import Graph, Operator

_KINDS = ("operator", "input", "weight", "call", "constant")


def require_executable(graph: Graph) -> None:
    """Refuse graphs that can be scheduled but not run, or whose parts contradict each other.

    Raises:
        ArtifactError: an operator has no calls or shapes, a reference leads nowhere, a dtype is unknown, the
            edges are not those that the calls need, or the graph has no outputs.
    """
    for position, operator in enumerate(graph.operators):
        _check_operator(graph, f"{graph.source}: operators[{position}]", operator)
    for position, entry in enumerate((*graph.inputs, *graph.weights)):
        kind = "inputs" if position < len(graph.inputs) else "weights"
        _check_dtype(f"{graph.source}: {kind}: {entry['name']}", entry["dtype"])
    if not graph.outputs:
        raise ArtifactError(f"{graph.source}: outputs: found none; required to run it: at least one")
    for position, reference in enumerate(graph.outputs):
        field = f"{graph.source}: outputs[{position}]"
        _check_reference(graph, field, reference, 0)
        if "operator" not in reference:
            raise ArtifactError(f"{field}: an output that no operator makes cannot be run")
    _check_edges(graph)


def _check_operator(graph: Graph, field: str, operator: Operator) -> None:
    for key in ("calls", "shapes", "dtype"):
        if not operator.details.get(key):
            raise ArtifactError(
                f"{field}.{key}: operator {operator.id} has none, so it can be scheduled but not run; required: a "
                "graph written by hios extract"
            )
    if not operator.details["shapes"]["outputs"]:
        raise ArtifactError(f"{field}.shapes.outputs: found none; required: the shape of every output")
    _check_dtype(f"{field}.dtype", operator.details["dtype"])
    for number, call in enumerate(operator.details["calls"]):
        for place, argument in enumerate(call["arguments"]):
            _check_reference(graph, f"{field}.calls[{number}].arguments[{place}]", argument, number)


def _check_dtype(field: str, dtype: str) -> None:
    if not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise ArtifactError(f"{field}: found {dtype}; allowed: a dtype of torch, such as float32")


def _check_reference(graph: Graph, field: str, reference: Mapping[str, Any], calls: int) -> None:
    kinds = [kind for kind in _KINDS if kind in reference]
    if len(kinds) != 1:
        raise ArtifactError(
            f"{field}: found {' and '.join(kinds) or 'none'}; allowed: exactly one of {', '.join(_KINDS)}"
        )
    (kind,) = kinds
    target = reference[kind]
    if kind == "call" and target >= calls:
        raise ArtifactError(f"{field}.call: found {target}; allowed: an earlier call, below {calls}")
    names = {"input": graph.inputs, "weight": graph.weights}.get(kind)
    if names is not None and target not in {entry["name"] for entry in names}:
        raise ArtifactError(f"{field}.{kind}: found {target}, which the graph does not list under {kind}s")
    if kind == "operator":
        if target not in graph.index:
            raise ArtifactError(f"{field}.operator: found {target}, which is not the id of an operator")
        shapes = graph.operators[graph.index[target]].details.get("shapes", {}).get("outputs", [])
        if reference.get("item", 0) >= len(shapes):
            raise ArtifactError(f"{field}.item: found {reference.get('item', 0)}; allowed: below {len(shapes)}")


def _check_edges(graph: Graph) -> None:
    """The scheduler goes by the edges, the engine by the calls: they must say the same."""
    stated = Counter((edge.source, edge.target) for edge in graph.edges)
    needed = Counter(
        (argument["operator"], operator.id)
        for operator in graph.operators
        for call in operator.details["calls"]
        for argument in call["arguments"]
        if "operator" in argument
    )
    if stated != needed:
        source, target = next(iter((stated - needed) + (needed - stated)))
        raise ArtifactError(
            f"{graph.source}: edges: found {stated[source, target]} from {source} to {target}; required: "
            f"{needed[source, target]}, as the calls of {target} take its output"
        )
