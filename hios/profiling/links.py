"""The link between devices as latency and bandwidth, fitted to measured transfers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from hios.costs import LinkModel

#: The smallest transfer that a link is fitted to, in bytes, and the factor between sizes added to those of edges.
_SMALLEST, _STEP = 1 << 10, 4


@dataclass(frozen=True, slots=True)
class FittedLink:
    """A link model with the relative errors of the transfers that it was fitted to."""

    model: LinkModel
    median_error: float
    largest_error: float
    sizes: int


def ladder(largest: int) -> list[int]:
    """Sizes from 1 KB to the largest, in bytes."""
    sizes, size = [], _SMALLEST
    while size < largest:
        sizes.append(size)
        size *= _STEP
    return [*sizes, largest] if sizes else []


def fit(time_ms: Mapping[int, float]) -> FittedLink | None:
    """Latency L and bandwidth B with the least squares of relative errors of L + bytes/B, L at least 0.

    Args:
        time_ms: measured times by size in bytes; sizes below 1 KB, which show the latency twice, are left out.

    Returns:
        None where fewer than two sizes, or times that do not grow with them, tell no bandwidth.
    """
    points = [(size, time) for size, time in time_ms.items() if size >= _SMALLEST and time > 0]
    if len(points) < 2:
        return None
    # Rows (1/t, n/t) against 1: the normal equations, by their determinant.
    ones = sum(1 / time**2 for _, time in points)
    mixed = sum(size / time**2 for size, time in points)
    squares = sum(size**2 / time**2 for size, time in points)
    first = sum(1 / time for _, time in points)
    second = sum(size / time for size, time in points)
    determinant = ones * squares - mixed * mixed
    if determinant <= 0:
        return None
    latency = (first * squares - second * mixed) / determinant
    per_byte = (ones * second - mixed * first) / determinant
    if latency < 0:
        latency, per_byte = 0.0, second / squares
    if per_byte <= 0:
        return None
    model = LinkModel(latency, 8 / (per_byte * 1e6))
    errors = [abs(model.time_ms(size) - time) / time for size, time in points]
    return FittedLink(model, statistics.median(errors), max(errors), len(points))
