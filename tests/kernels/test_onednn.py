"""Convolutions and matrix products packed for the CPU compute what the table's do."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hios import Operator
from hios.kernels import compile_operator
from hios.kernels.onednn import as_made, packed_convolution, packed_product
from tests.operators import CONVOLUTION, call, unit

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


X = {"input": "x"}

#: oneDNN does not fuse nn.selu.
_ACTIVATIONS = (None, "nn.relu", "sigmoid", "tanh", "nn.silu", "nn.gelu", "nn.gelu_tanh", "nn.selu")


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, Any]:
    """A convolution of images of four channels, with what follows it."""
    groups = draw(st.sampled_from([1, 2, 4]))
    padding = draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
    return {
        "groups": groups,
        "filters": groups * draw(st.integers(1, 3)),
        "kernel": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "bias": draw(st.booleans()),
        "activation": draw(st.sampled_from(_ACTIVATIONS)),
        "attributes": {
            "strides": [draw(st.integers(1, 2)), draw(st.integers(1, 2))],
            "dilation": [draw(st.integers(1, 2)), draw(st.integers(1, 2))],
            "padding": draw(st.sampled_from([padding, padding[:2] * 2])),
            "groups": groups,
        },
    }


def operator_of(case: dict[str, Any]) -> Operator:
    """The operator of a case, which reads its input x."""
    weights = [{"weight": "filters"}, *([{"weight": "bias"}] if case["bias"] else [])]
    calls = [call("nn.conv2d", X, *weights, **case["attributes"])]
    if case["activation"]:
        calls.append(call(case["activation"], {"call": 0}))
    return unit(*calls)


@given(convolutions(), st.booleans(), st.integers(1, 2))
def test_packed_equals_table(case: dict[str, Any], channels_last: bool, batch: int) -> None:
    """Over strides, padding, dilation, groups, bias, activation and order in memory; twice, as filters are kept."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, 4, 9, 8, generator=generator)
    filters = torch.randn(case["filters"], 4 // case["groups"], *case["kernel"], generator=generator)
    weights = {"filters": filters, "bias": torch.randn(case["filters"], generator=generator)}
    operator = operator_of(case)
    expected = compile_operator(operator, weights).run(x)
    run = compile_operator(operator, weights, packed=True).run
    for _ in range(2):
        result = run(as_made(x) if channels_last else x)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


def _product_calls(bias: str | None, activation: str | None) -> list[dict[str, Any]]:
    calls = [call("matmul", X, {"weight": "matrix"})]
    if bias is not None:
        arguments: list[dict[str, Any]] = [{"call": 0}, {"weight": bias}]
        calls.append(call("add", *(reversed(arguments) if bias == "first" else arguments)))
    if activation is not None:
        calls.append(call(activation, {"call": len(calls) - 1}))
    return calls


@given(
    st.sampled_from([(), (1,), (3,), (2, 5), (2, 1, 4)]),
    st.integers(1, 20),
    st.integers(1, 20),
    st.sampled_from([None, "bias", "first", "row", "rows"]),
    st.sampled_from(_ACTIVATIONS),
    st.booleans(),
)
def test_packed_products_equal_the_table(
    rows: tuple[int, ...], terms: int, columns: int, bias: str | None, activation: str | None, strided: bool
) -> None:
    """Over ranks, sizes, where and of which shape the bias is, activations, and order in memory; twice, as above."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*rows, terms, generator=generator)
    if strided:
        x = torch.stack([x, x], dim=-1)[..., 0]
    row = torch.randn(columns, generator=generator)
    weights = {
        "matrix": torch.randn(terms, columns, generator=generator),
        "bias": row,
        "first": row,
        "row": row[None],  # makes a matrix of a vector, so it is added by itself
        "rows": torch.randn(rows[-1] if rows else 3, columns, generator=generator),  # not the same for every row
    }
    operator = unit(*_product_calls(bias, activation))
    expected = compile_operator(operator, weights).run(x)
    run = compile_operator(operator, weights, packed=True).run
    for _ in range(2):
        result = run(x)
        assert result.shape == expected.shape
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


def test_matrices_without_elements() -> None:
    """There is nothing to pack."""
    weights = {"matrix": torch.ones(0, 3), "bias": torch.randn(3)}
    run = compile_operator(unit(*_product_calls("bias", None)), weights, packed=True).run
    torch.testing.assert_close(run(torch.ones(2, 0)), weights["bias"].expand(2, 3))


def _calls_of_torch(run: Any, x: Tensor) -> set[str]:
    run(x)
    with torch.profiler.profile() as profile:
        run(x)
    return {event.key for event in profile.key_averages()}


def test_bias_and_activation_are_part_of_the_product() -> None:
    """A product with bias and GELU is one call of torch; of two readers, each gets the product itself."""
    weights = {"matrix": torch.randn(8, 16), "bias": torch.randn(16)}
    x = torch.randn(4, 8)
    operator = unit(*_product_calls("bias", "nn.gelu"))
    assert not {"aten::add", "aten::gelu", "aten::matmul"} & _calls_of_torch(
        compile_operator(operator, weights, packed=True).run, x
    )
    product = x @ weights["matrix"]
    read_twice = unit(*_product_calls("bias", None), call("add", {"call": 0}, {"call": 1}))
    run = compile_operator(read_twice, weights, packed=True).run
    torch.testing.assert_close(run(x), 2 * product + weights["bias"], rtol=1e-4, atol=1e-4)


def test_products_of_values_and_of_other_dtypes_are_not_packed() -> None:
    """Attention's products have no constant; double precision, and stacks of matrices, run as the table has it."""
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    run = compile_operator(unit(call("matmul", X, {"input": "y"})), {}, packed=True).run
    torch.testing.assert_close(run(x, y), x @ y)
    for matrix in (y.double(), torch.randn(2, 4, 5)):
        value = x.to(matrix.dtype)
        run = compile_operator(unit(*_product_calls(None, None)), {"matrix": matrix}, packed=True).run
        torch.testing.assert_close(run(value), value @ matrix)


def test_results_are_channels_last() -> None:
    """What a packed convolution makes is in the order in memory in which the next one reads it."""
    run = packed_convolution({**CONVOLUTION, "padding": [1, 1, 1, 1]}, torch.randn(8, 4, 3, 3), None)
    for x in (torch.randn(1, 4, 9, 9), as_made(torch.randn(1, 4, 9, 9))):
        assert run(x).is_contiguous(memory_format=torch.channels_last)


def test_activation_is_part_of_the_convolution() -> None:
    """ReLU behind a packed convolution is no call of its own; behind one that is read again, it is."""
    conv, relu = call("nn.conv2d", X, {"weight": "filters"}, **CONVOLUTION), call("nn.relu", {"call": 0})
    add = call("add", {"call": 0}, {"call": 1})
    weights, x = {"filters": torch.randn(8, 4, 3, 3)}, torch.randn(1, 4, 9, 9)
    plain = torch.conv2d(x, weights["filters"])
    for calls, expected, separate in (
        ([conv, relu], F.relu(plain), False),
        ([conv, relu, add], F.relu(plain) + plain, True),
    ):
        run = compile_operator(unit(*calls), weights, packed=True).run
        torch.testing.assert_close(run(x), expected, rtol=1e-4, atol=1e-4)
        assert any("relu" in name for name in _calls_of_torch(run, x)) == separate
        torch.testing.assert_close(run(x), expected, rtol=1e-4, atol=1e-4)


def test_other_dtypes_are_not_packed() -> None:
    """Double precision runs as the table has it."""
    weights, x = {"filters": torch.randn(4, 4, 3, 3).double()}, torch.randn(1, 4, 9, 9).double()
    run = compile_operator(unit(call("nn.conv2d", X, {"weight": "filters"}, **CONVOLUTION)), weights, packed=True).run
    assert run(x).dtype is torch.float64


@pytest.mark.parametrize(
    ("pack", "shape", "x"),
    [
        pytest.param(
            lambda filters: packed_convolution(CONVOLUTION, filters, None),
            (2, 4, 3, 3),
            torch.ones(1, 4, 5, 5),
            id="filters",
        ),
        pytest.param(lambda matrix: packed_product(matrix, None), (8, 16), torch.ones(2, 8), id="matrix"),
    ],
)
def test_weights_are_kept_once(pack: Callable[[Tensor], Any], shape: tuple[int, ...], x: Tensor) -> None:
    """After the first run nothing holds filters, or a matrix, in the order in which they came."""
    weight = torch.randn(*shape)
    kernel, came = pack(weight), weakref.ref(weight)
    del weight
    assert came() is not None
    first = kernel(x)
    assert came() is None
    assert torch.equal(kernel(x), first)
