"""Pools against reductions of windows."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.kernels.table.checks import Check, Draw, Run, check, integers, normal, windows

_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _pool(draw: Draw, dimensions: int, symmetric: bool) -> tuple[Tensor, dict[str, Any]]:
    size = integers(draw, 1, 3, dimensions)
    before = [draw(st.integers(0, own // 2)) for own in size]
    behind = before if symmetric else [draw(st.integers(0, own // 2)) for own in size]
    attributes = {
        "pool_size": size,
        "strides": integers(draw, 1, 3, dimensions),
        "padding": [*before, *behind],
        "dilation": [1] * dimensions,
        "ceil_mode": draw(st.booleans()),
        "count_include_pad": draw(st.booleans()),
        "layout": _LAYOUT[dimensions],
        "out_layout": _LAYOUT[dimensions],
    }
    return normal(draw, 2, 2, *(draw(st.integers(own, 8)) for own in size)), attributes


def _padded(x: Tensor, padding: list[int], fill: float) -> Tensor:
    half = len(padding) // 2
    extent = [
        own + before + behind for own, before, behind in zip(x.shape[2:], padding[:half], padding[half:], strict=True)
    ]
    padded = torch.full((*x.shape[:2], *extent), fill)
    inside = (slice(before, before + own) for before, own in zip(padding, x.shape[2:], strict=False))
    padded[(slice(None), slice(None), *inside)] = x
    return padded


def _places(x: Tensor, attributes: dict[str, Any]) -> list[int]:
    """How many windows there are: in ceil mode as many as start within the image or the padding before it."""
    dimensions = len(attributes["pool_size"])
    places = []
    for axis in range(dimensions):
        before, behind = attributes["padding"][axis], attributes["padding"][dimensions + axis]
        step = attributes["strides"][axis]
        room = x.shape[2 + axis] + before + behind
        room -= attributes["dilation"][axis] * (attributes["pool_size"][axis] - 1) + 1
        count = (math.ceil(room / step) if attributes["ceil_mode"] else room // step) + 1
        if attributes["ceil_mode"] and (count - 1) * step >= x.shape[2 + axis] + before:
            count -= 1
        places.append(count)
    return places


def _windows(x: Tensor, attributes: dict[str, Any], fill: float) -> Tensor:
    """Elements of each window in the last axis; what hangs over is NaN."""
    output = windows(
        _padded(x, attributes["padding"], fill),
        attributes["pool_size"],
        attributes["strides"],
        attributes["dilation"],
        attributes["ceil_mode"],
    )
    places = _places(x, attributes)
    kept: tuple[Any, ...] = (..., *(slice(count) for count in places), *[slice(None)] * len(places))
    return output[kept].flatten(2 + len(places))


def _max_pool(dimensions: int) -> Check:
    def max_pool(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
        x, attributes = _pool(draw, dimensions, symmetric=draw(st.booleans()))
        if attributes["padding"][:dimensions] != attributes["padding"][dimensions:]:
            attributes["ceil_mode"] = False
        else:
            attributes["dilation"] = [
                draw(st.integers(1, max(1, (own - 1) // max(1, window - 1))))
                for own, window in zip(x.shape[2:], attributes["pool_size"], strict=True)
            ]
        expected = _windows(x, attributes, -math.inf).nan_to_num(-math.inf, neginf=-math.inf).amax(-1)
        return run(attributes, x), expected

    return max_pool


def _avg_pool(dimensions: int) -> Check:
    def avg_pool(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
        x, attributes = _pool(draw, dimensions, symmetric=draw(st.booleans()))
        if attributes["padding"][:dimensions] != attributes["padding"][dimensions:]:
            attributes.update(ceil_mode=False, count_include_pad=True)
        counted = _windows(torch.ones_like(x), attributes, 1.0 if attributes["count_include_pad"] else 0.0)
        expected = _windows(x, attributes, 0.0).nansum(-1) / counted.nansum(-1)
        return run(attributes, x), expected

    return avg_pool


def _adaptive(dimensions: int) -> Check:
    def adaptive(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
        size = integers(draw, 1, 4, dimensions)
        x = normal(draw, 2, 3, *integers(draw, 1, 7, dimensions))
        layout = _LAYOUT[dimensions]
        expected = x
        for axis, count in enumerate(size, start=2):
            own = x.shape[axis]
            parts = [
                expected.narrow(axis, start := place * own // count, -(-(place + 1) * own // count) - start)
                for place in range(count)
            ]
            expected = torch.stack([part.mean(axis) for part in parts], axis)
        attributes = {"output_size": size, "layout": layout, "out_layout": layout}
        return run(attributes, x), expected

    return adaptive


for _dimensions in _LAYOUT:
    check(f"nn.max_pool{_dimensions}d")(_max_pool(_dimensions))
    check(f"nn.avg_pool{_dimensions}d")(_avg_pool(_dimensions))
    check(f"nn.adaptive_avg_pool{_dimensions}d")(_adaptive(_dimensions))
