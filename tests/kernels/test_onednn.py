"""Convolutions and matrix products packed for the CPU compute what the table's do."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st

from hios import Operator
from hios.kernels import compile_operator
from hios.kernels.onednn import as_made, packed_convolution, packed_product
from tests.operators import operator_from

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


_ACTIVATIONS = (
    None,
    "relax.nn.relu",
    "relax.sigmoid",
    "relax.tanh",
    "relax.nn.silu",
    "relax.nn.gelu",
    "relax.nn.gelu_tanh",
    "relax.nn.selu",  # which oneDNN does not fuse
)


@st.composite
def _convolutions(draw: st.DrawFn) -> dict[str, Any]:
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


def _operator(case: dict[str, Any]) -> Operator:
    weights = [{"weight": "filters"}, *([{"weight": "bias"}] if case["bias"] else [])]
    calls = [{"function": "relax.nn.conv2d", "arguments": [{"input": "x"}, *weights], "attributes": case["attributes"]}]
    if case["activation"]:
        calls.append({"function": case["activation"], "arguments": [{"call": 0}], "attributes": {}})
    return operator_from("conv", "conv2d", {"calls": calls})


@given(_convolutions(), st.booleans(), st.integers(1, 2))
def test_packed_equals_table(case: dict[str, Any], channels_last: bool, batch: int) -> None:
    """Over strides, padding, dilation, groups, bias, activation and order in memory; twice, as filters are kept."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, 4, 9, 8, generator=generator)
    filters = torch.randn(case["filters"], 4 // case["groups"], *case["kernel"], generator=generator)
    weights = {"filters": filters, "bias": torch.randn(case["filters"], generator=generator)}
    operator = _operator(case)
    expected = compile_operator(operator, weights).run(x)
    run = compile_operator(operator, weights, packed=True).run
    for _ in range(2):
        result = run(as_made(x) if channels_last else x)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


def _product_calls(bias: str | None, activation: str | None) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = [
        {"function": "relax.matmul", "arguments": [{"input": "x"}, {"weight": "matrix"}], "attributes": {}}
    ]
    if bias is not None:
        vector, product = {"weight": bias}, {"call": 0}
        arguments = [vector, product] if bias == "first" else [product, vector]
        calls.append({"function": "relax.add", "arguments": arguments, "attributes": {}})
    if activation is not None:
        calls.append({"function": activation, "arguments": [{"call": len(calls) - 1}], "attributes": {}})
    return calls


def _product(bias: str | None, activation: str | None) -> Operator:
    return operator_from("product", "linear", {"calls": _product_calls(bias, activation)})


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
    operator = _product(bias, activation)
    expected = compile_operator(operator, weights).run(x)
    run = compile_operator(operator, weights, packed=True).run
    for _ in range(2):
        result = run(x)
        assert result.shape == expected.shape
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


def _calls_of_torch(run: Any, x: torch.Tensor) -> set[str]:
    run(x)
    with torch.profiler.profile() as profile:
        run(x)
    return {event.key for event in profile.key_averages()}


def test_bias_and_activation_are_part_of_the_product() -> None:
    """A product with bias and GELU is one call of torch; of two readers, each gets the product itself."""
    weights = {"matrix": torch.randn(8, 16), "bias": torch.randn(16)}
    x = torch.randn(4, 8)
    operator = _product("bias", "relax.nn.gelu")
    assert not {"aten::add", "aten::gelu", "aten::matmul"} & _calls_of_torch(
        compile_operator(operator, weights, packed=True).run, x
    )
    product = x @ weights["matrix"]
    read_twice = [
        *_product_calls("bias", None),
        {"function": "relax.add", "arguments": [{"call": 0}, {"call": 1}], "attributes": {}},
    ]
    run = compile_operator(operator_from("product", "linear", {"calls": read_twice}), weights, packed=True).run
    torch.testing.assert_close(run(x), 2 * product + weights["bias"], rtol=1e-4, atol=1e-4)


def test_products_of_values_and_of_other_dtypes_are_not_packed() -> None:
    """Attention's products have no constant; double precision, and stacks of matrices, run as the table has it."""
    both = {"function": "relax.matmul", "arguments": [{"input": "x"}, {"input": "y"}], "attributes": {}}
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    run = compile_operator(operator_from("product", "matmul", {"calls": [both]}), {}, packed=True).run
    torch.testing.assert_close(run(x, y), x @ y)
    for matrix in (y.double(), torch.randn(2, 4, 5)):
        value = x.to(matrix.dtype)
        run = compile_operator(_product(None, None), {"matrix": matrix}, packed=True).run
        torch.testing.assert_close(run(value), value @ matrix)


def test_results_are_channels_last() -> None:
    """What a packed convolution makes is in the order in memory in which the next one reads it."""
    attributes = {"strides": [1, 1], "padding": [1, 1, 1, 1], "dilation": [1, 1], "groups": 1}
    run = packed_convolution(attributes, torch.randn(8, 4, 3, 3), None)
    for x in (torch.randn(1, 4, 9, 9), as_made(torch.randn(1, 4, 9, 9))):
        assert run(x).is_contiguous(memory_format=torch.channels_last)


def test_activation_is_part_of_the_convolution() -> None:
    """ReLU behind a packed convolution is no call of its own; behind one that is read again, it is."""
    conv = {
        "function": "relax.nn.conv2d",
        "arguments": [{"input": "x"}, {"weight": "filters"}],
        "attributes": {"strides": [1, 1], "padding": [0, 0, 0, 0], "dilation": [1, 1], "groups": 1},
    }
    relu = {"function": "relax.nn.relu", "arguments": [{"call": 0}], "attributes": {}}
    add = {"function": "relax.add", "arguments": [{"call": 0}, {"call": 1}], "attributes": {}}
    weights, x = {"filters": torch.randn(8, 4, 3, 3)}, torch.randn(1, 4, 9, 9)
    plain = torch.conv2d(x, weights["filters"])
    for calls, expected, separate in (
        ([conv, relu], F.relu(plain), False),
        ([conv, relu, add], F.relu(plain) + plain, True),
    ):
        run = compile_operator(operator_from("conv", "conv2d", {"calls": calls}), weights, packed=True).run
        run(x)
        with torch.profiler.profile() as profile:
            result = run(x)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        assert any("relu" in event.key for event in profile.key_averages()) == separate


def test_other_dtypes_are_not_packed() -> None:
    """Double precision runs as the table has it."""
    case: dict[str, Any] = {"filters": 4, "bias": False, "activation": None, "groups": 1, "attributes": {}}
    case["attributes"] = {"strides": [1, 1], "padding": [0, 0, 0, 0], "dilation": [1, 1], "groups": 1}
    weights = {"filters": torch.randn(4, 4, 3, 3, dtype=torch.float64)}
    output = compile_operator(_operator(case), weights, packed=True).run(torch.randn(1, 4, 9, 9, dtype=torch.float64))
    assert output.dtype is torch.float64


def test_filters_are_kept_once() -> None:
    """After the first run the unpacked filters have been released."""
    attributes = {"strides": [1, 1], "dilation": [1, 1], "padding": [1, 1, 1, 1], "groups": 1}
    filters = torch.randn(2, 4, 3, 3)
    kernel, came = packed_convolution(attributes, filters, None), weakref.ref(filters)
    del filters
    assert came() is not None
    first = kernel(torch.ones(1, 4, 5, 5))
    assert came() is None
    assert torch.equal(kernel(torch.ones(1, 4, 5, 5)), first)


def test_matrices_are_kept_once() -> None:
    """After the first run nothing holds the matrix in the order in which it came."""
    matrix = torch.randn(8, 16)
    kernel, came = packed_product(matrix, None), weakref.ref(matrix)
    del matrix
    assert came() is not None
    first = kernel(torch.ones(2, 8))
    assert came() is None
    assert torch.equal(kernel(torch.ones(2, 8)), first)
