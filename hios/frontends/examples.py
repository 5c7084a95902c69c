"""Seeded random inputs for a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hios.kernels.tensors import torch_dtype


def example_inputs(inputs: Sequence[Mapping[str, Any]], seed: int) -> tuple[Tensor, ...]:
    """Seeded random inputs.

    Args:
        inputs: as graph.json describes them; whole numbers stay below ``below``, or are 0 and 1.
        seed: of the random numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    return tuple(_example(entry, generator) for entry in inputs)


def _example(entry: Mapping[str, Any], generator: torch.Generator) -> Tensor:
    dtype = torch_dtype(entry["dtype"])
    if dtype.is_floating_point:
        return torch.randn(*entry["shape"], generator=generator, dtype=dtype)
    return torch.randint(0, entry.get("below", 2), tuple(entry["shape"]), generator=generator, dtype=dtype)
