"""How the weights of an extracted graph follow from the seeded module that the graph was extracted from.

Every weight is a tensor of the module, a matrix of it transposed, or part of a convolution with one batch norm folded
into it. A recipe names that batch norm, so that some kilobytes make weights of hundreds of megabytes on a machine
without TVM, bit by bit as extraction writes them. What extraction has computed otherwise, such as embeddings of
constant positions, has no recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

#: For each weight the batch norm that is folded into it, `TRANSPOSED`, or None.
Recipe = dict[str, str | None]
#: No module has such a name.
TRANSPOSED, _NONE = ".T", ""
#: Filters that are compared before all of them are.
_FIRST = 4


def recipe_of(tensors: Mapping[str, Tensor], module: nn.Module) -> Recipe:
    """The recipe of weights, without those that are none of these."""
    known = _Module(module)
    found = {key: _source(key, tensor, known) for key, tensor in tensors.items()}
    return {key: source for key, source in found.items() if source != _NONE}


def weights_of(recipe: Recipe, module: nn.Module) -> dict[str, Tensor]:
    """The weights that a recipe makes from a module."""
    known = _Module(module)
    return {key: known.made(key, norm).detach().contiguous() for key, norm in recipe.items()}


def _source(key: str, tensor: Tensor, known: _Module) -> str | None:
    """What a weight is, or `_NONE`."""
    for norm in known.candidates(key) if tensor.ndim else ():  # single numbers are none of these
        if torch.equal(known.made(key, norm, _FIRST), tensor[:_FIRST]) and torch.equal(known.made(key, norm), tensor):
            return norm
    return _NONE


class _Module:
    """The tensors and batch norms of a module."""

    def __init__(self, module: nn.Module) -> None:
        self._state = dict(module.state_dict())
        self._norms: dict[str, Any] = {
            name: part for name, part in module.named_modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)
        }

    def candidates(self, key: str) -> list[str | None]:
        """What a weight may be: itself, or with one of the batch norms that fit its convolution."""
        filters = self._state.get(f"{key.rpartition('.')[0]}.weight")
        fits = [name for name, norm in self._norms.items() if filters is not None and len(norm.weight) == len(filters)]
        return [*([None, TRANSPOSED] if key in self._state else []), *fits]

    def made(self, key: str, norm: str | None, first: int | None = None) -> Tensor:
        """A weight, or its first rows; a batch norm is folded in as extraction does it, in double precision."""
        if norm is None:
            return self._state[key][:first]
        if norm == TRANSPOSED:
            return self._state[key].t()[:first] if self._state[key].ndim == 2 else self._state[key][:0]
        layer, _, kind = key.rpartition(".")
        filters, part = self._state[f"{layer}.weight"][:first], self._norms[norm]
        scale = part.weight[:first].double() / torch.sqrt(part.running_var[:first].double() + part.eps)
        if kind == "weight":
            return (filters.double() * scale.reshape(-1, *[1] * (filters.ndim - 1))).to(filters.dtype)
        mean, beta = part.running_mean[:first].double(), part.bias[:first].double()
        bias = self._state[key][:first].double() if key in self._state else torch.zeros_like(mean)
        return ((bias - mean) * scale + beta).to(filters.dtype)
