"""What a check of the kernel table is, and what checks draw."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

Draw = Callable[..., Any]
#: Runs the kernel that is checked: attributes, arguments.
Run = Callable[..., Any]
#: Draws attributes and arguments, runs the kernel, and returns what it gives and what was expected.
Check = Callable[..., tuple[Any, Any]]
#: By Relax function; their ``Run`` takes the function first.
CHECKS: dict[str, Check] = {}

#: Sizes of axes.
SIZES = st.integers(1, 7)


def check(name: str, *more: Any) -> Callable[[Check], Check]:
    """Register the check of a Relax function, named without ``relax.``; it takes a draw, a run and what else is given.

    One check may be that of several functions.
    """

    def decorate(function: Check) -> Check:
        full = f"relax.{name}"
        assert full not in CHECKS, f"{full} has a check already"
        CHECKS[full] = lambda draw, run: function(draw, functools.partial(run, full), *more)
        return function

    return decorate


def _generator(draw: Draw) -> torch.Generator:
    return torch.Generator().manual_seed(draw(st.integers(0, 1000)))


def normal(draw: Draw, *shape: int) -> Tensor:
    """Normally distributed numbers."""
    return torch.randn(shape, generator=_generator(draw))


def uniform(draw: Draw, low: float, high: float, *shape: int) -> Tensor:
    """Numbers from ``low`` to ``high``."""
    return low + (high - low) * torch.rand(shape, generator=_generator(draw))


def whole(draw: Draw, low: int, high: int, *shape: int) -> Tensor:
    """Whole numbers from ``low`` to below ``high``, of 64 bits."""
    return torch.randint(low, high, shape, generator=_generator(draw))


def distinct(draw: Draw, *shape: int) -> Tensor:
    """Small whole numbers as fractions, none twice, so that order is the same in all dtypes."""
    count = torch.Size(shape).numel()
    return (torch.randperm(count, generator=_generator(draw)) - count // 2).float().reshape(shape)


def shape_of(draw: Draw, dimensions: int) -> list[int]:
    """Sizes of axes."""
    return [draw(SIZES) for _ in range(dimensions)]


def integers(draw: Draw, low: int, high: int, count: int) -> list[int]:
    """As many numbers from ``low`` to ``high``."""
    return [draw(st.integers(low, high)) for _ in range(count)]


def axes_of(draw: Draw, dimensions: int) -> list[int] | None:
    """Some axes, counted from either end, or None for all."""
    chosen = st.lists(st.integers(0, dimensions - 1), min_size=1, unique=True)
    axes = draw(st.one_of(st.none(), chosen))
    return axes if axes is None or draw(st.booleans()) else [axis - dimensions for axis in axes]


def padded(x: Tensor, padding: Sequence[int], fill: float = 0.0) -> Tensor:
    """With borders on the axes behind the second: before each of them, then behind each."""
    half = len(padding) // 2
    extent = [
        own + before + behind for own, before, behind in zip(x.shape[2:], padding[:half], padding[half:], strict=True)
    ]
    larger = torch.full((*x.shape[:2], *extent), fill)
    inside = (slice(before, before + own) for before, own in zip(padding, x.shape[2:], strict=False))
    larger[(slice(None), slice(None), *inside)] = x
    return larger


def windows(
    x: Tensor, size: Sequence[int], strides: Sequence[int], dilation: Sequence[int], ceil_mode: bool = False
) -> Tensor:
    """All windows over the axes behind the second: (batch, channel, places..., elements...).

    In ceil mode the last window may hang over, where it reads NaN.
    """
    first = 2
    for axis, (window, step, gap) in enumerate(zip(size, strides, dilation, strict=True), start=first):
        reach = gap * (window - 1) + 1
        if ceil_mode and (over := (x.shape[axis] - reach) % step):
            more = [*x.shape]
            more[axis] = step - over
            x = torch.cat([x, torch.full(more, torch.nan)], axis)
        x = x.unfold(axis, reach, step)[..., ::gap]
    return x
