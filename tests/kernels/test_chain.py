"""Kernels through the real chain: torch.export, Relax, graph, and the same numbers as eager torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.frontends.extraction_check import flat, run_graph
from hios.frontends.program import export
from hios.frontends.torch_lowering import lower
from hios.kernels.table import KERNELS
from tests.frontends.small_networks import Model, extracted

_GENERATOR = torch.Generator().manual_seed(0)

#: Entries that the import of torch never emits, as torch takes them apart before, or they are opaque calls: they come
#: from ONNX, Relax's own passes, or graphs of earlier versions.
NOT_FROM_TORCH = {
    *("argsort", "ewise_fma", "log_add_exp", "left_shift", "right_shift", "isfinite", "square"),
    *("flatten", "nn.batch_flatten", "nn.dropout", "meshgrid", "repeat", "stack"),
    *("floor_divide", "gather_nd", "index_put", "index_tensor", "scatter_nd", "one_hot", "sort", "std"),
    *("ones", "ones_like", "zeros", "zeros_like", "tril", "triu"),
    *("einsum", "outer", "nn.attention_bias", "nn.rms_norm"),
    *("nn.adaptive_avg_pool1d", "nn.avg_pool1d", "nn.max_pool1d", "nn.conv3d_transpose"),
}


@dataclass(frozen=True)
class Group:
    """Functions of the same inputs, which one module computes; ``operators`` are Relax's or ATen's, in any number."""

    inputs: tuple[Tensor, ...]
    functions: Sequence[tuple[str, Callable[..., Any]]]

    @property
    def operators(self) -> set[str]:
        """Relax operators that the functions need."""
        names = [name for names, _ in self.functions for name in names.split()]
        return {name if name.startswith("aten.") else f"relax.{name}" for name in names}


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=_GENERATOR)


def _uniform(*shape: int) -> Tensor:
    return 0.1 + 0.8 * torch.rand(shape, generator=_GENERATOR)


def _whole(*shape: int) -> Tensor:
    return torch.randint(1, 9, shape, generator=_GENERATOR)


def _alike(*names: str) -> list[tuple[str, Callable[..., Any]]]:
    """Operators of the names of torch's functions."""
    return [(name, getattr(torch, name)) for name in names]


