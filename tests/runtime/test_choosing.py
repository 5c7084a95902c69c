"""Choosing among ways by what was measured of each."""

from __future__ import annotations

import random

from hios.runtime.choosing import best

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
    wide, narrow = _around(10, 0.1, 4), _around(10.1, 0.01, 5)
    assert best({"wide": wide, "narrow": narrow}) == best({"narrow": narrow, "wide": wide}) == "narrow"


def test_luck_of_the_median_does_not_win() -> None:
    """A way that takes twice as long in three of seven rounds loses to a steady one that is a little slower at best."""
    steady = _around(8.4, 0.01, 6)
    assert sorted(_UNSTEADY)[_ROUNDS // 2] < min(steady)
    assert best({"unsteady": _UNSTEADY, "steady": steady}) == "steady"


def test_no_more_is_given_up_than_noise() -> None:
    """A steady way that is slower beyond doubt does not win by being steady."""
    rare = [16.0 if number in (5, 11, 17, 20, 23) else 8.0 for number in range(_ROUNDS)]
    assert best({"rare": rare, "steady": _around(8.4, 0.001, 7)}) == "rare"


def test_few_rounds_take_the_fastest() -> None:
    """Rounds too few for an interval are decided by the median."""
    assert best({"unsteady": [8.0, 16.0, 8.0], "steady": [8.4, 8.4, 8.4]}) == "unsteady"
