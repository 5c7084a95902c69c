"""Choosing among ways by what was measured of each."""

from __future__ import annotations

import random

import pytest

from hios.runtime.fastest import best

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
    """A steady way that is slower beyond doubt does not win by being steady."""
    rare = [16.0 if number in (5, 11, 17, 20, 23) else 8.0 for number in range(_ROUNDS)]
    assert best({"rare": rare, "steady": _around(8.4, 0.001, 7)}) == "rare"


def test_few_rounds_take_the_fastest() -> None:
    """Rounds too few for an interval are decided by the median."""
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
    """A way that is faster in all rounds is taken; so is the steadier of two that are, but no slower one."""
    runs = {"baseline": _around(10, 0.02, 8), "fast": _around(9, 0.08, 9), "steady": _around(9.1, 0.002, 10)}
    assert best(runs, "baseline") == "steady"
    assert best({**runs, "slow": _around(12, 0.001, 11)}, "slow") == "steady"


def test_few_rounds_leave_the_baseline() -> None:
    """Rounds too few for an interval change nothing."""
    assert best({"baseline": [9.0] * 5, "other": [4.0] * 5}, "baseline") == "baseline"
