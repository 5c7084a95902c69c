"""Graphs of single operators, with calls and shapes."""

from __future__ import annotations

from typing import Any

from hios import Graph

_CONVOLUTION = {"strides": [1, 1], "padding": [0, 0, 0, 0], "dilation": [1, 1], "groups": 1}


def one_operator(
    function: str,
    inputs: list[list[int]],
    output: list[int],
    *,
    weights: list[list[int]] | None = None,
    attributes: dict[str, Any] | None = None,
    dtype: str = "float32",
    then: str | None = None,
) -> Graph:
    """A graph of one operator that calls a Relax operator, and another behind it if ``then`` names one."""
    tensors = {f"x{number}": shape for number, shape in enumerate(inputs)}
    constants = {f"w{number}": shape for number, shape in enumerate(weights or [])}
    calls = [
        {
            "function": function,
            "arguments": [*({"input": name} for name in tensors), *({"weight": name} for name in constants)],
            "attributes": attributes or {},
        }
    ]
    if then is not None:
        calls.append({"function": then, "arguments": [{"call": 0}], "attributes": {}})
    return Graph.from_json(
        {
            "name": "one",
            "operators": [
                {
                    "id": "v",
                    "type": "operator",
                    "calls": calls,
                    "shapes": {"inputs": inputs, "outputs": [output]},
                    "dtype": dtype,
                }
            ],
            "edges": [],
            "inputs": [{"name": name, "shape": shape, "dtype": dtype} for name, shape in tensors.items()],
            "outputs": [{"operator": "v"}],
            "weights": [{"name": name, "shape": shape, "dtype": dtype} for name, shape in constants.items()],
        }
    )


def convolution(
    channels: int = 64, filters: int = 64, pixels: int = 16, window: int = 1, batch: int = 1, **changes: Any
) -> Graph:
    """A convolution that keeps the size of its image."""
    edge = window // 2
    attributes = {**_CONVOLUTION, "padding": [edge] * 4, **changes}
    groups = attributes["groups"]
    return one_operator(
        "relax.nn.conv2d",
        [[batch, channels, pixels, pixels]],
        [batch, filters, pixels, pixels],
        weights=[[filters, channels // groups, window, window]],
        attributes=attributes,
    )
