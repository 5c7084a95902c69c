"""Medians, their intervals and those of speedups, and which of several candidates is taken."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from hios.machine.statistics import (
    LEAST_ROUNDS,
    best,
    expected_repeats,
    interval,
    is_faster,
    is_precise,
    speedup_interval,
    spread,
    tells,
)


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


#: Rounds; a way that is fast in most of them but takes twice as long in the others, by turns without a rhythm.
_ROUNDS = 24
_UNSTEADY = [16.0 if number % 7 in (1, 4, 6) else 8.0 for number in range(_ROUNDS)]


def _around(median: float, width: float, seed: int) -> list[float]:
    draw = random.Random(seed)
    return [median * (1 + draw.uniform(-width, width)) for _ in range(_ROUNDS)]


def test_the_fastest_is_taken() -> None:
    """Where the runs tell the ways apart the smallest median wins, however its runs spread."""
    assert best({"slow": _around(10, 0.001, 1), "fast": _around(9, 0.05, 2), "slower": _around(20, 0.001, 3)}) == "fast"


def test_the_steadier_of_equals_is_taken() -> None:
    """Of two ways that the runs cannot tell apart, the one with the smaller 80th percentile wins, in any order."""
    wide, narrow = _around(10, 0.1, 4), _around(9.9, 0.01, 5)
    assert best({"wide": wide, "narrow": narrow}) == best({"narrow": narrow, "wide": wide}) == "narrow"


def test_luck_of_the_median_does_not_win() -> None:
    """A way that takes twice as long in three of seven rounds loses to a steady one that is a little slower at best."""
    steady = _around(8.2, 0.003, 6)
    assert sorted(_UNSTEADY)[_ROUNDS // 2] < min(steady)
    assert best({"unsteady": _UNSTEADY, "steady": steady}) == "steady"


def test_no_more_is_given_up_than_noise() -> None:
    """A steady way that is significantly slower is not chosen for being steady."""
    rare = [16.0 if number in (5, 11, 17, 20, 23) else 8.0 for number in range(_ROUNDS)]
    assert best({"rare": rare, "steady": _around(8.4, 0.001, 7)}) == "rare"


def test_few_rounds_take_the_fastest() -> None:
    """With too few rounds for an interval, the median decides."""
    assert best({"unsteady": [8.0, 16.0, 8.0], "steady": [8.4, 8.4, 8.4]}) == "unsteady"


def _baseline_in_trouble(draw: random.Random, spoilt: float, factor: float, rounds: int) -> list[float]:
    """10 ms, but times a factor in some rounds."""
    return [10 * (factor if draw.random() < spoilt else 1) * draw.lognormvariate(0, 0.02) for _ in range(rounds)]


@pytest.mark.parametrize(
    ("rounds", "spoilt", "factor", "steady_ms"), [(18, 0.3, 2.0, 14.0), (18, 0.35, 1.6, 12.0), (6, 0.3, 2.0, 14.0)]
)
@pytest.mark.parametrize("baseline", ["baseline", None])
def test_what_is_slower_does_not_win_by_being_steady(
    rounds: int, spoilt: float, factor: float, steady_ms: float, baseline: str | None
) -> None:
    """A way that takes longer in most rounds is taken hardly ever, however often the faster one is disturbed."""
    draw, cases, taken = random.Random(0), 200, 0
    for _ in range(cases):
        steady = [steady_ms * draw.lognormvariate(0, 0.01) for _ in range(rounds)]
        runs = {"baseline": _baseline_in_trouble(draw, spoilt, factor, rounds), "steady": steady}
        slower = sum(own > other for own, other in zip(steady, runs["baseline"], strict=True)) > rounds / 2
        taken += slower and best(runs, baseline) == "steady"
    assert taken <= 0.05 * cases


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [6, 10, 18])
def test_equals_leave_the_baseline(rounds: int) -> None:
    """A way that is as fast as the baseline replaces it in few of many cases, and one that is 3 % slower in fewer."""
    draw, cases = random.Random(1), 300
    taken = dict.fromkeys((1.0, 1.03), 0)
    for _ in range(cases):
        for slower in taken:
            baseline, other = ([mean * draw.lognormvariate(0, 0.05) for _ in range(rounds)] for mean in (1.0, slower))
            taken[slower] += best({"baseline": baseline, "other": other}, "baseline") == "other"
    assert taken[1.0] <= 0.06 * cases
    assert taken[1.03] <= 0.02 * cases


def test_a_gain_beyond_doubt_replaces_the_baseline() -> None:
    """A way that is faster in all rounds is chosen; of two that are tied, the steadier one; never a slower one."""
    runs = {"baseline": _around(10, 0.02, 8), "fast": _around(9, 0.08, 9), "steady": _around(9.1, 0.002, 10)}
    assert best(runs, "baseline") == "steady"
    assert best({**runs, "slow": _around(12, 0.001, 11)}, "slow") == "steady"


def test_few_rounds_leave_the_baseline() -> None:
    """With too few rounds for an interval, nothing changes."""
    assert best({"baseline": [9.0] * 5, "other": [4.0] * 5}, "baseline") == "baseline"


def test_known_ratio() -> None:
    """Where every round has the same ratio, the interval is that ratio, however much rounds differ."""
    fast = [1.0, 5.0, 2.0, 9.0, 3.0, 4.0, 1.5]
    assert speedup_interval([3 * run for run in fast], fast) == pytest.approx((3, 3))
    assert speedup_interval(fast, fast) == (1, 1)


def test_pairs_are_rounds() -> None:
    """Drift that hits both widens nothing; the same runs in another order of one of them do."""
    draw = random.Random(1)
    fast = [draw.lognormvariate(0, 0.5) for _ in range(36)]
    slow = [1.2 * run * draw.lognormvariate(0, 0.01) for run in fast]
    paired = speedup_interval(slow, fast)
    assert paired is not None
    assert 1.15 < paired[0] < paired[1] < 1.25
    assert tells(paired)
    shuffled = speedup_interval(draw.sample(slow, len(slow)), fast)
    assert shuffled is not None
    assert not tells(shuffled)


def test_coverage() -> None:
    """Over many sessions of two equal competitors, the interval holds 1 in about 95 of 100."""
    draw = random.Random(2)
    held = 0
    for _ in range(100):
        bounds = speedup_interval(*([draw.gauss(10, 1) for _ in range(21)] for _ in range(2)))
        held += not tells(bounds)
    assert 88 <= held <= 100


def test_same_runs_same_interval() -> None:
    """The draws do not depend on what was asked before, and the interval holds the ratio of the medians."""
    draw = random.Random(3)
    slow, fast = ([draw.gauss(mean, 1) for _ in range(12)] for mean in (20, 10))
    bounds = speedup_interval(slow, fast)
    random.seed(9)
    speedup_interval(fast, slow)
    assert speedup_interval(slow, fast) == bounds
    assert bounds is not None
    assert bounds[0] < statistics.median(slow) / statistics.median(fast) < bounds[1]


def test_too_few_rounds() -> None:
    """With fewer than six rounds, or rounds of one competitor only, there is no interval and no decision."""
    assert LEAST_ROUNDS == 6
    assert speedup_interval([2.0] * 6, [1.0] * 6) == (2, 2)
    assert speedup_interval([2.0] * 5, [1.0] * 5) is None
    assert speedup_interval([2.0] * 7, [1.0] * 6) is None
    assert not tells(None)


def test_one_meaning_of_faster() -> None:
    """Faster with 95 % means that the printed interval of the speedup lies above 1, and never with too few rounds."""
    draw = random.Random(3)
    for factor in (0.9, 1.0, 1.02, 1.2):
        slow = [draw.gauss(10 * factor, 0.5) for _ in range(12)]
        fast = [draw.gauss(10, 0.5) for _ in range(12)]
        ends = speedup_interval(slow, fast)
        assert ends is not None
        assert is_faster(fast, slow) == (ends[0] > 1)
    assert is_faster([1.0] * LEAST_ROUNDS, [2.0] * LEAST_ROUNDS)
    assert not is_faster([1.0] * (LEAST_ROUNDS - 1), [2.0] * (LEAST_ROUNDS - 1))
    assert not is_faster([1.0] * 9, [1.0] * 9)
