"""hios.optimize: which changes of a model are seen, and models with hooks."""

from __future__ import annotations

import copy
import sys
import sysconfig
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations
from torch.utils.flop_counter import FlopCounterMode

import hios
from hios import HiosWarning
from hios.optimizing import untouched
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
        self.register_buffer("square", torch.arange(4.0).reshape(2, 2))
        self.register_buffer("six", torch.arange(64.0).reshape(2, 2, 2, 2, 2, 2))


def _in_place(model: Tagged) -> None:
    with torch.no_grad():
        model.stem.weight.mul_(2)


def _other_data(model: Tagged) -> None:
    model.stem.weight.data = model.stem.weight.data * 2


def _transposed(model: Tagged) -> None:
    model.square.data = model.square.data.t()


def _transposed_of_six(model: Tagged) -> None:
    model.six.data = model.six.data.transpose(0, 1)


def _read_as_another_dtype(model: Tagged) -> None:
    model.square.data = model.square.data.view(torch.int32)


def _negated(model: Tagged) -> None:
    model.square.data = torch._neg_view(model.get_buffer("square").data)


def _narrowed(model: Tagged) -> None:
    model.square.data = model.square.data[:1]


def _swapped(model: Tagged) -> None:
    torch.utils.swap_tensors(model.stem.weight, nn.Parameter(model.stem.weight.detach() * 2))


def _view_in_place(model: Tagged) -> None:
    model.stem.weight.detach()[0].zero_()


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


#: Changes, and what the guards say about each.
_CHANGES: list[tuple[Callable[[Tagged], None], str]] = [
    (_in_place, "its parameter stem.weight was changed"),
    (_other_data, "its parameter stem.weight was changed"),
    (_transposed, "its buffer square was changed"),
    (_narrowed, "its buffer square was changed"),
    (_transposed_of_six, "its buffer six was changed"),
    (_read_as_another_dtype, "its buffer square was changed"),
    (_negated, "its buffer square was changed"),
    (_swapped, "its parameter stem.weight was changed"),
    (_view_in_place, "its parameter stem.weight was changed"),
    (_loaded, "its buffer one was changed"),
    (_other_buffer, "its buffer left.1.running_mean was changed"),
    (_plain_in_place, "its attribute plain was changed"),
    (_other_parameter, "its parameter stem.weight was set or replaced"),
    (_other_module, "its submodule right was set or replaced"),
    (_same_value, "its buffer one was set or replaced"),
    (_buffer_filled, "its buffer absent was set or replaced"),
    (_appended, "its submodule left.3 was set or replaced"),
    (_removed, "its submodule left.2 was set or replaced"),
    (_reordered, "its parameters, buffers or submodules were reordered"),
    (_parameter_added, "its parameter left.2.slope was set or replaced"),
    (_adapter_added, "its attribute adapter was set or replaced"),
    (_module_added, "its submodule stem.extra was set or replaced"),
    (_parametrized, "its parameter stem.weight was set or replaced"),
    (_number, "its attribute scale was set or replaced"),
    (_stride, "its attribute right.stride was set or replaced"),
    (_array, "its attribute array was set or replaced"),
    (_other_plain, "its attribute plain was set or replaced"),
    (_new_attribute, "its attribute fresh was set or replaced"),
    (_forward, "its attribute forward was set or replaced"),
    (_forward_of_a_part, "its attribute stem.forward was set or replaced"),
    (_hook, "hooks of stem were added"),
    (_pre_hook, "hooks of the model were added"),
    (_class, "the class of left.2, or its forward, was set or replaced"),
]


def _image() -> Tensor:
    return torch.ones(1, 3, 8, 8)


@pytest.mark.parametrize("way", ["natively", "asked", "compared"])
@pytest.mark.parametrize(("change", "words"), _CHANGES)
def test_changes_are_seen(change: Callable[[Any], None], words: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a model is changed, the guards see it, also where they ask, and where nobody counts all writes.

    Running and evaluating are no changes.
    """
    if way != "natively":
        monkeypatch.setattr(untouched, "is_readable", lambda: False)
    if way == "compared":
        monkeypatch.setattr(untouched, "_version", lambda: untouched._held)
    model = Tagged().eval()
    guards = Guards(model)
    model.eval()(_image())
    assert guards.changed() == ""
    change(model)
    assert guards.changed() == words


def test_counters_are_read_natively() -> None:
    """No call asks for tensors, nor for dictionaries where CPython counts writes; and what is freed is not read."""
    assert untouched.are_counted() == (sys.version_info < (3, 13))
    with torch.inference_mode():
        untouched.is_readable.cache_clear()
        assert untouched.is_readable() == (not sysconfig.get_config_var("Py_GIL_DISABLED"))
    tensor, owner = torch.zeros(1000), nn.ReLU()
    same = untouched.Untouched([vars(owner)], [owner], [tensor])
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
    if not untouched.is_readable():
        pytest.skip("no memory is read here")
    tensor = torch.zeros(3).add_(1).mul_(2).add_(1)
    assert untouched._found([], [], [tensor])
    monkeypatch.setattr(untouched, place, 8)
    assert not untouched._found([], [], [tensor])


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


def _compiled(model: Tagged) -> None:
    torch.compile(model, backend="eager")(_image())


def _compiled_in_place(model: Tagged) -> None:
    model.compile(backend="eager")
    model.left.compile(backend="eager")
    model(_image())


def _exported(model: Tagged) -> None:
    torch.export.export(model, (_image(),))


def _scripted(model: Tagged) -> None:
    torch.jit.script(model.left)
    torch.jit.trace(model, _image())


def _profiled(model: Tagged) -> None:
    with torch.profiler.profile(with_modules=True, with_stack=True):
        model(_image())


def _counted(model: Tagged) -> None:
    with FlopCounterMode(display=False):
        model(_image())


def _hooks_of_others(model: Tagged) -> None:
    nn.Sequential(nn.ReLU(), Branches()).register_forward_hook(lambda module, inputs, output: output * 2)


def _hooks_of_gradients(model: Tagged) -> None:
    model.register_full_backward_hook(lambda module, given, output: None)


def _copied(model: Tagged) -> None:
    copy.deepcopy(model)(_image())


def _moved_nowhere(model: Tagged) -> None:
    model.to("cpu").float().requires_grad_(False).eval()


def _set_to_what_it_is(model: Tagged) -> None:
    model.scale, model.right.stride = float("1.0"), (int("1"), 1)
    model.stem.weight = model.stem.weight
    model.left[2] = model.left[2]


@pytest.mark.parametrize(
    "use",
    [
        _compiled,
        _compiled_in_place,
        _exported,
        _scripted,
        _profiled,
        _counted,
        _hooks_of_others,
        _hooks_of_gradients,
        _copied,
        _moved_nowhere,
        _set_to_what_it_is,
    ],
)
def test_tools_are_no_changes(use: Callable[[Tagged], None]) -> None:
    """What tools of torch set on the model and what sets values that it has does not count; later changes do."""
    torch._dynamo.reset()
    model = Tagged().eval()
    guards = Guards(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
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
        fast = hios.optimize(model, _image(), cache=False, least_ms=0.0)
    assert seen == []
    fast(_image())
    assert seen == [1]
