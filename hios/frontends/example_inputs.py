"""Seeded random inputs for a graph, or with the shapes of given ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hios.core.graph import TensorSpec
from hios.frontends.model_declarations import Declarations


def example_inputs(inputs: Sequence[TensorSpec], seed: int) -> tuple[Tensor, ...]:
    """Seeded random inputs; integers stay below the ``below`` of graph.json, or are 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(_example(entry.shape, getattr(torch, entry.dtype), entry.below, generator) for entry in inputs)


def inputs_like(given: Sequence[Tensor], seed: int) -> tuple[Tensor, ...]:
    """Seeded random inputs of the same shapes and dtypes; integers do not exceed the largest given one."""
    generator = torch.Generator().manual_seed(seed)
    limits = Declarations().for_inputs(given).below
    return tuple(
        _example(value.shape, value.dtype, below, generator) for value, below in zip(given, limits, strict=True)
    )


def _example(shape: Sequence[int], dtype: torch.dtype, below: int | None, generator: torch.Generator) -> Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(tuple(shape), generator=generator, dtype=dtype)
    end = min(below or 2, torch.iinfo(torch.int64).max)  # of what torch draws
    return torch.randint(0, end, tuple(shape), generator=generator, dtype=dtype)
