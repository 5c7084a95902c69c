"""Signatures: operators with equal signatures cost the same and are measured once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from hios.graph import Graph, Operator

#: Batch, channels, height, width.
_IMAGE_DIMENSIONS = 4


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
                outside = ["input"] if value[0] == "input" and len(shape[0]) == _IMAGE_DIMENSIONS else []
                arguments.append(["value", numbers.setdefault(value, len(numbers)), shape, *outside])
            elif argument.weight is not None:
                arguments.append(["weight", types[argument.weight]])
            else:
                arguments.append(msgspec.to_builtins(argument))
        calls.append([call.function, arguments, call.attributes])
    return json.dumps(calls, sort_keys=True)
