"""hios.optimize: models, inputs and states of torch in which the model itself runs."""

from __future__ import annotations

import dataclasses
import enum
import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

import hios
from hios import HiosWarning
from hios.errors import UnsupportedError
from hios.optimizing.tracing import ModelInputs, ModelOutputs
from tests.optimizing.optimized_models import Acting, image


class _Kind(enum.Enum):
    ONE = 1


@torch.no_grad()
@pytest.mark.parametrize(
    "value", [lambda y: y.sum().item(), lambda y: int(y.argmax()), lambda y: {"n": float(y.max())}]
)
def test_numbers_that_depend_on_tensors_are_computed_anew(value: Any) -> None:
    """A model that returns a number read from a tensor is left as it is, and returns Python's own numbers."""
    model = Acting(outputs=lambda model, x, y: (y, value(y))).eval()
    with pytest.warns(HiosWarning, match="outputs: found a value of type Sym|cannot run on tensors without values"):
        fast = hios.optimize(model, image(0), cache=False, least_ms=0.0)
    for x in (image(0), image(0) * 2):
        assert fast(x)[1] == value(model(x)[0])


def test_constants_beside_outputs() -> None:
    """Besides tensors, numbers, strings, None and members of enumerations are allowed; other objects are not."""
    y = torch.ones(2)
    outputs = ModelOutputs({"y": y, "more": [1, 2.0, "three", None, True, torch.float32, _Kind.ONE]}, [])
    assert outputs.wrong == ""
    assert outputs.rebuilt([y], [])["more"] == [1, 2.0, "three", None, True, torch.float32, _Kind.ONE]
    assert "ndarray" in ModelOutputs((y, np.ones(2)), []).wrong


def test_inputs_that_can_change_are_refused() -> None:
    """An array among the example inputs cannot be compared with what it was, so it is refused in one line."""
    assert ModelInputs((torch.ones(2), 1, "two", _Kind.ONE), {}).tensors((torch.ones(2), 1, "two", _Kind.ONE), {}) != ""
    with pytest.raises(UnsupportedError, match="found a value of type ndarray; allowed: tensors, numbers"):
        ModelInputs((torch.ones(2),), {"more": np.arange(3)})


def test_whole_numbers_that_torch_does_not_order_are_refused() -> None:
    """Their limits could not be checked."""
    with pytest.raises(UnsupportedError, match=r"^example inputs: found torch\.uint16, for which torch has no limits"):
        ModelInputs((torch.ones(2).to(torch.uint16),), {})


def test_an_array_in_the_place_of_a_constant_does_not_fit() -> None:
    """An array in place of a number of the example counts as another input, and is not an error."""
    assert "found array" in str(ModelInputs((torch.ones(2), 1), {}).tensors((torch.ones(2), np.arange(3)), {}))


def _seen(inputs: ModelInputs, refusals: list[Any]) -> Any:
    return lambda x: (refusals.append(inputs.tensors((x,), {})), x * 2)[1]


def test_transforms_run_the_model_itself() -> None:
    """What torch.func wraps, and what carries a tangent, is for the model itself."""
    x, refusals = torch.ones(2), list[Any]()
    inputs = ModelInputs((x,), {})
    torch.vmap(_seen(inputs, refusals))(torch.ones(3, 2))
    torch.func.jvp(_seen(inputs, refusals), (x,), (x,))
    torch.func.grad(lambda value: _seen(inputs, refusals)(value).sum())(x)
    assert ["transform of torch.func" in str(why) for why in refusals] == [True] * 3
    with forward_ad.dual_level():
        assert "with a tangent" in str(inputs.tensors((forward_ad.make_dual(x, x),), {}))
        assert isinstance(inputs.tensors((x,), {}), list)


def test_nan_is_equal_to_itself() -> None:
    """NaN among the constants of the example fits NaN in a call, and nothing else."""
    x = torch.ones(2)
    for example, given in ((math.nan, float("nan")), (complex(0, math.nan), complex(0, float("nan")))):
        inputs = ModelInputs((x, example), {})
        assert isinstance(inputs.tensors((x, given), {}), list)
        assert "as an input, the example has" in str(inputs.tensors((x, 1.0), {}))
    assert "found nan as an input" in str(ModelInputs((x, 1.0), {}).tensors((x, math.nan), {}))


@dataclasses.dataclass(frozen=True)
class _Result:
    values: Tensor
    kind: type = Tensor


class _Cache:
    """Like the caches of keys and values that language models return."""

    def __init__(self, *layers: Tensor) -> None:
        self.layers: list[Any] = [_Result(layer) for layer in layers]
        self.by_name: dict[str, Any] = {"first": self.layers[0], "size": len(layers)}


