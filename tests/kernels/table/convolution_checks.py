"""Convolutions against sums over windows, transposed ones against gradients of convolutions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import strategies as st
from torch import Tensor

from tests.kernels.table.checks import Check, Draw, Run, check, integers, normal, windows

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


def _convolution(dimensions: int) -> Check:
    def convolution(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
        attributes = _attributes(draw, dimensions, "OI")
        groups, per_group, filters = attributes["groups"], draw(st.integers(1, 2)), draw(st.integers(1, 2))
        size = integers(draw, 1, 3, dimensions)
        attributes["padding"] = padding = integers(draw, 0, 2, 2 * dimensions)
        reach = [gap * (own - 1) + 1 for gap, own in zip(attributes["dilation"], size, strict=True)]
        x = normal(draw, 2, groups * per_group, *(draw(st.integers(least, 8)) for least in reach))
        weight = normal(draw, groups * filters, per_group, *size)
        bias = [normal(draw, groups * filters)] if draw(st.booleans()) else []
        extent = [
            own + before + behind
            for own, before, behind in zip(x.shape[2:], padding[:dimensions], padding[dimensions:], strict=True)
        ]
        padded = torch.zeros(*x.shape[:2], *extent)
        inside = (slice(before, before + own) for before, own in zip(padding, x.shape[2:], strict=False))
        padded[(slice(None), slice(None), *inside)] = x
        output = windows(padded, size, attributes["strides"], attributes["dilation"])
        places = output.shape[2 : 2 + dimensions]
        products = torch.einsum(
            "ngcpk,gock->ngop",
            output.reshape(2, groups, per_group, places.numel(), -1),
            weight.reshape(groups, filters, per_group, -1),
        ).reshape(2, groups * filters, *places)
        expected = products + bias[0].reshape(-1, *[1] * dimensions) if bias else products
        return run(attributes, x, weight, *bias), expected

    return convolution


_FORWARD = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def _transposed(dimensions: int) -> Check:
    def transposed(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
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
            for own, step, side, gap, window, extra in zip(
                x.shape[2:], strides, half, dilation, size, more, strict=True
            )
        ]
        image = torch.zeros(2, groups * filters, *[max(1, own) for own in extent], requires_grad=True)
        if (
            min(extent) < 1
            or _FORWARD[dimensions](image, weight, None, strides, half, dilation, groups).shape != x.shape
        ):
            return torch.zeros(()), torch.zeros(())  # not a gradient of any convolution
        forward = _FORWARD[dimensions](image, weight, None, strides, half, dilation, groups)
        (expected,) = torch.autograd.grad(forward, image, x)
        return run(attributes, x, weight), expected

    return transposed


for _dimensions in _AXES:
    check(f"nn.conv{_dimensions}d")(_convolution(_dimensions))
    check(f"nn.conv{_dimensions}d_transpose")(_transposed(_dimensions))
