"""hios.optimize: which changes of a model are seen, and models with hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations

import hios
from hios import HiosWarning
from hios.optimizing.module import Guards, has_hooks
from tests.runtime.small import Branches


class Tagged(Branches):
    """A network with attributes of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.plain = torch.ones(1)
        self.array = np.zeros(3)
        self.adapter = None
        self.register_buffer("absent", None)
        self.register_buffer("one", torch.ones(1))


def _in_place(model: Tagged) -> None:
    with torch.no_grad():
        model.stem.weight.mul_(2)


def _other_data(model: Tagged) -> None:
    model.stem.weight.data = model.stem.weight.data * 2


def _loaded(model: Tagged) -> None:
    model.load_state_dict(Tagged().state_dict())


def _other_buffer(model: Tagged) -> None:
    model.left[1].running_mean.add_(1)


def _plain_in_place(model: Tagged) -> None:
    model.plain.add_(1)


def _other_parameter(model: Tagged) -> None:
    model.stem.weight = nn.Parameter(model.stem.weight.detach() * 2)


def _other_module(model: Tagged) -> None:
    model.right = nn.Conv2d(8, 8, 5, padding=2)


def _same_value(model: Tagged) -> None:
    model.one = torch.ones(1)


def _buffer_filled(model: Tagged) -> None:
    model.absent = torch.ones(1)


def _appended(model: Tagged) -> None:
    model.left.append(nn.Sigmoid())


def _removed(model: Tagged) -> None:
    del model.left[2]


def _reordered(model: Tagged) -> None:
    first = model.left._modules.pop("0")
    model.left._modules["0"] = first


def _parameter_added(model: Tagged) -> None:
    model.left[2].register_parameter("slope", nn.Parameter(torch.ones(1)))


def _adapter_added(model: Tagged) -> None:
    model.adapter = nn.Conv2d(3, 8, 1)


def _module_added(model: Tagged) -> None:
    model.stem.extra = nn.ReLU()


def _number(model: Tagged) -> None:
    model.scale = 5.0


def _stride(model: Tagged) -> None:
    model.right.stride = (2, 2)


def _array(model: Tagged) -> None:
    model.array = np.zeros(3)


def _other_plain(model: Tagged) -> None:
    model.plain = torch.ones(1)


def _new_attribute(model: Tagged) -> None:
    model.fresh = True


def _forward(model: Tagged) -> None:
    model.forward = lambda x: x


def _forward_of_a_part(model: Tagged) -> None:
    model.stem.forward = lambda x: x


def _hook(model: Tagged) -> None:
    model.stem.register_forward_hook(lambda module, inputs, output: output * 2)


def _pre_hook(model: Tagged) -> None:
    model.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))


def _class(model: Tagged) -> None:
    model.left[2].__class__ = nn.Sigmoid


def _parametrized(model: Tagged) -> None:
    parametrizations.weight_norm(model.stem)


_CHANGES = [
    (
        "its parameters or buffers were changed",
        [_in_place, _other_data, _loaded, _other_buffer, _plain_in_place],
    ),
    (
        "its parameters, buffers or submodules were replaced",
        [
            _other_parameter,
            _other_module,
            _same_value,
            _buffer_filled,
            _appended,
            _removed,
            _reordered,
            _parameter_added,
            _adapter_added,
            _module_added,
            _parametrized,
        ],
    ),
    (
        "attributes of it were set",
        [_number, _stride, _array, _other_plain, _new_attribute, _forward, _forward_of_a_part],
    ),
    ("hooks were added", [_hook, _pre_hook]),
    ("a class of its modules, or the forward of one, was replaced", [_class]),
]


def _image() -> Tensor:
    return torch.ones(1, 3, 8, 8)


@pytest.mark.parametrize(("change", "words"), [(change, words) for words, changes in _CHANGES for change in changes])
def test_changes_are_seen(change: Callable[[Any], None], words: str) -> None:
    """However a model is changed, the guards see it; running and evaluating the model are no changes."""
    model = Tagged().eval()
    guards = Guards(model)
    model.eval()(_image())
    assert guards.changed() == ""
    change(model)
    assert guards.changed() == words


def test_a_class_that_runs_otherwise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another forward of a class counts for all its modules."""
    guards = Guards(Tagged())
    monkeypatch.setattr(nn.BatchNorm2d, "forward", lambda self, x: x)
    assert "forward" in guards.changed()


def test_mode_is_seen() -> None:
    """A single submodule in train mode is a change, and back again none."""
    model = Tagged().eval()
    guards = Guards(model)
    model.left.train()
    assert guards.changed() == "it was switched between train and eval mode"
    model.left.eval()
    assert guards.changed() == ""


def test_hooks_of_all_modules_are_seen() -> None:
    """A hook that torch calls for every module counts while it is there."""
    model = Tagged()
    guards = Guards(model)
    handle = register_module_forward_hook(lambda module, inputs, output: None)
    try:
        assert guards.changed() == "hooks were added"
        assert has_hooks(model)
    finally:
        handle.remove()
    assert guards.changed() == ""
    assert not has_hooks(model)


def test_models_with_hooks_run_themselves() -> None:
    """A model with a hook is left as it is, with a warning; its hook runs once in every call and at no other time."""
    model, seen = Branches().eval(), []
    model.left.register_forward_hook(lambda module, inputs, output: seen.append(1))
    with pytest.warns(HiosWarning, match="Branches is left as it is: found hooks"):
        fast = hios.optimize(model, _image(), cache=False, least_ms=0.0)
    assert seen == []
    fast(_image())
    assert seen == [1]