GROUPS = {
    "functions of one number": Group(
        (_uniform(3, 4),),
        [
            *_alike("acos", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log", "rsqrt", "sigmoid"),
            *_alike("sin", "sinh", "sqrt", "tan", "tanh"),
            ("abs", lambda x: torch.abs(x - 0.5)),
            ("acosh", lambda x: torch.acosh(x + 1)),
            ("ceil", lambda x: torch.ceil(4 * x)),
            ("floor", lambda x: torch.floor(4 * x)),
            ("negative", torch.neg),
            ("round", lambda x: torch.round(4 * x)),
            ("sign", lambda x: torch.sign(x - 0.5)),
            ("trunc", lambda x: torch.trunc(4 * x)),
        ],
    ),
    "activations": Group(
        (_normal(2, 3, 4, 5),),
        [
            ("nn.relu", F.relu),
            ("clip", F.relu6),
            ("clip", lambda x: torch.clamp(x, -0.5)),
            ("clip multiply divide", F.hardswish),
            ("clip divide", F.hardsigmoid),
            ("aten.elu.default", F.elu),
            ("nn.leakyrelu", lambda x: F.leaky_relu(x, 0.2)),
            ("nn.gelu", F.gelu),
            ("nn.gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
            ("nn.selu", F.selu),
            ("nn.silu", F.silu),
            ("nn.softmax", lambda x: F.softmax(x, 1)),
            ("nn.log_softmax", lambda x: F.log_softmax(x, -1)),
            ("nn.softplus", lambda x: F.softplus(x, 2.0, 1.0)),
            ("nn.prelu", lambda x: F.prelu(x, torch.tensor([0.1, 0.2, 0.3]))),
            ("nn.prelu", lambda x: F.prelu(x, torch.tensor([0.25]))),
            ("nn.softplus tanh", F.mish),
            ("strided_slice sigmoid", lambda x: F.glu(x, 2)),
        ],
    ),
    "two tensors": Group(
        (_normal(3, 1, 5), _uniform(4, 1)),
        [
            *_alike("add", "atan2", "maximum", "minimum"),
            ("subtract", torch.sub),
            ("subtract", lambda x, y: 1 - y),
            ("multiply", torch.mul),
            ("divide", torch.div),
            ("divide", lambda x, y: 1 / y),
            ("power", lambda x, y: torch.pow(y, x)),
            ("power", lambda x, y: x**3),
            ("power", lambda x, y: 2**x),
            ("aten.div.Tensor_mode", lambda x, y: torch.div(x, y, rounding_mode="floor")),
            ("floor_mod", torch.remainder),
            ("mod", torch.fmod),
            ("exp aten.log1p.default", torch.logaddexp),
            ("equal", torch.eq),
            ("not_equal", torch.ne),
            ("less", torch.lt),
            ("less_equal", torch.le),
            ("greater", torch.gt),
            ("greater_equal", lambda x, y: x >= 0.5),
            ("where", lambda x, y: torch.where(x > 0, x, y)),
            ("where", lambda x, y: torch.where(x > 0, 2.0, -1.0)),
            ("where", lambda x, y: x.masked_fill(x > 0, -torch.inf)),
            ("logical_and", lambda x, y: torch.logical_and(x > 0, y > 0.5)),
            ("logical_or", lambda x, y: torch.logical_or(x > 0, y > 0.5)),
            ("logical_xor", lambda x, y: torch.logical_xor(x > 0, y > 0.5)),
            ("logical_not", lambda x, y: torch.logical_not(x > 0)),
        ],
    ),
    "special numbers": Group(
        (torch.tensor([1.0, torch.inf, -torch.inf, torch.nan]),),
        [("abs", torch.isfinite), ("isinf", torch.isinf), ("isnan", torch.isnan)],
    ),
    "whole numbers": Group(
        (_whole(3, 4), _whole(3, 4)),
        [
            *_alike("add", "bitwise_and", "bitwise_or", "bitwise_xor"),
            ("bitwise_not", lambda x, y: ~x),
            ("aten.div.Tensor_mode", lambda x, y: torch.div(x, y + 1, rounding_mode="floor")),
            ("floor_mod", lambda x, y: torch.remainder(x, y + 1)),
            ("astype", lambda x, y: x.float()),
            ("greater", lambda x, y: x > 4),
            ("clip", lambda x, y: torch.clamp(x, 2, 5)),
            ("sum", lambda x, y: torch.sum(x, 1)),
            ("cumsum", lambda x, y: torch.cumsum(x, 1)),
        ],
    ),
    "dtypes": Group(
        (_normal(3, 4),),
        [
            ("astype", lambda x: x.to(torch.float16)),
            ("astype", lambda x: (4 * x).to(torch.int32)),
            ("astype", lambda x: x.double() * 2),
        ],
    ),
    "convolutions of images": Group(
        (_normal(2, 4, 9, 8),),
        [
            ("nn.conv2d", lambda x: F.conv2d(x, _W(6, 4, 3, 2), _W(6), (2, 1), (1, 0), (1, 2))),
            ("nn.conv2d", lambda x: F.conv2d(x, _W(4, 1, 3, 3), padding=1, groups=4)),
            ("nn.conv2d_transpose", lambda x: F.conv_transpose2d(x, _W(4, 3, 3, 2), _W(3), (2, 1), (1, 0), (1, 0))),
            ("nn.conv2d_transpose", lambda x: F.conv_transpose2d(x, _W(4, 3, 2, 2), groups=2, dilation=2)),
        ],
    ),
    "convolutions of sequences": Group(
        (_normal(2, 4, 9),),
        [
            ("nn.conv1d", lambda x: F.conv1d(x, _W(6, 2, 3), _W(6), 2, 1, 2, 2)),
            ("nn.conv1d_transpose", lambda x: F.conv_transpose1d(x, _W(4, 3, 3), _W(3), 2, 1, 1)),
        ],
    ),
    "convolutions of volumes": Group(
        (_normal(1, 2, 5, 6, 7),),
        [
            ("nn.conv3d", lambda x: F.conv3d(x, _W(3, 2, 3, 2, 1), None, (1, 2, 1), (1, 0, 0))),
        ],
    ),
    "pools": Group(
        (_normal(2, 3, 9, 8),),
        [
            ("nn.max_pool2d", lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), 2, ceil_mode=True)),
            ("nn.avg_pool2d", lambda x: F.avg_pool2d(x, (3, 2), (2, 3), (1, 1), count_include_pad=False)),
            ("nn.avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)),
            ("nn.adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (4, 3))),
            ("nn.max_pool2d", lambda x: F.max_pool1d(x[:, 0], 3, 2, 1)),
            ("nn.avg_pool2d", lambda x: F.avg_pool1d(x[:, 0], 3, 2, 1, count_include_pad=False)),
            ("nn.adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool1d(x[:, 0], 3)),
            ("nn.max_pool3d", lambda x: F.max_pool3d(x, 3, 2, 1)),
            ("nn.avg_pool3d", lambda x: F.avg_pool3d(x, 3, 2, 1)),
            ("nn.adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4))),
        ],
    ),
    "local response normalization": Group(
        (_normal(2, 5, 4, 4),),
        [("nn.avg_pool3d nn.pad power", lambda x: F.local_response_norm(x, 3, 0.1))],
    ),
    "normalizations": Group(
        (_normal(2, 4, 5, 6),),
        [
            ("nn.batch_norm", lambda x: F.batch_norm(F.relu(x), _W(4), _W(4).abs(), _W(4), _W(4), eps=0.01)),
            ("nn.layer_norm", lambda x: F.layer_norm(x, (6,), _W(6), _W(6), 0.1)),
            ("nn.layer_norm", lambda x: F.layer_norm(x, (5, 6))),
            ("nn.group_norm", lambda x: F.group_norm(x, 2, _W(4), _W(4), 0.1)),
            ("nn.instance_norm", lambda x: F.instance_norm(x, weight=_W(4), bias=_W(4), eps=0.1)),
            ("mean rsqrt", lambda x: F.rms_norm(x, (6,), _W(6))),
            ("sum broadcast_to", lambda x: F.normalize(x, dim=1)),
        ],
    ),
    "reductions": Group(
        (_normal(3, 4, 5),),
        [
            *_alike("sum", "max", "min", "prod", "argmax"),
            ("sum", lambda x: torch.sum(x, (0, 2), keepdim=True)),
            ("mean", lambda x: torch.mean(x, (-1,))),
            ("variance", lambda x: torch.var(x, (1, 2), correction=0)),
            ("variance multiply", lambda x: torch.var(x, (1, 2))),
            ("variance sqrt", lambda x: torch.std(x, 1, keepdim=True)),
            ("max argmax", lambda x: torch.max(x, 1)),
            ("topk", lambda x: torch.topk(x, 2, 1)),
            ("topk", lambda x: torch.topk(x, 3, -1, largest=False).indices),
            ("argmax", lambda x: torch.argmax(x, 1)),
            ("argmin", lambda x: torch.argmin(x, -1, keepdim=True)),
            ("aten.sort.default", lambda x: torch.argsort(x, 1, descending=True)),
            ("aten.sort.default", lambda x: torch.sort(x, 2)),
            ("cumsum", lambda x: torch.cumsum(x, 2)),
            ("cumprod", lambda x: torch.cumprod(x, 0)),
        ],
    ),
    "layout": Group(
        (_normal(2, 6, 4),),
        [
            ("reshape", lambda x: x.reshape(3, -1)),
            ("permute_dims", lambda x: x.permute(2, 0, 1)),
            ("concat", lambda x: torch.cat([x, x + 1, x], 1)),
            ("concat", lambda x: torch.stack([x, x + 1], 2)),
            ("split", lambda x: torch.split(x, [1, 3, 2], 1)),
            ("split", lambda x: torch.chunk(x, 4, 1)),
            ("expand_dims", lambda x: x[:, None, :, None]),
            ("squeeze", lambda x: x[:, :, None].squeeze(2)),
            ("broadcast_to", lambda x: x[:, None].expand(2, 3, 6, 4) + 0),
            ("tile", lambda x: x.repeat(2, 1, 3)),
            ("flip", lambda x: torch.flip(x, (1,))),
            ("nn.pad", lambda x: F.pad(x, (1, 2, 0, 3), value=0.5)),
            ("nn.pixel_shuffle", lambda x: F.pixel_shuffle(torch.cat([x, x, x, x], 1)[..., None], 2)),
            ("broadcast_to", lambda x: torch.meshgrid(x[0, :, 0], x[0, 0], indexing="ij")),
            ("arange mod aten.index_select.default", lambda x: torch.roll(x, 2, 1)),
        ],
    ),
    "places": Group(
        (_normal(4, 5, 6), torch.tensor([[0, 3], [2, 1]])),
        [
            ("strided_slice", lambda x, i: x[:, 1:4, 1::2]),
            ("strided_slice", lambda x, i: x[-2:, :-1]),
            ("take", lambda x, i: x[:, 2]),
            ("take", lambda x, i: x[:, -1]),
            ("aten.index.Tensor", lambda x, i: x[torch.tensor([3, -1])]),
            ("aten.embedding.default", lambda x, i: F.embedding(i, x[:, 0])),
            ("aten.index_select.default", lambda x, i: torch.index_select(x, 2, i[0])),
            ("gather_elements", lambda x, i: torch.gather(x, 1, (i + 1)[..., None])),
            ("aten.index.Tensor", lambda x, i: x[i, i + 1]),
            ("aten.index_put.default", lambda x, i: torch.index_put(x[:, :, 0], (i[0], i[1]), x[0, 0, :2])),
            ("scatter_elements", lambda x, i: torch.scatter(x[:2, :, 0], 1, i, x[:2, :2, 1])),
            ("slice_scatter", lambda x, i: torch.slice_scatter(x, x[:, :2] + 1, 1, 1, 4, 2)),
        ],
    ),
    "made from nothing": Group(
        (_normal(4, 5),),
        [
            ("full", lambda x: x + torch.full((5,), 2.5)),
            ("full_like", lambda x: x + torch.full_like(x, 1.5)),
            ("full", lambda x: x + x.new_zeros(5)),
            ("full", lambda x: x + x.new_ones(5)),
            ("full_like", torch.zeros_like),
            ("full_like", torch.ones_like),
            ("arange", lambda x: x + torch.arange(1, 10, 2)),
            ("where", torch.tril),
            ("where", lambda x: torch.triu(x, 1)),
        ],
    ),
    "products": Group(
        (_normal(2, 3, 4), _normal(2, 4, 5)),
        [
            ("matmul", torch.matmul),
            ("matmul", lambda x, y: x @ y[0]),
            ("matmul", lambda x, y: x[0] @ y[0]),
            ("matmul add", lambda x, y: F.linear(x, _W(6, 4), _W(6))),
            ("matmul", lambda x, y: torch.einsum("bij,bjk->bik", x, y)),
        ],
    ),
    "attention": Group(
        (_normal(2, 3, 4, 8), _normal(2, 3, 6, 8), _normal(2, 3, 6, 8)),
        [
            ("nn.attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v)),
            ("nn.attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
        ],
    ),
    "resizing": Group(
        (_normal(1, 2, 4, 6),),
        [
            ("image.resize2d", lambda x: F.interpolate(x, scale_factor=2)),
            ("image.resize2d", lambda x: F.interpolate(x, (8, 9), mode="bilinear")),
            ("image.resize2d", lambda x: F.interpolate(x, (3, 7), mode="bilinear", align_corners=True)),
        ],
    ),
}


def _W(*shape: int) -> Tensor:  # noqa: N802
    """Weights: numbers from -1 to 1 in a row."""
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)


def _module(name: str) -> Model:
    """One module that computes all functions of a group."""
    functions = [function for _, function in GROUPS[name].functions]
    return Model(lambda self, *inputs: tuple(function(*inputs) for function in functions))


@pytest.mark.parametrize("name", GROUPS)
def test_graph_equals_eager(name: str) -> None:
    """What torch exports, Relax imports and the table runs is what torch computes."""
    network = extracted(_module(name), GROUPS[name].inputs)
    outputs, expected = run_graph(network.graph, network.tensors, network.inputs), flat(network.eager())
    for number, (ours, theirs) in enumerate(zip(outputs, expected, strict=True)):
        message = functools.partial("{}: {}".format, number)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5, equal_nan=True, msg=message)


@pytest.mark.parametrize("name", GROUPS)
def test_operators_come_through(name: str) -> None:
    """The Relax operators that a group is there for are in what the importer makes of it."""
    program = export(_module(name).eval(), GROUPS[name].inputs)
    called = lower(program, lambda lowered: {call.function for call in lowered.calls})
    assert GROUPS[name].operators <= called


def test_every_entry_comes_through() -> None:
    """Every entry that torch models can need is in a group."""
    expected = {name.removeprefix("relax.") for name in KERNELS} - NOT_FROM_TORCH
    tried = set().union(*(group.operators for group in GROUPS.values()))
    assert {name for name in tried if not name.startswith("aten.")} == {f"relax.{name}" for name in expected}
