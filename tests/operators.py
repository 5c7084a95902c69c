"""Operators, tensors and values as graph.json has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hios import Operator
from hios.core.graph import TensorSpec, Value


def operator_from(name: str, kind: str, details: Mapping[str, Any]) -> Operator:
    """An operator; ``details`` is its entry in graph.json without id and type."""
    return msgspec.convert({"id": name, "type": kind, **details}, Operator)


#: Attributes of a convolution that does nothing special.
CONVOLUTION = {"strides": [1, 1], "padding": [0, 0, 0, 0], "dilation": [1, 1], "groups": 1}


def call(function: str, *arguments: Mapping[str, Any], **attributes: Any) -> dict[str, Any]:
    """A call of an operator, as its entry in graph.json has it; the function is given without ``relax.``."""
    return {"function": f"relax.{function}", "arguments": list(arguments), "attributes": attributes}


def unit(*calls: Mapping[str, Any]) -> Operator:
    """An operator of some calls."""
    return operator_from("unit", "test", {"calls": calls})


def value_from(entry: Mapping[str, Any]) -> Value:
    """A value, such as an output of a graph."""
    return msgspec.convert(entry, Value)


def tensor_from(entry: Mapping[str, Any]) -> TensorSpec:
    """A tensor, such as an input of a graph."""
    return msgspec.convert(entry, TensorSpec)
