"""Arguments by position and by name, and outputs with their views and strides."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from hios.errors import ExampleInputsError
from hios.optimizing.options import Options
from hios.optimizing.preparation import Subject
from hios.optimizing.tracing import Binding, ModelInputs, ModelOutputs
from tests.refusals import refused


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


def test_nothing_takes_the_place_of_none() -> None:
    """A tensor where the example has None does not fit, as the graph would ignore it; nor does None for a tensor."""
    x, y = torch.ones(2), torch.zeros(2)
    for example in (ModelInputs((x, None), {}, Two()), ModelInputs((x,), {"mask": None}, Two())):
        assert example.tensors((x, y), {}) == "found a tensor as an input, the example has None"
        assert example.tensors((x, 2), {}) == "found 2 as an input, the example has None"
        assert example.tensors((x, None), {}) == [x]
    assert "found NoneType as an input" in ModelInputs((x, y), {}, Two()).tensors((x, None), {})


class _Passing(nn.Module):
    def forward(self, query: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Hand on an input."""
        return memory, query + memory


def test_one_tensor_as_two_inputs() -> None:
    """Of two inputs that were one tensor in the example, an output is the one that the model hands on."""
    x, a, b = torch.ones(2), torch.zeros(2), torch.full((2,), 3.0)
    subject = Subject(_Passing(), (x, x), {}, Options(), [[[0]]])
    subject.run_once()
    assert subject.outputs.rebuilt([a + b], [a, b])[0] is b


def test_variable_arguments_stay_as_they_are() -> None:
    """A function that takes any arguments has no names to tell them apart by."""

    def anything(*values: Tensor, **named: Tensor) -> None:
        """Take them."""

    assert Binding(anything, (1,), {}).as_in_the_example((), {"x": 1}) is None


def test_wrong_example_inputs_are_plain_errors() -> None:
    """Too many, too few and unknown example inputs are refused with the signature, in one line."""
    x = torch.ones(2)
    for args, kwargs in (((x, x, 1.0, 2.0), {}), ((), {}), ((x,), {"image": x})):
        with refused("example inputs of Two: ", "; its forward is (images", kind=ExampleInputsError):
            ModelInputs(args, kwargs, Two())


def _outputs_of_runtime(outputs: Any) -> tuple[ModelOutputs, Any]:
    """The outputs of a model, rebuilt from those of a runtime, which are contiguous and apart."""
    known = ModelOutputs(outputs, [])
    flat = [tensor.contiguous().clone() for tensor in known.tensors]
    known.forget()
    return known, known.rebuilt(flat, [])


def test_views_of_outputs_stay_views() -> None:
    """The largest contiguous output is computed, whatever its place, and others that lie in it are views of it."""
    y = torch.arange(24.0).reshape(2, 3, 4)
    outputs = (y.mT, {"y": y, "part": y[1, :, ::2], "flat": y.view(-1)[3:]}, y * 2, y.expand(2, 2, 3, 4))
    known, rebuilt = _outputs_of_runtime(outputs)
    assert known.count == 2
    torch.testing.assert_close(rebuilt, outputs, rtol=0, atol=0)
    assert [value.stride() for value in pytree.tree_leaves(rebuilt)] == [
        v.stride() for v in pytree.tree_leaves(outputs)
    ]
    rebuilt[1]["y"].zero_()
    assert [bool(value.any()) for value in pytree.tree_leaves(rebuilt)] == [False] * 4 + [True, False]


def test_outputs_have_the_strides_of_the_models() -> None:
    """In channels_last, other orders of dimensions, gaps, repeated and single elements; overlaps are contiguous."""
    y = torch.arange(120.0).reshape(2, 3, 4, 5)
    last = y.contiguous(memory_format=torch.channels_last)
    outputs = [
        last.clone(),
        (y + 1).permute(2, 0, 3, 1),
        (y + 2)[..., ::2],
        (last + 3)[:, 1:],
        y.mean((2, 3), keepdim=True).expand(-1, -1, 4, 5),
        y[:0, :1].clone().expand(-1, 3, -1, -1),
        (last + 4).sum((2, 3), keepdim=True).contiguous(memory_format=torch.channels_last),
        y + 5,
        (y + 6).unfold(3, 3, 1),
    ]
    rebuilt = _outputs_of_runtime(outputs)[1]
    torch.testing.assert_close(rebuilt, outputs, rtol=0, atol=0)
    assert [value.stride() for value in rebuilt[:-1]] == [value.stride() for value in outputs[:-1]]
    assert rebuilt[-1].is_contiguous()


def test_other_views_are_apart() -> None:
    """Parts of one memory none of which has all, and conjugates, are outputs of their own."""
    y, complex_ = torch.arange(12.0).reshape(3, 4), torch.ones(3, dtype=torch.complex64) * 1j
    outputs = (y[:, :2], y[:, 2:], complex_, complex_.conj())
    known, rebuilt = _outputs_of_runtime(outputs)
    assert known.count == 4
    torch.testing.assert_close(rebuilt, outputs, rtol=0, atol=0)
