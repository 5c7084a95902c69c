"""Shapes, dtypes and sizes of the values of a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from hios.graph import Graph
from hios.kernels.compiled_operator import External


def torch_dtype(name: str) -> torch.dtype:
    """Torch's dtype of a name such as float32."""
    dtype: Any = getattr(torch, name)
    return dtype


def nbytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a tensor."""
    return math.prod(shape) * int(torch_dtype(dtype).itemsize)


def value_type(graph: Graph, value: External) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of an operator's output."""
    return graph.operators[graph.index[value[1]]].output_types[value[2]]
