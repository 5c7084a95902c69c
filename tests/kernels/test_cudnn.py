"""Convolutions packed for GPUs compute what the table's do; without a GPU, by stand-ins of cuDNN's calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor

from hios import Graph
from hios.core.merging import merged_kernel
from hios.kernels import build, compile_operator, cudnn
from hios.kernels.onednn import as_made
from hios.kernels.segment_module import exported
from hios.platforms.cuda.precision import exactly
from tests.convolution_graphs import Conv
from tests.core.test_merging import likely, members_of, outputs
from tests.gpu_marker import requires_gpu
from tests.kernels.test_onednn import X, convolutions, operator_of
from tests.operators import CONVOLUTION, call, unit


def _check(case: dict[str, Any], place: str) -> list[Tensor]:
    """Run a case as the table does and packed, with images in both orders; returns what was packed."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 4, 9, 8, generator=generator).to(place)
    filters = torch.randn(case["filters"], 4 // case["groups"], *case["kernel"], generator=generator).to(place)
    weights = {"filters": filters, "bias": torch.randn(case["filters"], generator=generator).to(place)}
    operator = operator_of(case)
    expected = compile_operator(operator, weights).run(x)
    run = compile_operator(operator, weights, packed=True).run
    made = [run(x), run(as_made(x))]
    for result in made:
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    return made


@contextmanager
def _stand_ins() -> Iterator[list[bool]]:
    """A context in which cores are a GPU; gives whether images are channels last, of every fused call."""
    fused = []

    def convolution_relu(x: Tensor, filters: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
        fused.append(x.is_contiguous(memory_format=torch.channels_last))
        return torch.conv2d(x, filters, bias, *how).relu()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cudnn, "is_packable", lambda filters: True)
        patch.setattr("hios.kernels.onednn.is_packable", lambda filters: False)
        patch.setattr(torch, "cudnn_convolution_relu", convolution_relu)
        yield fused


@given(convolutions())
def test_packed_equals_table(case: dict[str, Any]) -> None:
    """Over strides, padding, dilation, bias and activation; groups are not packed, and only ReLU is fused."""
    with _stand_ins() as fused:
        made = _check(case, "cpu")
    assert fused == [True] * (2 * (case["groups"] == 1 and case["activation"] == "nn.relu"))
    assert case["groups"] > 1 or all(result.is_contiguous(memory_format=torch.channels_last) for result in made)


@given(likely())
def test_merged_equals_alone(members: list[Conv]) -> None:
    """Several convolutions as one, with their ReLU in the same call, and parts that readers need not copy."""
    members = [member for member in members if min(member.output) > 0]
    if merged_kernel(members_of(*members)) is None:
        return
    with _stand_ins() as fused:
        alone, merged = outputs(tuple(members), packed=True)
    for one, other in zip(alone, merged, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-4)
        assert other.is_contiguous(memory_format=torch.channels_last)
    assert fused == [True] * (members[0].activation == ("relax.nn.relu",))


def test_filters_of_packed_convolutions_alone_change_their_order() -> None:
    """Not those of groups, nor what anything else reads too, nor biases."""
    apart = call("nn.conv2d", X, {"weight": "a"}, {"weight": "bias"}, **CONVOLUTION)
    grouped = call("nn.conv2d", {"call": 0}, {"weight": "b"}, **CONVOLUTION | {"groups": 2})
    read_twice = call("nn.conv2d", {"call": 1}, {"weight": "c"}, **CONVOLUTION)
    graph = Graph("convolutions", (unit(apart, grouped, read_twice, call("add", {"call": 2}, {"weight": "c"})),), ())
    assert cudnn.packed_filters(graph) == {"a"}


@pytest.mark.parametrize("channels", [1, 4])
def test_the_fused_call_is_traced(channels: int) -> None:
    """torch.export takes it for one call, whose result is channels last as the call makes it."""
    convolution = call("nn.conv2d", X, {"weight": "filters"}, {"weight": "bias"}, **CONVOLUTION)
    operator = unit(convolution, call("nn.relu", {"call": 0}))
    weights = {"filters": torch.randn(6, channels, 3, 3), "bias": torch.randn(6)}
    x, value = torch.randn(2, channels, 9, 8), ("input", "x", 0)
    with _stand_ins() as fused:
        program = exported(
            [operator], {value: x}, [("operator", operator.id, 0)], weights, packed=True, keep_strides=True
        )
        assert [node.target for node in program.graph.nodes if "convolution" in str(node.target)] == [
            torch.ops.hios.convolution_relu.default
        ]
        (traced,) = [node.meta["val"] for node in program.graph.nodes if "convolution_relu" in str(node.target)]
        (made,) = program.module()(x)
        expected = compile_operator(operator, weights, packed=True).run(x)
    assert traced.stride() == made.stride()
    torch.testing.assert_close(made, expected)
    assert fused == [True, True]


@requires_gpu
@given(convolutions())
def test_cudnn_equals_table(case: dict[str, Any]) -> None:
    """The same on a GPU."""
    with torch.inference_mode(), exactly():
        _check(case, "cuda")


@requires_gpu
@pytest.mark.parametrize("window", [2, 3])
def test_pools_keep_the_order_of_channels(window: int) -> None:
    """Images in both orders give equal results, each in the order that it came in."""
    attributes: dict[str, Any] = {"pool_size": [window] * 2, "strides": [2, 2], "padding": [1] * 4, "dilation": [1, 1]}
    attributes |= {"ceil_mode": False, "layout": "NCHW", "out_layout": "NCHW"}
    run = build("relax.nn.max_pool2d", attributes, "pool")
    x = torch.randn(2, 4, 9, 8, device="cuda")
    for image, order in ((x, torch.contiguous_format), (as_made(x), torch.channels_last)):
        result = run(image)
        assert result.is_contiguous(memory_format=order)
        torch.testing.assert_close(result.cpu(), run(x.cpu()))
