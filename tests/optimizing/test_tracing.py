"""Arguments by position and by name."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hios.errors import ExampleInputsError
from hios.optimizing.tracing import Binding, ModelInputs


class Two(nn.Module):
    """A model of two inputs, one of which may be left out."""

    def forward(self, images: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        """Scale the images."""
        return images * scale if mask is None else images * mask


def _calls(x: Tensor, y: Tensor) -> list[tuple[tuple[Tensor, ...], dict[str, Tensor]]]:
    """The same arguments in every form."""
    return [((x, y), {}), ((x,), {"mask": y}), ((), {"mask": y, "images": x})]


def test_arguments_may_be_given_by_name() -> None:
    """What the example gives by position a call may give by name, and the other way round."""
    x, y = torch.ones(2), torch.zeros(2)
    model = Two()
    by_position, by_name = ModelInputs((x, y), {}, model), ModelInputs((x,), {"mask": y}, model)
    for inputs in (by_position, by_name):
        for args, kwargs in _calls(x, y):
            tensors = inputs.tensors(args, kwargs)
            assert [tensor is own for tensor, own in zip(tensors, (x, y), strict=True)] == [True, True]
    alone = ModelInputs((x,), {}, model)
    assert isinstance(alone.tensors((), {"images": x, "scale": 1.0}), list)  # the default
    assert alone.tensors((x,), {"scale": 2.0}) == "inputs of another structure than the example's"
    assert alone.tensors((x, y), {}) == "inputs of another structure than the example's"


def test_variable_arguments_stay_as_they_are() -> None:
    """A function that takes any arguments has no names to tell them apart by."""

    def anything(*values: Tensor, **named: Tensor) -> None:
        """Take them."""

    assert Binding(anything, (1,), {}).as_in_the_example((), {"x": 1}) is None


def test_wrong_example_inputs_are_plain_errors() -> None:
    """Too many, too few and unknown example inputs are refused with the signature, in one line."""
    x = torch.ones(2)
    for args, kwargs in (((x, x, 1.0, 2.0), {}), ((), {}), ((x,), {"image": x})):
        with pytest.raises(ExampleInputsError, match=r"^example inputs of Two: .*; its forward is \(images") as error:
            ModelInputs(args, kwargs, Two())
        assert "\n" not in str(error.value)
