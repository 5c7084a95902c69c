"""Resizing against sums over pixels with weights from the definition."""

from __future__ import annotations

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.kernels.table.checks import Draw, Run, check, integers, normal


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
