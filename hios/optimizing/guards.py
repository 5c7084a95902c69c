"""Guards: whether a model has changed since it was optimized, as the graph holds copies of its weights.

Dynamo's guards cannot take the place of these (torch 2.13): its graphs have weights as inputs, so weights that were
changed or replaced, another submodule of the same type, hooks, and another ``forward`` of a module pass its guards.
"""

from __future__ import annotations

import operator
from itertools import chain
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

_version = operator.attrgetter("_version")
#: Hooks of torch that every module calls.
_EVERYWHERE = (torch_modules._global_forward_hooks, torch_modules._global_forward_pre_hooks)


def has_hooks(model: nn.Module) -> bool:
    """Whether hooks are registered on a module or on all modules."""
    return any(_EVERYWHERE) or any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class Guards:
    """Compares a model with its earlier state, fast enough for every call: about 0.1 microseconds per entry.

    What it sees: parameters, buffers and submodules that were added, removed, replaced or reordered, changed in place
    (by the version counters that autograd keeps) or moved to other memory (``tensor.data = ...``); attributes that were
    set on any module, ``forward``, the class and the mode of train and eval among them; hooks of calls; another
    ``forward`` of a class.

    What it does not see: what is inside other objects that are attributes, such as lists; writes that bypass torch, as
    through ``tensor.numpy()`` or ``tensor.data``; changes in place of tensors that were made in inference mode; and
    whatever the model's code reads that no module holds.

    Args:
        model: in the state that counts, without hooks.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(model.modules())
        self._attributes = [module.__dict__ for module in self._modules]
        self._hooks = [
            hooks for module in self._modules for hooks in (module._forward_hooks, module._forward_pre_hooks)
        ]
        self._hooks.extend(_EVERYWHERE)
        self._classes: list[Any] = list(set(map(type, self._modules)))
        tables = [table for module in self._modules for table in (module._parameters, module._buffers, module._modules)]
        self._empty: list[dict[str, Any]] = [table for table in tables if not table]
        self._filled: list[dict[str, Any]] = [table for table in tables if table]
        self._held = list(chain.from_iterable(map(dict.values, self._filled)))
        self._plain = [
            (attributes, name)
            for attributes in self._attributes
            for name, value in attributes.items()
            if isinstance(value, Tensor)
        ]
        plain = [attributes[name] for attributes, name in self._plain]
        self._tensors = [value for value in (*self._held, *plain) if isinstance(value, Tensor)]
        self._counted = [tensor for tensor in self._tensors if not tensor.is_inference()]
        self._plain_held = plain
        # Comparing lists is fast, as Python does not look further into elements that are the same object.
        self._training = self._modes()
        self._set = self._values()
        self._kinds = self._code()
        self._names = list(chain.from_iterable(self._filled))
        self._state = self._contents()

    def _modes(self) -> list[bool]:
        return [module.training for module in self._modules]

    def _values(self) -> list[Any]:
        return list(chain.from_iterable(map(dict.values, self._attributes)))

    def _code(self) -> tuple[list[type], list[Any]]:
        return list(map(type, self._modules)), [kind.forward for kind in self._classes]

    def _contents(self) -> tuple[list[int], list[int]]:
        return list(map(_version, self._counted)), list(map(Tensor.data_ptr, self._tensors))

    def changed(self) -> str:
        """What has changed, in words; empty if nothing has."""
        if self._replaced():
            return "its parameters, buffers or submodules were replaced"
        if self._code() != self._kinds:
            return "a class of its modules, or the forward of one, was replaced"
        if any(self._hooks):
            return "hooks were added"
        if self._attributes_set():
            switched = self._modes() != self._training
            return "it was switched between train and eval mode" if switched else "attributes of it were set"
        if self._contents() != self._state:
            return "its parameters or buffers were changed"
        return ""

    def _replaced(self) -> bool:
        return (
            any(self._empty)
            or list(chain.from_iterable(self._filled)) != self._names
            or not all(map(operator.is_, chain.from_iterable(map(dict.values, self._filled)), self._held))
        )

    def _attributes_set(self) -> bool:
        try:
            if self._values() != self._set:
                return True
        except (ValueError, RuntimeError):  # arrays and tensors, which do not compare as one
            return True
        return any(
            attributes[name] is not own for (attributes, name), own in zip(self._plain, self._plain_held, strict=True)
        )
