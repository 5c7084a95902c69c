"""Comparing outputs with those of the reference."""

from __future__ import annotations

import math

import pytest
import torch

from hios.frontends.tolerances import beyond, compared, difference, scaled

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("values", "expected", "off", "within"),
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
def test_compared(values: list[float], expected: list[float], off: float, within: bool) -> None:
    """Finite values may differ by the tolerance; what is not finite must be the same, which is no difference then."""
    error, close = compared(torch.tensor(values), torch.tensor(expected), 1e-4)
    assert error == pytest.approx(off, abs=1e-6)
    assert close == within


@pytest.mark.parametrize(("value", "expected"), [(NAN, 1.0), (1.0, NAN)])
def test_what_is_no_number_is_off(value: float, expected: float) -> None:
    """A value that is no number on one side only is outside any tolerance."""
    assert not compared(torch.tensor([value]), torch.tensor([expected]), 1e-4)[1]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_one_rule_for_what_is_not_finite(wrong: float, place: int) -> None:
    """Every comparison treats NaN as equal to NaN and an infinity to itself, and nothing else to either."""
    expected = torch.tensor([1.0, math.nan, math.inf, -math.inf])
    values = expected.clone()
    values[place] = wrong
    same = torch.equal(values.nan_to_num(nan=7.0), expected.nan_to_num(nan=7.0))
    off, allowed = difference(values, expected)
    verdicts = [
        compared(values, expected, 1e-4)[1],
        scaled(values, expected, 1e-4)[1],
        beyond([values], [expected], 1e-4) is None,
        off <= allowed,
    ]
    assert verdicts == [same] * 4
