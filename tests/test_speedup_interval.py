"""Intervals of speedups."""

from __future__ import annotations

import random
import statistics

import pytest

from hios.statistics import LEAST_ROUNDS, is_faster, speedup_interval, tells


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
        found = speedup_interval(*([draw.gauss(10, 1) for _ in range(21)] for _ in range(2)))
        held += not tells(found)
    assert 88 <= held <= 100


def test_same_runs_same_interval() -> None:
    """The draws do not depend on what was asked before, and the interval holds the ratio of the medians."""
    draw = random.Random(3)
    slow, fast = ([draw.gauss(mean, 1) for _ in range(12)] for mean in (20, 10))
    found = speedup_interval(slow, fast)
    random.seed(9)
    speedup_interval(fast, slow)
    assert speedup_interval(slow, fast) == found
    assert found is not None
    assert found[0] < statistics.median(slow) / statistics.median(fast) < found[1]


def test_too_few_rounds() -> None:
    """Fewer than six rounds, or rounds of one competitor only, say nothing, and tell nothing apart."""
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
