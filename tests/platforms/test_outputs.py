"""Comparing outputs with those of the reference."""

from __future__ import annotations

import math

import pytest
import torch

from hios.platforms.outputs import compared

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("found", "expected", "off", "within"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0, True),
        ([1.0, 2.0001], [1.0, 2.0], 0.0001, True),
        ([1.0, 2.1], [1.0, 2.0], 0.1, False),
        ([NAN, INF, -INF], [NAN, INF, -INF], 0.0, True),
        ([INF], [-INF], INF, False),
        ([1.0], [INF], INF, False),
        ([INF], [1.0], INF, False),
        ([], [], 0.0, True),
    ],
)
def test_compared(found: list[float], expected: list[float], off: float, within: bool) -> None:
    """Finite values may differ by the tolerance; what is not finite must be the same, which is no difference then."""
    got, close = compared(torch.tensor(found), torch.tensor(expected), 1e-4)
    assert got == pytest.approx(off, abs=1e-6)
    assert close == within


@pytest.mark.parametrize(("found", "expected"), [(NAN, 1.0), (1.0, NAN)])
def test_what_is_no_number_is_off(found: float, expected: float) -> None:
    """A value that is no number on one side only is outside any tolerance."""
    assert not compared(torch.tensor([found]), torch.tensor([expected]), 1e-4)[1]
