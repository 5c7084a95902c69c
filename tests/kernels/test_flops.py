"""Floating-point operations, by hand and as torch counts them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from hios.kernels.flops import flops
from hios.kernels.table import KERNELS
from tests.frontends.small_networks import SMALL, network
from tests.kernels.table import CHECKS


@pytest.mark.parametrize(
    ("function", "attributes", "arguments", "output", "expected"),
    [
        ("nn.conv2d", {"groups": 1}, [(1, 4, 9, 9), (8, 4, 3, 3)], (1, 8, 7, 7), 2 * 8 * 7 * 7 * 4 * 9),
        ("nn.conv2d", {"groups": 4}, [(1, 4, 9, 9), (8, 1, 3, 3)], (1, 8, 7, 7), 2 * 8 * 7 * 7 * 1 * 9),
        ("matmul", {}, [(5, 3, 4), (5, 4, 6)], (5, 3, 6), 2 * 5 * 3 * 4 * 6),
        ("nn.max_pool2d", {"pool_size": [3, 2]}, [(1, 4, 9, 9)], (1, 4, 3, 4), 4 * 3 * 4 * 6),
        ("nn.avg_pool2d", {"pool_size": [3, 3]}, [(1, 4, 9, 9)], (1, 4, 3, 3), 4 * 3 * 3 * 9),
        ("nn.adaptive_avg_pool2d", {}, [(1, 4, 9, 9)], (1, 4, 1, 1), 4 * 9 * 9),
        ("mean", {}, [(2, 5)], (2,), 10),
        ("concat", {}, [(2, 5), (2, 6)], (2, 11), 0),
        ("reshape", {}, [(2, 5)], (10,), 0),
        ("permute_dims", {}, [(2, 5)], (5, 2), 0),
        ("add", {}, [(2, 5), (5,)], (2, 5), 10),
        ("max", {}, [(2, 5)], (), 10),
        ("cumsum", {}, [(2, 5)], (2, 5), 10),
        ("nn.avg_pool3d", {"pool_size": [3, 1, 1]}, [(1, 1, 5, 4, 4)], (1, 1, 3, 4, 4), 3 * 3 * 4 * 4),
        ("nn.attention", {}, [(2, 3, 4, 8), (2, 5, 4, 8), (2, 5, 4, 6)], (2, 3, 4, 6), 2 * 2 * 4 * 3 * 5 * (8 + 6)),
        ("astype", {}, [(2, 5)], (2, 5), 0),
        ("take", {}, [(20, 5), (3,)], (3, 5), 0),
        ("full", {}, [()], (3, 5), 0),
        ("einsum", {"subscripts": "bij, bjk -> bik"}, [(2, 3, 4), (2, 4, 5)], (2, 3, 5), 2 * 2 * 3 * 4 * 5),
        ("einsum", {"subscripts": "...ij,kj->...ik"}, [(2, 7, 3, 4), (5, 4)], (2, 7, 3, 5), 2 * 2 * 7 * 3 * 4 * 5),
        ("einsum", {"subscripts": "ij->j"}, [(3, 4)], (4,), 12),
    ],
)
def test_flops_of_a_call(
    function: str, attributes: dict[str, Any], arguments: list[tuple[int, ...]], output: tuple[int, ...], expected: int
) -> None:
    """A multiply-add counts two, a pool its window, a copy nothing, everything else its output."""
    assert flops(f"relax.{function}", attributes, arguments, output) == expected


#: Entries whose operations torch counts.
COUNTED = sorted(
    {name for name in KERNELS if ".conv" in name} | {"relax.matmul", "relax.nn.attention", "relax.nn.attention_bias"}
)


@pytest.mark.parametrize("function", COUNTED)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_flops_equal_torch_counter_of_a_call(function: str, data: st.DataObject) -> None:
    """Whatever shapes, groups and strides, a kernel has the operations that torch's own counter finds in it."""

    def run(name: str, attributes: dict[str, Any], *arguments: Tensor) -> Tensor:
        # The counter does not know the fused attention of CPUs, but the products that this backend is made of.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            result: Tensor = KERNELS[name](attributes)(*arguments)
        shapes = [tuple(argument.shape) for argument in arguments]
        if min(len(shape) for shape in shapes[:2]) > 1:  # of products with vectors it counts none
            assert flops(name, attributes, shapes, tuple(result.shape)) == counter.get_total_flops() > 0
        return result

    CHECKS[function](data.draw, run)


@pytest.mark.parametrize(
    ("name", "image_size", "batch_size"),
    [
        ("squeezenet", SMALL["squeezenet"], 1),
        pytest.param("inception_v3", SMALL["inception_v3"], 4, marks=pytest.mark.slow),
    ],
)
def test_flops_equal_torch_counter(name: str, image_size: int, batch_size: int) -> None:
    """Convolutions and matrix products have the operations that torch's own counter finds in the module."""
    extracted_network = network(name, image_size, batch_size, classifier=True)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        extracted_network.module(*extracted_network.inputs)
    total = 0.0
    for operator in extracted_network.graph.operators:
        if operator.type in ("conv2d", "conv2d-relu", "linear"):
            ((output, _),) = operator.output_types
            others = 0 if operator.type == "conv2d" else torch.Size(output).numel()  # the ReLU, the bias
            total += (operator.flops or 0) - others
    assert total == counter.get_total_flops() > 1e7
