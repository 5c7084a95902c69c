"""Products against sums, attention against its definition, convolutions against sums over windows or gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import strategies as st
from torch import Tensor

from tests.kernels.table.checks import Draw, Run, check, integers, normal, padded, shape_of, windows


@check("matmul")
def _matmul(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    batch, rows, inner, columns = shape_of(draw, 4)
    left, right, sum_over = draw(
        st.sampled_from(
            [
                ((rows, inner), (inner, columns), "ik,kj->ij"),
                ((batch, rows, inner), (batch, inner, columns), "bik,bkj->bij"),
                ((batch, rows, inner), (inner, columns), "bik,kj->bij"),
                ((inner,), (inner, columns), "k,kj->j"),
                ((batch, rows, inner), (inner,), "bik,k->bi"),
                ((inner,), (inner,), "k,k->"),
            ]
        )
    )
    x, y = normal(draw, *left), normal(draw, *right)
    expected = torch.einsum(sum_over, x, y)
    return run({"out_dtype": draw(st.sampled_from(["", "void"]))}, x, y), expected


@check("einsum")
def _einsum(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    rows, inner, columns = shape_of(draw, 3)
    x, y = normal(draw, rows, inner), normal(draw, inner, columns)
    return run({"subscripts": "ik,kj->ji"}, x, y), (x[:, :, None] * y).sum(1).T


@check("outer")
def _outer(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, y = (normal(draw, size) for size in shape_of(draw, 2))
    return run({}, x, y), x[:, None] * y


def _attention(draw: Draw, run: Run, biased: bool) -> tuple[Tensor, Tensor]:
    batch, heads, features, own = shape_of(draw, 4)
    rows, columns = shape_of(draw, 2)
    query, key = normal(draw, batch, rows, heads, features), normal(draw, batch, columns, heads, features)
    value = normal(draw, batch, columns, heads, own)
    scale, causal = draw(st.sampled_from([None, 0.5, 1.0])), draw(st.sampled_from([None, "TopLeft", "BottomRight"]))
    scores = torch.einsum("bqhf,bkhf->bhqk", query, key) * (1 / math.sqrt(features) if scale is None else scale)
    bias = []
    if biased or draw(st.booleans()):
        shape = draw(st.sampled_from([(batch, heads, rows, columns), (batch, 1, rows, columns), (1, 1, 1, columns)]))
        bias = [normal(draw, *shape)]
        scores = scores + bias[0]
    if causal is not None:
        offset = 0 if causal == "TopLeft" else abs(rows - columns)
        allowed = torch.arange(columns) <= torch.arange(rows)[:, None] + offset
        scores = scores.masked_fill(~allowed, -math.inf)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    weights = weights / weights.sum(-1, keepdim=True)
    attributes = {"scale": scale, "causal_mask": causal, "window_size": None}
    return run(attributes, query, key, value, *bias), torch.einsum("bhqk,bkhf->bqhf", weights, value)


for _name, _biased in {"nn.attention": False, "nn.attention_bias": True}.items():
    check(_name, _biased)(_attention)


_AXES = {1: "W", 2: "HW", 3: "DHW"}


def _attributes(draw: Draw, dimensions: int, kernel_layout: str) -> dict[str, Any]:
    axes = _AXES[dimensions]
    return {
        "strides": integers(draw, 1, 3, dimensions),
        "dilation": integers(draw, 1, 3 - dimensions // 2, dimensions),
        "groups": draw(st.integers(1, 3)),
        "data_layout": f"NC{axes}",
        "kernel_layout": f"{kernel_layout}{axes}",
        "out_layout": f"NC{axes}",
        "out_dtype": draw(st.sampled_from(["", "void"])),
    }


def _convolution(draw: Draw, run: Run, dimensions: int) -> tuple[Tensor, Tensor]:
    attributes = _attributes(draw, dimensions, "OI")
    groups, per_group, filters = attributes["groups"], draw(st.integers(1, 2)), draw(st.integers(1, 2))
    size = integers(draw, 1, 3, dimensions)
    attributes["padding"] = padding = integers(draw, 0, 2, 2 * dimensions)
    reach = [gap * (own - 1) + 1 for gap, own in zip(attributes["dilation"], size, strict=True)]
    x = normal(draw, 2, groups * per_group, *(draw(st.integers(least, 8)) for least in reach))
    weight = normal(draw, groups * filters, per_group, *size)
    bias = [normal(draw, groups * filters)] if draw(st.booleans()) else []
    output = windows(padded(x, padding), size, attributes["strides"], attributes["dilation"])
    places = output.shape[2 : 2 + dimensions]
    products = torch.einsum(
        "ngcpk,gock->ngop",
        output.reshape(2, groups, per_group, places.numel(), -1),
        weight.reshape(groups, filters, per_group, -1),
    ).reshape(2, groups * filters, *places)
    expected = products + bias[0].reshape(-1, *[1] * dimensions) if bias else products
    return run(attributes, x, weight, *bias), expected


_FORWARD = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def _transposed(draw: Draw, run: Run, dimensions: int) -> tuple[Tensor, Tensor]:
    attributes = _attributes(draw, dimensions, "IO")
    groups, per_group, filters = attributes["groups"], draw(st.integers(1, 2)), draw(st.integers(1, 2))
    strides, dilation = attributes["strides"], attributes["dilation"]
    size = integers(draw, 1, 3, dimensions)
    half = [draw(st.integers(0, gap * (own - 1))) for gap, own in zip(dilation, size, strict=True)]
    attributes["padding"] = [*half, *half]
    attributes["output_padding"] = more = [
        draw(st.integers(0, max(step, gap) - 1)) for step, gap in zip(strides, dilation, strict=True)
    ]
    x = normal(draw, 2, groups * per_group, *(draw(st.integers(3, 6)) for _ in size))
    weight = normal(draw, groups * per_group, filters, *size)
    extent = [
        (own - 1) * step - 2 * side + gap * (window - 1) + 1 + extra
        for own, step, side, gap, window, extra in zip(x.shape[2:], strides, half, dilation, size, more, strict=True)
    ]
    image = torch.zeros(2, groups * filters, *[max(1, own) for own in extent], requires_grad=True)
    how = None, strides, half, dilation, groups
    if min(extent) < 1 or (forward := _FORWARD[dimensions](image, weight, *how)).shape != x.shape:
        return torch.zeros(()), torch.zeros(())  # not a gradient of any convolution
    (expected,) = torch.autograd.grad(forward, image, x)
    return run(attributes, x, weight), expected


for _dimensions in _AXES:
    check(f"nn.conv{_dimensions}d", _dimensions)(_convolution)
    check(f"nn.conv{_dimensions}d_transpose", _dimensions)(_transposed)
