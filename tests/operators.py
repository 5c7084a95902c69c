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


def value_from(entry: Mapping[str, Any]) -> Value:
    """A value, such as an output of a graph."""
    return msgspec.convert(entry, Value)


def tensor_from(entry: Mapping[str, Any]) -> TensorSpec:
    """A tensor, such as an input of a graph."""
    return msgspec.convert(entry, TensorSpec)
