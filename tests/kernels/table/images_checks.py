"""Pools against reductions of windows, resizing against sums over pixels with weights from the definition."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.kernels.table.checks import Draw, Run, check, integers, normal, padded, windows

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
        padded(x, attributes["padding"], fill),
        attributes["pool_size"],
        attributes["strides"],
        attributes["dilation"],
        attributes["ceil_mode"],
    )
    places = _places(x, attributes)
    kept: tuple[Any, ...] = (..., *(slice(count) for count in places), *[slice(None)] * len(places))
    return output[kept].flatten(2 + len(places))


def _max_pool(draw: Draw, run: Run, dimensions: int) -> tuple[Tensor, Tensor]:
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


def _avg_pool(draw: Draw, run: Run, dimensions: int) -> tuple[Tensor, Tensor]:
    x, attributes = _pool(draw, dimensions, symmetric=draw(st.booleans()))
    if attributes["padding"][:dimensions] != attributes["padding"][dimensions:]:
        attributes.update(ceil_mode=False, count_include_pad=True)
    counted = _windows(torch.ones_like(x), attributes, 1.0 if attributes["count_include_pad"] else 0.0)
    expected = _windows(x, attributes, 0.0).nansum(-1) / counted.nansum(-1)
    return run(attributes, x), expected


def _adaptive(draw: Draw, run: Run, dimensions: int) -> tuple[Tensor, Tensor]:
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


for _dimensions in _LAYOUT:
    check(f"nn.max_pool{_dimensions}d", _dimensions)(_max_pool)
    check(f"nn.avg_pool{_dimensions}d", _dimensions)(_avg_pool)
    check(f"nn.adaptive_avg_pool{_dimensions}d", _dimensions)(_adaptive)


def _center(place: int, given: int, own: int, coordinates: str) -> float:
    """Where a pixel of the result lies in the image."""
    if coordinates == "align_corners":
        return place * (given - 1) / (own - 1) if own > 1 else 0.0
    if coordinates == "asymmetric":
        return place * given / own
    return (place + 0.5) * given / own - 0.5


def _cubic(distance: float) -> float:
    """Keys' convolution kernel with a = -0.75."""
    a, d = -0.75, abs(distance)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def _weights(given: int, own: int, method: str, coordinates: str, rounding: str) -> Tensor:
    """Weight of each pixel of the image (second axis) in each of the result (first)."""
    weights = torch.zeros(own, given)
    for place in range(own):
        center = _center(place, given, own, coordinates)
        if method == "nearest_neighbor":
            nearest = round(center) if rounding == "round" else math.floor(center)
            weights[place, min(max(nearest, 0), given - 1)] = 1.0
            continue
        for pixel in range(math.floor(center) - 1, math.floor(center) + 3):
            distance = center - pixel
            weight = max(0.0, 1 - abs(distance)) if method == "linear" else _cubic(distance)
            weights[place, min(max(pixel, 0), given - 1)] += weight
    return weights


@check("image.resize2d")
def _resize2d(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    given, size = integers(draw, 2, 8, 2), integers(draw, 2, 12, 2)
    kind, factor = draw(st.sampled_from(["any", "grow", "shrink"])), draw(st.integers(1, 3))
    if kind == "grow":
        size = [factor * own for own in given]
    elif kind == "shrink":  # where centers fall between two pixels
        given = [factor * own for own in size]
    method = draw(st.sampled_from(["nearest_neighbor", "linear", "cubic"]))
    coordinates = draw(st.sampled_from(["half_pixel", "align_corners", "pytorch_half_pixel"]))
    rounding = "round"
    if method == "nearest_neighbor":
        coordinates, rounding = draw(st.sampled_from([("half_pixel", "round"), ("asymmetric", "floor")]))
    x = normal(draw, 1, 2, *given)
    attributes = {
        "shape": size,
        "roi": [0.0] * 4,
        "layout": "NCHW",
        "method": method,
        "coordinate_transformation_mode": coordinates,
        "rounding_method": rounding,
        "cubic_alpha": -0.75,
        "cubic_exclude": 0,
        "extrapolation_value": 0.0,
        "out_dtype": None,
    }
    rows, columns = (_weights(old, new, method, coordinates, rounding) for old, new in zip(given, size, strict=True))
    return run(attributes, x), torch.einsum("yh,bchw,xw->bcyx", rows, x, columns)
