"""Whether a model is still the one that was optimised: a graph's weights are copies that do not follow the model."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

_training = operator.attrgetter("training")
_version = operator.attrgetter("_version")


class Watch:
    """Sees when a model's parameters, buffers or submodules are changed or replaced, or its mode is.

    What it sees: changes in place (the version counters that autograd keeps), other memory (``tensor.data = ...``),
    other objects in their places, and ``train`` and ``eval`` of any submodule. What it cannot see: writes that bypass
    torch, such as through ``tensor.numpy()`` or ``tensor.data``, changes in place of tensors that were made in
    inference mode, and attributes that are neither parameter, buffer nor submodule.

    Args:
        model: in the state that counts.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(model.modules())
        held = [
            (table, name, value)
            for module in self._modules
            for table in (module._parameters, module._buffers, module._modules)
            for name, value in table.items()
        ]
        self._tables: list[dict[str, Any]] = [table for table, _, _ in held]
        self._names = [name for _, name, _ in held]
        self._values = [value for _, _, value in held]
        tensors = [value for value in self._values if isinstance(value, Tensor)]
        self._tensors = tensors
        self._counted = [tensor for tensor in tensors if not tensor.is_inference()]
        self._state = self._seen()

    def _seen(self) -> tuple[list[Any], ...]:
        return (
            list(map(_training, self._modules)),
            list(map(_version, self._counted)),
            list(map(Tensor.data_ptr, self._tensors)),
        )

    def changed(self) -> str:
        """What changed since the watch began, in words; empty if nothing did."""
        if not _all_same(map(dict.get, self._tables, self._names), self._values):
            return "its parameters, buffers or submodules were replaced"
        training, versions, places = self._seen()
        if training != self._state[0]:
            return "it was switched between train and eval mode"
        if versions != self._state[1] or places != self._state[2]:
            return "its parameters or buffers were changed"
        return ""


def _all_same(found: Iterable[Any], values: Iterable[Any]) -> bool:
    return all(map(operator.is_, found, values))
