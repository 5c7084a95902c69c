"""hios.optimize and the backend of torch.compile leave state and inputs as the user's own calls make them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import hios
from hios import HiosWarning
from hios.errors import UnsupportedError
from hios.optimizing.purity import require_pure
from tests.openvino_marker import OPENVINO
from tests.optimizing.optimized_models import Acting, as_optimized, image

#: Something outside the model that a model may write into.
_OUTSIDE = torch.zeros(2)


def _cache(model: Acting, x: Tensor) -> None:
    model.kept.index_copy_(0, model.position.reshape(1), x.mean().reshape(1))
    model.position.add_(1)


#: What a model does with itself and its input, by what it changes.
_ACTIONS: dict[str, Callable[[Any, Tensor], object]] = {
    "input": lambda model, x: x.mul_(2),
    "data of input": lambda model, x: x.data.view(-1).add_(1),
    "item of input": lambda model, x: x.__setitem__(0, 3),
    "inplace function": lambda model, x: nn.functional.relu_(x),
    "buffer": lambda model, x: model.position.add_(1),
    "new buffer": lambda model, x: setattr(model, "position", model.position + 1),
    "cache": _cache,
    "statistics": lambda model, x: nn.functional.batch_norm(x, model.kept[:3], model.kept[3:], training=True),
    "parameter": lambda model, x: model.body.stem.weight.data.mul_(1.5),
    "plain tensor": lambda model, x: model.plain.add_(1),
    "number": lambda model, x: setattr(model, "calls", model.calls + 1),
    "list": lambda model, x: model.seen.append(1),
    "nested list": lambda model, x: model.held["a"].append(1),
    "outside": lambda model, x: _OUTSIDE.add_(1),
}


def _flag(model: Acting, x: Tensor) -> None:
    model.ready = True


def _appended_once(model: Acting, x: Tensor) -> None:
    if not model.seen:
        model.seen.append(1)


def _hook_once(model: Acting, x: Tensor) -> None:
    if not model.body._forward_hooks:
        model.body.register_forward_hook(lambda module, inputs, output: None)


def _constant_once(model: Acting, x: Tensor) -> None:
    if not hasattr(model, "table"):
        model.register_buffer("table", torch.arange(6.0))
    x + model.table[0]


@pytest.mark.parametrize("action", [_flag, _appended_once, _hook_once, _constant_once])
def test_what_is_set_once_is_no_change(action: Callable[[Any, Tensor], None]) -> None:
    """Flags, hooks and caches that a first call sets, and no other, do not keep a model from being optimized."""
    model, x = Acting(action).eval(), image(0)
    before = [dict(vars(model)), _state(model), len(model.body._forward_hooks)]
    require_pure(model, (x,), {})
    assert [dict(vars(model)), len(model.body._forward_hooks)] == [before[0], before[2]]
    torch.testing.assert_close(_state(model), before[1], rtol=0, atol=0)
    with warnings.catch_warnings(action="error", category=HiosWarning):
        fast = hios.optimize(model, x, cache=False, least_ms=1e6)
        torch.testing.assert_close(fast(x), model(x))
    assert fast.report.reason.startswith("it takes")


def _first_input(model: Acting, x: Tensor) -> None:
    if not hasattr(model, "first"):
        model.first = x.mean() + 1
    x + model.first


def _view_of_first_input(model: Acting, x: Tensor) -> None:
    held: dict[str, Any] = model.held
    held.setdefault("first", [x.view(-1)])
    held["first"][0] + 1


def _cache_made_once(model: Acting, x: Tensor) -> None:
    if not hasattr(model, "made"):
        model.made = torch.zeros(3)
    else:
        model.made.add_(1)


def _output_made_once(model: Acting, x: Tensor) -> None:
    if not hasattr(model, "made"):
        model.made = torch.zeros(3)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (_first_input, "it changes what it keeps of an earlier call when it runs"),
        (_view_of_first_input, "it changes what it keeps of an earlier call when it runs"),
        (_cache_made_once, "it changes a tensor that it keeps when it runs"),
        (_output_made_once, "an output shares memory with a tensor that it keeps"),
    ],
)
def test_later_calls_must_not_depend_on_the_first(action: Callable[[Any, Tensor], None], message: str) -> None:
    """What a first call sets may neither come from its inputs, if it is used, nor be written or returned later."""
    model = Acting(action, lambda model, x, y: (y, model.made) if action is _output_made_once else y).eval()
    with pytest.raises(UnsupportedError, match=message):
        require_pure(model, (image(0),), {})


def _state(model: Acting) -> list[Any]:
    return [
        {name: value.clone() for name, value in model.state_dict().items()},
        [model.plain.clone(), _OUTSIDE.clone()],
        [model.calls, copy.deepcopy(model.seen), copy.deepcopy(model.held)],
    ]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    _OUTSIDE.zero_()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("action", _ACTIONS.values(), ids=_ACTIONS)
def test_optimizing_changes_nothing(action: Callable[[Any, Tensor], object]) -> None:
    """A model that changes something is left as it is with a warning, and neither it nor the example is changed."""
    model, x = Acting(action).eval(), image(0)
    before = _state(model)
    with pytest.warns(HiosWarning, match="Acting is left as it is: it changes .* when it runs; allowed"):
        fast = hios.optimize(model, x, cache=False)
    torch.testing.assert_close(_state(model), before, rtol=0, atol=0)
    torch.testing.assert_close(x, image(0), rtol=0, atol=0)
    assert fast.report.chosen == "the model itself"


@torch.no_grad()
@pytest.mark.parametrize("action", _ACTIONS.values(), ids=_ACTIONS)
@pytest.mark.parametrize("way", ["optimize", "compile"])
def test_state_is_that_of_the_users_calls(way: str, action: Callable[[Any, Tensor], object]) -> None:
    """After one, two and three calls state, input and output are those that the model itself leaves behind."""
    with warnings.catch_warnings(action="ignore", category=HiosWarning):
        seen = []
        for run in ("eager", way):
            _OUTSIDE.zero_()
            torch.manual_seed(0)
            model = Acting(action).eval()
            called: Any = {
                "eager": lambda made: made,
                "optimize": lambda made: hios.optimize(made, image(0), cache=False),
                "compile": lambda made: torch.compile(made, backend="hios", options={"cache": False, "least_ms": 1e6}),
            }[run](model)
            after = []
            for _ in range(3):
                x = image(0)
                after.append([called(x).clone(), x, *_state(model)])
            seen.append(after)
    torch.testing.assert_close(seen[1], seen[0])


@pytest.mark.parametrize(
    "outputs",
    [
        lambda model, x, y: (y[:, :3], y[:, 2:]),
        lambda model, x, y: (y, x.view(-1)),
        lambda model, x, y: (y, model.body.stem.weight),
        lambda model, x, y: (y, model.position.reshape(1)),
        lambda model, x, y: (y, model.plain),
    ],
)
def test_outputs_have_memory_of_their_own(outputs: Callable[..., Any]) -> None:
    """What is written into one output must be seen in others that overlap with it; such models are left as they are.

    So are those whose outputs are in memory of the model, or of an input.
    """
    model = Acting(outputs=outputs).eval()
    with pytest.raises(UnsupportedError, match=r"an output (shares memory with|is a tensor that it keeps)"):
        require_pure(model, (image(0),), {})


@torch.no_grad()
def test_parts_of_one_tensor_are_apart() -> None:
    """Outputs of one memory that share no element, as those of ``chunk``, come through with their strides."""
    model, x = Acting(outputs=lambda model, x, y: y.chunk(2, 1)).eval(), image(0)
    fast, expected = hios.optimize(model, x, way="onnxruntime", cache=False, budget_s=0.1, least_ms=0.0), model(x)
    assert fast.runner is not None
    outputs = fast(x)
    torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-4)
    assert [output.stride() for output in outputs] == [output.stride() for output in expected]


@torch.no_grad()
@pytest.mark.parametrize("way", [OPENVINO, "schedule"])
def test_views_and_strides_come_through(way: str) -> None:
    """For an example in channels_last outputs are so too, and what is written into an output is seen in its views."""
    model = Acting(outputs=lambda model, x, y: {"all": y, "sums": [(s := y.sum(1)).mT, s, s.view(-1)[1:]]}).eval()
    x = image(0).to(memory_format=torch.channels_last)
    fast, expected = hios.optimize(model, x, way=way, cache=False, budget_s=0.1, least_ms=0.0), model(x)
    outputs = fast(x)
    assert fast.runner is not None
    torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-4)
    assert not expected["all"].is_contiguous()
    for own, other in zip(pytree.tree_leaves(outputs), pytree.tree_leaves(expected), strict=True):
        assert own.stride() == other.stride()
    outputs["sums"][0].zero_()
    assert not any(value.any() for value in outputs["sums"])
    fast.close()


@torch.no_grad()
@pytest.mark.parametrize(
    "layouts", [(torch.contiguous_format, torch.channels_last), (torch.channels_last, torch.contiguous_format)]
)
@pytest.mark.parametrize("copies", [True, False])
def test_inputs_that_are_returned(layouts: tuple[torch.memory_format, torch.memory_format], copies: bool) -> None:
    """An output is an input where it is the model's: ``contiguous()`` copies an input of other strides."""
    kind, _ = layouts
    model = Acting(outputs=lambda model, x, y: [x.contiguous(memory_format=kind) if copies else x, y]).eval()
    same, other = (image(0).to(memory_format=layout) for layout in layouts)
    fast = as_optimized(model, (same,), lambda tensors: [model.body(*tensors)])
    assert fast(same)[0] is same
    with pytest.warns(HiosWarning, match="that the model returns, the example has"):
        ours = fast(other)[0]
    theirs = model(other)[0]
    assert torch.equal(ours, theirs)
    assert (ours is other, ours.stride()) == (theirs is other, theirs.stride())