def test_objects_that_hold_tensors_are_outputs() -> None:
    """Dataclasses and other objects are made anew with the tensors of a call; one without tensors is refused."""
    model = Acting(outputs=lambda model, x, y: {"y": y, "cache": _Cache(y * 2, y + 1)}).eval()
    fast = hios.optimize(model, image(0), cache=False, algorithm="sequential", devices=1, budget_s=0.1)
    with warnings.catch_warnings(action="error", category=HiosWarning), torch.no_grad():
        made, right = fast(image(0) * 2)["cache"], model(image(0) * 2)["cache"]
    assert fast.report.chosen.startswith("sequential")
    assert type(made) is _Cache
    assert made.by_name["size"] == 2
    for own, other in zip([*made.layers, made.by_name["first"]], [*right.layers, right.layers[0]], strict=True):
        assert (type(own), own.kind) == (_Result, Tensor)
        torch.testing.assert_close(own.values, other.values, rtol=1e-4, atol=1e-4)
    fast.close()
    assert "_Cache" in ModelOutputs((torch.ones(2), _Cache.__new__(_Cache)), []).wrong
    with pytest.raises(UnsupportedError, match="found a value of type _Result"):
        ModelInputs((torch.ones(2), _Result(torch.ones(2))), {})


def test_objects_in_a_circle_are_refused() -> None:
    """An object that holds itself has no end."""
    made = _Cache(torch.ones(2))
    made.by_name["itself"] = made
    assert "_Cache" in ModelOutputs(made, []).wrong


class _Keeping(nn.Module):
    def __init__(self, *, inputs: bool) -> None:
        super().__init__()
        self.cache, self.inputs = _Cache(torch.ones(2)), inputs

    def forward(self, x: Tensor, earlier: list[Tensor]) -> Any:
        """Write down what was computed, among the inputs or in an object of the model."""
        if self.inputs:
            earlier.append(x * 2)
            return x + 1
        self.cache.layers = [x * 2]
        return x + 1, self.cache


@pytest.mark.parametrize("inputs", [True, False])
def test_containers_that_a_model_fills_are_its_state(*, inputs: bool) -> None:
    """A list among the inputs, or an object that the model keeps, is filled once a call, as by the model itself."""
    model, earlier = _Keeping(inputs=inputs), list[Tensor]()
    what = "a list or dictionary among its inputs" if inputs else "its attribute cache"
    with pytest.warns(HiosWarning, match=f"it changes {what} when it runs"):
        fast = hios.optimize(model, (image(0), earlier), cache=False, least_ms=0.0)
    assert (earlier, len(model.cache.layers)) == ([], 1)
    fast(image(0) * 2, earlier)
    assert len(earlier) == inputs
    assert inputs or torch.equal(model.cache.layers[0], image(0) * 4)


@torch.library.custom_op("hios_tests::valued", mutates_args=())
def _valued(x: Tensor) -> Tensor:
    """An operator that needs values."""
    return x * 2


@_valued.register_fake
def _valued_without_values(x: Tensor) -> Tensor:
    """Refuses every input, as torch up to 2.14 refuses grouped products of float32 (``torch._grouped_mm``)."""
    raise RuntimeError("valued: found no values")


class _Valued(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return _valued(x) + 1


def test_examples_that_run_are_no_errors() -> None:
    """A model that runs is left as it is where an operator takes its inputs only with values."""
    with pytest.warns(HiosWarning, match="is left as it is: cannot run on tensors without values: valued: found no"):
        fast = hios.optimize(_Valued(), torch.ones(3), cache=False, least_ms=0.0)
    torch.testing.assert_close(fast(torch.ones(3)), torch.full((3,), 3.0))


@torch.no_grad()
def test_modules_without_eval_mode_are_left_alone() -> None:
    """The module of an exported program, which refuses eval(), is called as it is."""
    model = Acting().eval()
    exported = torch.export.export(model, (image(0),)).module()
    with pytest.warns(HiosWarning, match=r"is left as it is: .*eval\(\).* allowed: models that torch.export has not"):
        fast = hios.optimize(exported, image(0), cache=False, least_ms=0.0)
    torch.testing.assert_close(fast(image(0) * 2), model(image(0) * 2))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["parameter", "buffer", "attribute"])
@pytest.mark.parametrize("convert", [Tensor.to_sparse, Tensor.to_mkldnn])
def test_other_layouts_are_left_alone(kind: str, convert: Any) -> None:
    """Sparse tensors and others of an unusual layout, of whatever kind, leave the model as it is, with a warning."""
    model = Acting(outputs=lambda model, x, y: y * (model.odd.to_dense() + 1).sum()).eval()
    odd = convert(torch.eye(2))
    if kind == "parameter":
        model.odd = nn.Parameter(odd, requires_grad=False)
    elif kind == "buffer":
        model.register_buffer("odd", odd)
    else:
        model.odd = odd
    with pytest.warns(HiosWarning, match=r"Acting is left as it is: odd: found layout torch\..*allowed: dense"):
        fast = hios.optimize(model, image(0), cache=False, least_ms=0.0)
    torch.testing.assert_close(fast(image(0) * 2), model(image(0) * 2))


def test_autocast_is_not_optimized() -> None:
    """Under autocast a model is left as it is, and computes outside as it does by itself."""
    model = Acting().eval()
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.warns(HiosWarning, match="autocast is on"):
        fast = hios.optimize(model, image(0), cache=False, least_ms=0.0)
    assert fast(image(0)).dtype is torch.float32


def test_examples_must_have_tensors() -> None:
    """Inputs without a tensor leave the model as it is."""

    class Constant(nn.Module):
        def forward(self, n: int) -> Tensor:
            return torch.full((2,), n)

    with pytest.warns(HiosWarning, match="found no tensor"):
        hios.optimize(Constant(), 3, cache=False, least_ms=0.0)
