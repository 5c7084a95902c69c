"""Convolutions packed for the CPU compute what the table's do."""

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
from hios.kernels.packed import as_made, packed_convolution
from tests.operators import operator_from

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


@st.composite
def _convolutions(draw: st.DrawFn) -> dict[str, Any]:
    groups = draw(st.sampled_from([1, 2, 4]))
    padding = draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
    return {
        "groups": groups,
        "filters": groups * draw(st.integers(1, 3)),
        "kernel": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "bias": draw(st.booleans()),
        "activation": draw(st.sampled_from([None, "relax.nn.relu", "relax.sigmoid", "relax.tanh", "relax.nn.silu"])),
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