def test_what_is_allowed() -> None:
    """Tensors of the call may be written into, attributes set to what they are; outputs may be inputs, and views."""

    def written(model: Acting, x: Tensor) -> None:
        model.calls = int("0")
        model.scale = float("0.5")
        made = x * 2
        made.view(-1)[0] = 1
        made.copy_(x).relu_()

    model = Acting(written, lambda model, x, y: (y.mT, y, y, {"x": x, "views": [y.view(-1)[3:], y[:, 2]]})).eval()
    model.scale = 0.5
    require_pure(model, (image(0),), {})


def test_random_numbers_go_on_where_they_were() -> None:
    """Random numbers drawn after optimizing are those that would have been drawn without it."""
    model = Acting(lambda model, x: torch.rand(1)).eval()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with pytest.warns(HiosWarning, match="draws random numbers"):
        hios.optimize(model, image(0), cache=False, least_ms=0.0)
    assert torch.equal(torch.rand(3), expected)


def test_generators_of_a_model_go_on_where_they_were() -> None:
    """A model that draws from a generator of its own is told by what it would run, before it runs."""
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    model = Acting(lambda model, x: torch.rand(1, generator=generator)).eval()
    with pytest.warns(HiosWarning, match="it changes a random generator of its own when it runs"):
        hios.optimize(model, image(0), cache=False, least_ms=0.0)
    assert torch.equal(generator.get_state(), before)


@torch.no_grad()
def test_parts_that_share_memory_are_left_alone() -> None:
    """After a graph break a write into a view of an output is seen in the output."""

    class Viewed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            """Write into a view, and into one of the input, in another part than made it."""
            y = self.body(x)
            view, given = y.view(-1), x.view(-1)
            torch._dynamo.graph_break()
            view.add_(1)
            given.zero_()
            return y, x

    model = Viewed().eval()
    options: dict[str, Any] = {"algorithm": "sequential", "devices": 1, "budget_s": 0.1, "cache": False}
    fast = torch.compile(model, backend="hios", options=options)
    with pytest.warns(HiosWarning, match="shares memory with"):
        output = fast(image(0))
    torch.testing.assert_close(output, model(image(0)))
