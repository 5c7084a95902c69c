"""hios.optimize: which changes of a model are seen, and models with hooks."""

from __future__ import annotations

import copy
import sys
import sysconfig
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations
from torch.utils.flop_counter import FlopCounterMode

import hios
from hios import HiosWarning
from hios.optimizing import mutation_detection
from hios.optimizing.module import Guards, has_hooks
from hios.optimizing.tracing import export
from tests.optimizing.optimized_models import image
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
        self.register_buffer("square", torch.arange(4.0).reshape(2, 2))
        self.register_buffer("six", torch.arange(64.0).reshape(2, 2, 2, 2, 2, 2))


def _in_place(model: Tagged) -> None:
    with torch.no_grad():
        model.stem.weight.mul_(2)


def _other_data(model: Tagged) -> None:
    model.stem.weight.data = model.stem.weight.data * 2


def _other_parameter(model: Tagged) -> None:
    model.stem.weight = nn.Parameter(model.stem.weight.detach() * 2)


def _other_module(model: Tagged) -> None:
    model.right = nn.Conv2d(8, 8, 5, padding=2)


def _reordered(model: Tagged) -> None:
    first = model.left._modules.pop("0")
    model.left._modules["0"] = first


def _class(model: Tagged) -> None:
    model.left[2].__class__ = nn.Sigmoid


#: Changes by name, and what the guards say about each.
_CHANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "in place": (_in_place, "its parameter stem.weight was changed"),
    "other data": (_other_data, "its parameter stem.weight was changed"),
    "transposed": (
        lambda model: setattr(model.square, "data", model.square.data.t()),
        "its buffer square was changed",
    ),
    "narrowed": (lambda model: setattr(model.square, "data", model.square.data[:1]), "its buffer square was changed"),
    "transposed, of six dimensions": (
        lambda model: setattr(model.six, "data", model.six.data.transpose(0, 1)),
        "its buffer six was changed",
    ),
    "read as another dtype": (
        lambda model: setattr(model.square, "data", model.square.data.view(torch.int32)),
        "its buffer square was changed",
    ),
    "negated": (
        lambda model: setattr(model.square, "data", torch._neg_view(model.square.data)),
        "its buffer square was changed",
    ),
    "swapped": (
        lambda model: torch.utils.swap_tensors(model.stem.weight, nn.Parameter(model.stem.weight.detach() * 2)),
        "its parameter stem.weight was changed",
    ),
    "view in place": (lambda model: model.stem.weight.detach()[0].zero_(), "its parameter stem.weight was changed"),
    "loaded": (lambda model: model.load_state_dict(Tagged().state_dict()), "its buffer one was changed"),
    "other buffer": (
        lambda model: model.left[1].running_mean.add_(1),
        "its buffer left.1.running_mean was changed",
    ),
    "plain in place": (lambda model: model.plain.add_(1), "its attribute plain was changed"),
    "other parameter": (_other_parameter, "its parameter stem.weight was set or replaced"),
    "other module": (_other_module, "its submodule right was set or replaced"),
    "same value": (lambda model: setattr(model, "one", torch.ones(1)), "its buffer one was set or replaced"),
    "buffer filled": (lambda model: setattr(model, "absent", torch.ones(1)), "its buffer absent was set or replaced"),
    "appended": (lambda model: model.left.append(nn.Sigmoid()), "its submodule left.3 was set or replaced"),
    "removed": (lambda model: model.left.pop(2), "its submodule left.2 was set or replaced"),
    "reordered": (_reordered, "its parameters, buffers or submodules were reordered"),
    "parameter added": (
        lambda model: model.left[2].register_parameter("slope", nn.Parameter(torch.ones(1))),
        "its parameter left.2.slope was set or replaced",
    ),
    "adapter added": (
        lambda model: setattr(model, "adapter", nn.Conv2d(3, 8, 1)),
        "its attribute adapter was set or replaced",
    ),
    "module added": (
        lambda model: setattr(model.stem, "extra", nn.ReLU()),
        "its submodule stem.extra was set or replaced",
    ),
    "parametrized": (
        lambda model: parametrizations.weight_norm(model.stem),
        "its parameter stem.weight was set or replaced",
    ),
    "number": (lambda model: setattr(model, "scale", 5.0), "its attribute scale was set or replaced"),
    "stride": (lambda model: setattr(model.right, "stride", (2, 2)), "its attribute right.stride was set or replaced"),
    "array": (lambda model: setattr(model, "array", np.zeros(3)), "its attribute array was set or replaced"),
    "other plain": (lambda model: setattr(model, "plain", torch.ones(1)), "its attribute plain was set or replaced"),
    "new attribute": (lambda model: setattr(model, "fresh", True), "its attribute fresh was set or replaced"),
    "forward": (lambda model: setattr(model, "forward", lambda x: x), "its attribute forward was set or replaced"),
    "forward of a part": (
        lambda model: setattr(model.stem, "forward", lambda x: x),
        "its attribute stem.forward was set or replaced",
    ),
    "hook": (
        lambda model: model.stem.register_forward_hook(lambda module, inputs, output: output * 2),
        "hooks of stem were added",
    ),
    "hook before": (
        lambda model: model.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,)),
        "hooks of the model were added",
    ),
    "class": (_class, "the class of left.2, or its forward, was set or replaced"),
}


