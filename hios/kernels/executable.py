"""Whether a graph can be run: its calls are complete and agree with its edges; which of its operators cost the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import torch

from hios.core.graph import IMAGE_DIMENSIONS, Call, Graph, Operator, Value
from hios.errors import ArtifactError, UnsupportedError, shown
from hios.kernels.table import build


def require_executable(graph: Graph) -> None:
    """Refuse graphs that can be scheduled but not run, or whose parts contradict each other.

    Raises:
        UnsupportedError: the kernel table lacks a call, or cannot run it with its attributes.
        ArtifactError: an operator has no calls or shapes, a reference leads nowhere, a dtype is unknown, the
            edges are not those that the calls need, or the graph has no outputs.
    """
    for position, operator in enumerate(graph.operators):
        _check_operator(graph, f"{graph.source}: operators[{position}]", operator)
    for position, entry in enumerate((*graph.inputs, *graph.weights)):
        kind = "inputs" if position < len(graph.inputs) else "weights"
        _check_dtype(f"{graph.source}: {kind}: {shown(entry.name, quoted=False)}", entry.dtype)
    if not graph.outputs:
        raise ArtifactError(f"{graph.source}: outputs: found none; required to run it: at least one")
    for position, reference in enumerate(graph.outputs):
        field = f"{graph.source}: outputs[{position}]"
        _check_reference(graph, field, reference, 0)
        if reference.operator is None:
            raise ArtifactError(f"{field}: an output that no operator makes cannot be run")
    _check_edges(graph)


def _check_operator(graph: Graph, field: str, operator: Operator) -> None:
    for key in ("calls", "shapes", "dtype"):
        if not getattr(operator, key):
            raise ArtifactError(
                f"{field}.{key}: operator {shown(operator.id, quoted=False)} has none, so it can be scheduled but not "
                "run; required: a graph written by hios extract"
            )
    outputs = operator.output_types
    if not outputs:
        raise ArtifactError(f"{field}.shapes.outputs: found none; required: the shape of every output")
    if operator.dtypes is not None and len(operator.dtypes) != len(outputs):
        raise ArtifactError(f"{field}.dtypes: found {len(operator.dtypes)}; required: one for each of its outputs")
    for dtype in (operator.dtype or "", *(dtype for _, dtype in outputs)):
        _check_dtype(f"{field}.dtype", dtype)
    for number, call in enumerate(operator.calls):
        _check_call(f"{field}.calls[{number}]", operator.id, call)
        for place, argument in enumerate(call.arguments):
            _check_reference(graph, f"{field}.calls[{number}].arguments[{place}]", argument, number)


def _check_call(field: str, operator: str, call: Call) -> None:
    """Check the attributes of a call before a worker runs it, as some would crash the process."""
    try:
        build(call.function, call.attributes, shown(operator, quoted=False))
    except UnsupportedError as error:
        raise UnsupportedError(f"{field}: {error}") from None


def _check_dtype(field: str, dtype: str) -> None:
    if not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise ArtifactError(f"{field}: found {shown(dtype, quoted=False)}; allowed: a dtype of torch, such as float32")


def _check_reference(graph: Graph, field: str, reference: Value, calls: int) -> None:
    kinds = reference.kinds
    if len(kinds) != 1:
        raise ArtifactError(
            f"{field}: found {' and '.join(kinds) or 'none'}; allowed: exactly one of operator, input, weight, call, "
            "constant"
        )
    if reference.call is not None and reference.call >= calls:
        raise ArtifactError(f"{field}.call: found {reference.call}; allowed: an earlier call, below {calls}")
    for kind, name, known in (
        ("input", reference.input, graph.inputs),
        ("weight", reference.weight, graph.weights),
    ):
        if name is not None and name not in {tensor.name for tensor in known}:
            raise ArtifactError(
                f"{field}.{kind}: found {shown(name, quoted=False)}, which the graph does not list under {kind}s"
            )
    if reference.operator is not None:
        if reference.operator not in graph.index:
            name = shown(reference.operator, quoted=False)
            raise ArtifactError(f"{field}.operator: found {name}, which is not the id of an operator")
        shapes = graph.operators[graph.index[reference.operator]].shapes
        outputs = 0 if shapes is None else len(shapes.outputs)
        if (reference.item or 0) >= outputs:
            raise ArtifactError(f"{field}.item: found {reference.item or 0}; allowed: below {outputs}")


def _check_edges(graph: Graph) -> None:
    """Check that edges and calls agree: the scheduler uses the edges, the engine the calls."""
    stated = Counter((edge.source, edge.target) for edge in graph.edges)
    needed = Counter(
        (argument.operator, operator.id)
        for operator in graph.operators
        for call in operator.calls
        for argument in call.arguments
        if argument.operator is not None
    )
    if stated != needed:
        source, target = next(iter((stated - needed) + (needed - stated)))
        raise ArtifactError(
            f"{graph.source}: edges: found {stated[source, target]} from {source} to {target}; required: "
            f"{needed[source, target]}, as the calls of {target} take its output"
        )


def signatures(graph: Graph) -> dict[str, str]:
    """Signature of every operator by id: its calls with shapes and dtypes in place of names.

    Two operators of one signature run the same torch calls on tensors of the same shapes; only the numbers in
    them differ.
    """
    types: dict[str, list[Any]] = {weight.name: [weight.shape, weight.dtype] for weight in graph.weights}
    types.update({f"input {entry.name}": [entry.shape, entry.dtype] for entry in graph.inputs})
    for operator in graph.operators:
        types[f"operator {operator.id}"] = [
            [shape for shape, _ in operator.output_types],
            operator.dtypes or operator.dtype,
        ]
    return {operator.id: _signature(operator, types) for operator in graph.operators}


def _signature(operator: Operator, types: Mapping[str, Any]) -> str:
    calls = []
    numbers: dict[Any, int] = {}
    for call in operator.calls:
        arguments = []
        for argument in call.arguments:
            value = argument.external
            if value is not None:
                kind = types[f"{value[0]} {value[1]}"]
                # Repeated arguments matter: x + x reads half as much as x + y.
                shape = kind if value[0] == "input" else [kind[0][value[2]], kind[1]]
                # Images from operators have another memory format than inputs.
                outside = ["input"] if value[0] == "input" and len(shape[0]) == IMAGE_DIMENSIONS else []
                arguments.append(["value", numbers.setdefault(value, len(numbers)), shape, *outside])
            elif argument.weight is not None:
                arguments.append(["weight", types[argument.weight]])
            else:
                arguments.append(msgspec.to_builtins(argument))
        calls.append([call.function, arguments, call.attributes])
    return json.dumps(calls, sort_keys=True)
