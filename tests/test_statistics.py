"""Medians, their intervals, and how many samples they need."""

from __future__ import annotations

import math
import random

import pytest

from hios.statistics import expected_repeats, interval, is_precise, spread


def test_spread() -> None:
    """Median, 20th and 80th percentile with linear interpolation."""
    assert spread([4.0]) == (4.0, 4.0, 4.0)
    assert spread([3.0, 1.0]) == pytest.approx((2.0, 1.4, 2.6))
    assert spread([5.0, 1.0, 2.0, 4.0, 3.0, 6.0]) == (3.5, 2.0, 5.0)


@pytest.mark.parametrize(
    ("count", "ranks"),
    [(1, (1, 1)), (5, (1, 5)), (6, (1, 6)), (9, (2, 8)), (20, (6, 15)), (36, (12, 25)), (100, (40, 61))],
)
def test_interval_ranks(count: int, ranks: tuple[int, int]) -> None:
    """The order statistics of published tables; the range for fewer than six samples."""
    samples = [float(number) for number in range(1, count + 1)]
    random.Random(0).shuffle(samples)
    assert interval(samples) == ranks


@pytest.mark.parametrize("count", range(6, 60))
def test_interval_covers(count: int) -> None:
    """By the binomial distribution the interval holds the median with 95 %, and a narrower one would not."""
    low, high = interval([float(number) for number in range(count)])
    left_out = int(low)
    assert high == count - 1 - left_out
    missed = [2 * sum(math.comb(count, number) for number in range(k + 1)) / 2**count for k in (left_out, left_out + 1)]
    assert missed[0] <= 0.05 < missed[1]


def test_precise() -> None:
    """At least six samples whose interval is within 2 % of the median; zeros are precise, and lengths do not count."""
    assert not is_precise([1.0] * 5)
    assert is_precise([1.0] * 6)
    assert is_precise([0.0] * 6)
    assert not is_precise([0.0] * 5 + [1.0])
    assert is_precise([1.0, 1.005, 1.01, 1.015, 1.018, 1.019])
    assert not is_precise([1.0, 1.005, 1.01, 1.015, 1.018, 1.04])


def test_an_outlier_is_kept_and_costs_nothing() -> None:
    """One sample a hundred times as long leaves median and certainty of twenty as they are."""
    samples = [1.0 + number / 10_000 for number in range(20)]
    assert is_precise(samples)
    assert is_precise([*samples, 100.0])
    assert spread([*samples, 100.0])[0] == pytest.approx(1.001)


def test_expected_repeats() -> None:
    """An interval twice as wide as wanted takes four times as many samples."""
    samples = [1.0, 1.0, 1.0, 1.04, 1.04, 1.04]
    assert expected_repeats(samples) == pytest.approx(6 * (0.04 / 1.02 / 0.02) ** 2)