@pytest.mark.parametrize("way", ["natively", "asked", "compared"])
@pytest.mark.parametrize(("change", "words"), _CHANGES.values(), ids=_CHANGES)
def test_changes_are_seen(
    change: Callable[[Any], object], words: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a model is changed, the guards see it, also where they ask, and where nobody counts all writes.

    Running and evaluating are no changes.
    """
    if way != "natively":
        monkeypatch.setattr(mutation_detection, "is_readable", lambda: False)
    if way == "compared":
        monkeypatch.setattr(mutation_detection, "_version", lambda: mutation_detection._held)
    model = Tagged().eval()
    guards = Guards(model)
    model.eval()(image(0))
    assert guards.changed() == ""
    change(model)
    assert guards.changed() == words


def test_counters_are_read_natively() -> None:
    """No call asks for tensors, nor for dictionaries where CPython counts writes; and what is freed is not read."""
    assert mutation_detection.are_counted() == (sys.version_info < (3, 13))
    with torch.inference_mode():
        mutation_detection.is_readable.cache_clear()
        assert mutation_detection.is_readable() == (not sysconfig.get_config_var("Py_GIL_DISABLED"))
    tensor, owner = torch.zeros(1000), nn.ReLU()
    same = mutation_detection.Untouched([vars(owner)], [owner], [tensor])
    for _ in range(3):
        assert same.holds()
        torch.zeros(1000).add_(tensor)
    tensor.data = torch.zeros(1000)
    assert not same.holds()
    torch.utils.swap_tensors(tensor, torch.zeros(3))
    assert not same.holds()


@pytest.mark.parametrize("place", ["_IMPLEMENTATION", "_STORAGE", "_DATA", "_WRITES"])
def test_words_that_are_not_where_they_should_be(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No word is read of tensors whose memory does not say what torch does."""
    if not mutation_detection.is_readable():
        pytest.skip("no memory is read here")
    tensor = torch.zeros(3).add_(1).mul_(2).add_(1)
    assert mutation_detection._found([], [], [tensor])
    monkeypatch.setattr(mutation_detection, place, 8)
    assert not mutation_detection._found([], [], [tensor])


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
    assert guards.changed() == "the mode (train or eval) of left was set or replaced"
    model.left.eval()
    assert guards.changed() == ""


def test_hooks_of_all_modules_are_seen() -> None:
    """A hook that torch calls for every module counts while it is there."""
    model = Tagged()
    guards = Guards(model)
    handle = register_module_forward_hook(lambda module, inputs, output: None)
    try:
        assert guards.changed() == "hooks were added to all modules"
        assert has_hooks(model)
    finally:
        handle.remove()
    assert guards.changed() == ""
    assert not has_hooks(model)


def _library_hook(module: nn.Module, inputs: Any, output: Any) -> None:
    """A hook that does nothing, as a library has it."""


def test_hooks_of_the_models_library_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library of a model installs belongs to it, as transformers does in a first call; other hooks do not."""
    model = Tagged()
    handle = model.stem.register_forward_hook(_library_hook)
    assert has_hooks(model)
    monkeypatch.setattr(_library_hook, "__module__", "numpy.linalg")
    assert has_hooks(model)
    monkeypatch.setattr(Tagged, "__module__", "numpy.linalg")
    assert not has_hooks(model)
    guards = Guards(model)
    other = model.stem.register_forward_hook(lambda module, inputs, output: output * 2)
    assert has_hooks(model)
    assert guards.changed() == "hooks of stem were changed"
    other.remove()
    assert guards.changed() == ""
    handle.remove()
    assert guards.changed() == "hooks of stem were changed"


def _compiled_in_place(model: Tagged) -> None:
    model.compile(backend="eager")
    model.left.compile(backend="eager")
    model(image(0))


def _scripted(model: Tagged) -> None:
    torch.jit.script(model.left)
    torch.jit.trace(model, image(0))


def _within(context: AbstractContextManager[Any], model: Tagged) -> None:
    with context:
        model(image(0))


def _set_to_what_it_is(model: Tagged) -> None:
    model.scale, model.right.stride = float("1.0"), (int("1"), 1)
    model.stem.weight = model.stem.weight
    model.left[2] = model.left[2]


_USES: dict[str, Callable[[Any], object]] = {
    "compiled": lambda model: torch.compile(model, backend="eager")(image(0)),
    "compiled in place": _compiled_in_place,
    "exported": lambda model: torch.export.export(model, (image(0),)),
    "exported by hios": lambda model: export(model, (image(0),), {}),
    "scripted": _scripted,
    "profiled": lambda model: _within(torch.profiler.profile(with_modules=True, with_stack=True), model),
    "counted": lambda model: _within(FlopCounterMode(display=False), model),
    "hooks of others": lambda model: nn.Sequential(nn.ReLU(), Branches()).register_forward_hook(
        lambda module, inputs, output: output * 2
    ),
    "hooks of gradients": lambda model: model.register_full_backward_hook(lambda module, given, output: None),
    "copied": lambda model: copy.deepcopy(model)(image(0)),
    "moved nowhere": lambda model: model.to("cpu").float().requires_grad_(False).eval(),
    "set to what it is": _set_to_what_it_is,
}


@pytest.mark.parametrize("use", _USES.values(), ids=_USES)
def test_tools_are_no_changes(use: Callable[[Any], object]) -> None:
    """What tools of torch set on the model and what sets values that it has does not count; later changes do."""
    torch._dynamo.reset()
    model = Tagged().eval()
    guards = Guards(model)
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):  # torch.jit is deprecated
        use(model)
    assert guards.changed() == ""
    _in_place(model)
    assert guards.changed() == "its parameter stem.weight was changed"


def test_what_is_undone_is_no_change() -> None:
    """A value, parameter, submodule, class, mode, address or hook that is back again is as if it had never gone."""
    model = Tagged().eval()
    guards = Guards(model)
    weight, data, right = model.stem.weight, model.stem.weight.data, model.right
    handles: list[Any] = []
    steps: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (lambda: setattr(model, "scale", 2.0), lambda: setattr(model, "scale", 1.0)),
        (lambda: setattr(model, "fresh", 2.0), lambda: delattr(model, "fresh")),
        (lambda: setattr(model.stem, "forward", len), lambda: delattr(model.stem, "forward")),
        (lambda: _other_parameter(model), lambda: setattr(model.stem, "weight", weight)),
        (lambda: _other_module(model), lambda: setattr(model, "right", right)),
        (lambda: _other_data(model), lambda: setattr(weight, "data", data)),
        (lambda: _class(model), lambda: setattr(model.left[2], "__class__", nn.ReLU)),
        (lambda: model.train(), lambda: model.eval()),
        (
            lambda: handles.append(model.right.register_forward_hook(lambda module, inputs, output: None)),
            lambda: handles.pop().remove(),
        ),
    ]
    for change, undo in steps:
        change()
        assert guards.changed() != ""
        undo()
        assert guards.changed() == ""


def test_models_with_hooks_run_themselves() -> None:
    """A model with a hook is left as it is, with a warning; its hook runs once in every call and at no other time."""
    model, seen = Branches().eval(), []
    model.left.register_forward_hook(lambda module, inputs, output: seen.append(1))
    with pytest.warns(HiosWarning, match="Branches is left as it is: found hooks"):
        fast = hios.optimize(model, image(0), cache=False, least_ms=0.0)
    assert seen == []
    fast(image(0))
    assert seen == [1]
