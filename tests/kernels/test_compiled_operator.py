"""Operators compiled to functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from hios import Graph
from hios.errors import ArtifactError, UnsupportedError
from hios.kernels import compile_operator
from hios.kernels.compiled_operator import externals, parts
from hios.kernels.merged import nbytes, torch_dtype, value_type
from tests.operators import CONVOLUTION, call, operator_from, unit

X = {"input": "x"}


def test_arguments_come_in_order_of_first_use() -> None:
    """Outside values stand once each, in order of first use, with the item of an operator that has several."""
    operator = unit(
        call("subtract", {"operator": "y", "item": 1}, X),
        call("multiply", {"call": 0}, {"operator": "y", "item": 1}),
        call("add", {"call": 1}, {"operator": "y", "item": 0}),
    )
    compiled = compile_operator(operator, {})
    assert compiled.externals == externals(operator) == (("operator", "y", 1), ("input", "x", 0), ("operator", "y", 0))
    assert compiled.run(torch.tensor(5.0), torch.tensor(2.0), torch.tensor(1.0)) == (5 - 2) * 5 + 1


def test_a_value_read_twice_is_taken_once() -> None:
    """The operator x - x takes one tensor."""
    compiled = compile_operator(unit(call("subtract", X, X)), {})
    assert compiled.externals == (("input", "x", 0),)
    assert compiled.run(torch.tensor(3.0)) == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([X, {"weight": "w"}], 3.0),
        ([{"weight": "w"}, X], -3.0),
        ([X, {"constant": 1.5}], 3.5),
        ([{"constant": 1.5}, X], -3.5),
        ([{"weight": "w"}, {"constant": 1.5}], 0.5),
    ],
)
def test_weights_and_numbers_keep_their_place(arguments: list[dict[str, Any]], expected: float) -> None:
    """Weights and numbers are bound where the call has them, on either side."""
    compiled = compile_operator(unit(call("subtract", *arguments)), {"w": torch.tensor(2.0)})
    values = [torch.tensor(5.0)] if X in arguments else []
    assert compiled.run(*values) == expected


def _conv(*arguments: dict[str, Any]) -> dict[str, Any]:
    return call("nn.conv2d", *arguments, **CONVOLUTION)


@pytest.fixture
def image() -> Tensor:
    """An image with negative numbers."""
    return torch.randn(1, 2, 5, 5, generator=torch.Generator().manual_seed(0))


WEIGHTS = {
    "w": torch.randn(3, 2, 3, 3, generator=torch.Generator().manual_seed(1)),
    "b": torch.tensor([-1.0, 0.0, 1.0]),
}


def test_activation_of_a_convolution_runs_in_place(image: Tensor) -> None:
    """ReLU right behind a convolution overwrites its result: one buffer fewer; the input stays as it was."""
    before = image.clone()
    compiled = compile_operator(unit(_conv(X, {"weight": "w"}, {"weight": "b"}), call("nn.relu", {"call": 0})), WEIGHTS)
    with torch.profiler.profile() as profile:
        output = compiled.run(image)
    assert "aten::relu_" in {event.key for event in profile.key_averages()}
    torch.testing.assert_close(output, torch.conv2d(image, WEIGHTS["w"], WEIGHTS["b"]).clamp(min=0))
    assert torch.equal(image, before)


@pytest.mark.parametrize("activation", ["nn.relu", "sigmoid"])
def test_activation_of_a_view_is_not_in_place(image: Tensor, activation: str) -> None:
    """A view shares its memory with what it views: an activation of it must not overwrite that."""
    before = image.clone()
    compiled = compile_operator(unit(call("reshape", X, shape=[2, 25]), call(activation, {"call": 0})), {})
    compiled.run(image)
    assert torch.equal(image, before)


def test_activation_of_an_input_is_not_in_place(image: Tensor) -> None:
    """An activation alone makes a new tensor."""
    before = image.clone()
    compile_operator(unit(call("nn.relu", X)), {}).run(image)
    assert torch.equal(image, before)


def test_activation_of_a_result_that_is_read_again_is_not_in_place(image: Tensor) -> None:
    """Where something else reads the convolution's result too, the activation leaves it alone."""
    compiled = compile_operator(
        unit(_conv(X, {"weight": "w"}), call("nn.relu", {"call": 0}), call("subtract", {"call": 1}, {"call": 0})),
        WEIGHTS,
    )
    plain = torch.conv2d(image, WEIGHTS["w"])
    torch.testing.assert_close(compiled.run(image), plain.clamp(min=0) - plain)


def test_missing_kernel_names_the_operator() -> None:
    """An operator that needs a function without an entry is named."""
    with pytest.raises(UnsupportedError, match=r"operator unit: the kernel table has no entry for relax\.median"):
        compile_operator(unit(call("median", X)), {})


def test_sizes_and_types() -> None:
    """Bytes follow from shape and dtype, the type of a value from its operator."""
    assert nbytes((2, 3), "float32") == 24
    assert nbytes((2, 3), "bool") == 6
    assert nbytes((), "float64") == 8
    assert nbytes((0, 3), "float64") == 0
    assert torch_dtype("int64") is torch.int64
    details = {"shapes": {"inputs": [], "outputs": [[1], [2, 3]]}, "dtype": "float32"}
    graph = Graph("test", (operator_from("y", "test", details),), ())
    assert value_type(graph, ("operator", "y", 1)) == ((2, 3), "float32")


def test_as_many_outputs_as_the_graph_states() -> None:
    """An operator that makes more or fewer outputs than the graph states is refused with both numbers."""
    split = compile_operator(unit(call("split", X, indices_or_sections=3, axis=0)), {})
    made = split.run(torch.arange(6.0))
    assert len(parts(made, 3)) == 3
    with pytest.raises(ArtifactError, match=r"makes 3 output\(s\), of which the graph states 2; extract the graph"):
        parts(made, 2)
    with pytest.raises(ArtifactError, match=r"makes 1 output\(s\), of which the graph states 2"):
        parts(torch.ones(2, 3), 2)  # not its rows
