"""What results state of latencies and counts."""

from __future__ import annotations

import math
import random

import pytest

from hios.serving.measures import (
    RepeatOutcome,
    Tally,
    bootstrap,
    early_stopping_estimate,
    jain,
    most_over,
    percentile,
    result,
    variance,
)
from tests.serving.scenarios import scenario, served


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 50.0), (0.9, 90.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0), (0.0, 1.0)]
)
def test_percentiles_are_values_that_occurred(share: float, value: float) -> None:
    """Of 1 to 100, the p-th percentile is p."""
    assert percentile([float(number) for number in range(1, 101)], share) == value


def test_no_percentile_of_nothing() -> None:
    """Without a completed task there is no latency."""
    assert percentile([], 0.5) is None
    assert early_stopping_estimate([]) is None


@pytest.mark.parametrize(("count", "over"), [(458, -1), (459, 0), (661, 0), (662, 1), (837, 1), (838, 2)])
def test_early_stopping_has_loadgens_numbers(count: int, over: int) -> None:
    """459 queries without a miss pass, 662 with one and 838 with two, as LoadGen's rules print for 99 % and 99 %."""
    assert most_over(count) == over


def test_most_over_is_the_binomial_tail() -> None:
    """P(at most t of n) with exact fractions: at most 1 % for t, more for t + 1."""
    for count in (459, 1000, 3000):
        over = most_over(count)
        tail = [
            sum(math.comb(count, k) * 0.01**k * 0.99 ** (count - k) for k in range(t + 1)) for t in (over, over + 1)
        ]
        assert tail[0] <= 0.01 < tail[1]


def test_early_stopping_is_conservative() -> None:
    """The estimate is below the true percentile in about one of a hundred samples."""
    draw = random.Random(0)
    estimates = [early_stopping_estimate(sorted(draw.random() for _ in range(1000))) for _ in range(1000)]
    below = sum(estimate is not None and estimate < 0.99 for estimate in estimates)
    assert below <= 20
    assert early_stopping_estimate([1.0] * 661) is None


def test_bootstrap_covers_the_mean() -> None:
    """Of samples of ten, most intervals hold the true mean; fewer than six repeats have none."""
    draw = random.Random(0)
    held = 0
    for _ in range(100):
        interval = bootstrap([draw.gauss(5.0, 1.0) for _ in range(10)])
        assert interval is not None
        held += interval[0] <= 5.0 <= interval[1]
    assert 80 <= held <= 99
    assert bootstrap([1.0] * 5) is None


@pytest.mark.parametrize(
    ("shares", "index"), [([1.0, 1.0, 1.0], 1.0), ([1.0, 0.0, 0.0, 0.0], 0.25), ([], 1.0), ([0.0], 1.0)]
)
def test_fairness(shares: list[float], index: float) -> None:
    """Jain's index is 1 where all are equal, and 1 / n where one has all."""
    assert jain(shares) == pytest.approx(index)


def test_variance_of_two_empty_queues() -> None:
    """TOP's threshold of 2e5 is two empty queues and 949 tasks in the third (TOP.md, D1)."""
    assert variance([0, 0, 948]) < 2e5 < variance([0, 0, 949])


def test_result_adds_up() -> None:
    """Counts are sums over repeats, goodput counts what is within the SLO, and the total holds all models."""
    given = scenario(
        served("a", [[2.0]], 10.0, slo_ms=10.0), served("b", [[4.0]], 20.0), lanes=2, duration_s=2.0, repeats=2
    )
    first = RepeatOutcome([Tally(3, 1, latencies_ms=[5.0, 15.0]), Tally(2, latencies_ms=[20.0, 20.0])], 1.0, 0.5)
    second = RepeatOutcome([Tally(2, 0, 1, 0, 1), Tally(2, failed=1, in_flight=1)], 2.0, 1.5)
    summary = result(given, "ios", "open", [first, second], simulated=True)
    a, b = summary.models["a"], summary.models["b"]
    assert (a.offered, a.completed, a.dropped, a.expired, a.waiting, a.goodput) == (5, 2, 1, 1, 1, 1)
    assert (b.offered, b.completed, b.failed, b.in_flight, b.goodput) == (4, 2, 1, 1, 2)
    assert summary.total.offered == 9
    assert (summary.total.p50_ms, summary.total.mean_ms) == (15.0, 15.0)
    assert summary.utilisation == pytest.approx(3.0 / (2 * 2 * 2.0))
    assert summary.work_share == pytest.approx((2 * 0.002 + 2 * 0.004) / 8.0)
    assert summary.queue_variance == 1.0
    assert summary.jain == pytest.approx(jain([0.4, 0.5]))
