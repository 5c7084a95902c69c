"""Median, spread and confidence of repeated measurements; which candidate is faster, and which is taken; laps.

All of hios uses one definition of "faster with 95 % confidence": `is_faster`, by the interval of `speedup_interval`,
which is printed as "(95 %)". `interval` is different: it says how precisely one median is known.
"""

from __future__ import annotations

import functools
import math
import operator
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

#: Width of the confidence interval, as a share of the median, below which a measurement is precise enough.
PRECISION = 0.02
#: Probability with which the interval may miss the median.
_MISS = 0.05
#: The minimum number of samples whose range misses it no more often.
FEWEST = 6
#: With fewer rounds there is no 95 % interval: one of two equals wins all of five rounds with a probability of 6 %.
LEAST_ROUNDS = 6
_RESAMPLES = 2000
#: Position of the lower end among the ratios of all resamples in order; 2.5 % are below.
_BELOW_RANK = _RESAMPLES // 40
#: How many times the smallest median a steadier candidate may have: the most that noise may cost, also if runs vary so
#: much that no difference is significant.
_AS_FAST = 1.03
#: Lower and upper end.
Interval = tuple[float, float]


def spread(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median, 20th and 80th percentile (linear interpolation) of at least one sample."""
    if len(samples) == 1:
        return samples[0], samples[0], samples[0]
    p20, _, _, p80 = statistics.quantiles(samples, n=5, method="inclusive")
    return statistics.median(samples), p20, p80


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """Bounds between which the median lies with a probability of 95 %, whatever the distribution.

    They are order statistics: the k-th smallest and the k-th largest sample, where the number of samples below the
    median is binomial. Fewer than six samples have no such bounds; their range is given.
    """
    ordered = sorted(samples)
    left_out = _left_out(len(ordered))
    return ordered[left_out], ordered[-1 - left_out]


@functools.cache
def _left_out(count: int) -> int:
    """How many samples the interval drops on each side."""
    below, left_out = 0.0, 0
    for number in range(count // 2):
        below += math.comb(count, number) / 2**count
        if 2 * below > _MISS:
            break
        left_out = number
    return left_out


def is_precise(samples: Sequence[float]) -> bool:
    """Whether the interval of the median is narrow enough; never with fewer than six samples."""
    return len(samples) >= FEWEST and _width(samples) <= PRECISION


def expected_repeats(samples: Sequence[float]) -> float:
    """How many samples are needed for precision: the interval shrinks with the square root of their number."""
    return max(FEWEST, len(samples) * (_width(samples) / PRECISION) ** 2)


def _width(samples: Sequence[float]) -> float:
    low, high = interval(samples)
    median = statistics.median(samples)
    return (high - low) / median if median > 0 else math.inf if high > low else 0.0


def speedup_interval(slower: Sequence[float], faster: Sequence[float]) -> Interval | None:
    """95 % interval of the ratio of two medians, the first over the second (Efron's percentile bootstrap).

    Rounds are drawn with replacement, and both competitors keep the runs of the same rounds: what disturbs a round
    disturbs both. The draws depend on the number of rounds alone, so the same runs give the same interval. None if
    there are too few rounds, or only those of one competitor.
    """
    if len(slower) != len(faster) or len(faster) < LEAST_ROUNDS or min(faster) <= 0:
        return None
    medians = zip(_medians(tuple(slower)), _medians(tuple(faster)), strict=True)
    ratios = sorted(above / below for above, below in medians)
    return ratios[_BELOW_RANK], ratios[-1 - _BELOW_RANK]


def tells(bounds: Interval | None) -> bool:
    """Whether an interval separates the competitors: it does not contain 1."""
    return bounds is not None and not bounds[0] <= 1 <= bounds[1]


def is_faster(runs: Sequence[float], baseline: Sequence[float]) -> bool:
    """Whether runs are faster than a baseline with 95 % confidence: the speedup interval lies above 1.

    Both are latencies of the same rounds; False with fewer than ``LEAST_ROUNDS`` rounds. If both are equally fast, the
    result is True in 2.5 % of all cases.
    """
    bounds = speedup_interval(baseline, runs)
    return bounds is not None and bounds[0] > 1


@functools.lru_cache(maxsize=8)
def _draws(rounds: int) -> tuple[Callable[[tuple[float, ...]], tuple[float, ...]], ...]:
    """Functions that pick the runs of each resample, of at least two rounds."""
    draw, every = random.Random(0), range(rounds)
    return tuple(operator.itemgetter(*draw.choices(every, k=rounds)) for _ in range(_RESAMPLES))


@functools.lru_cache(maxsize=256)
def _medians(runs: tuple[float, ...]) -> tuple[float, ...]:
    """Median of every resample."""
    middle, odd = divmod(len(runs), 2)
    drawn = (sorted(pick(runs)) for pick in _draws(len(runs)))
    return tuple(own[middle] if odd else (own[middle - 1] + own[middle]) / 2 for own in drawn)


def best(runs: Mapping[str, Sequence[float]], baseline: str | None = None) -> str:
    """The fastest candidate; among those statistically tied with it, the one with the smallest 80th percentile.

    With a baseline, only ways that are significantly faster than it take part: the 95 % interval of the speedup over
    it lies above 1. If there are none, or too few rounds for intervals, the baseline is taken.

    The fastest has the smallest median. A candidate is tied with it if the 95 % interval of their ratio contains 1 and
    its median is at most 3 % larger. So at most noise is given up, and a candidate that is fast in most runs but takes
    twice as long in every third does not win by its median alone; threads inside operators behave like this on machines
    with few cores. With too few rounds for intervals, the fastest is taken.

    A candidate that is exactly as fast as the baseline seems faster with a probability of 2.5 %; with many such
    candidates, one of them is taken more often than that.

    Args:
        runs: latency of every round, by name; rounds in the same order for all.
        baseline: the candidate that is taken unless another one is faster; None to take the fastest.
    """
    if baseline is not None:
        runs = {name: own for name, own in runs.items() if name == baseline or is_faster(own, runs[baseline])}
    fastest = min(runs, key=lambda name: statistics.median(runs[name]))
    most = _AS_FAST * statistics.median(runs[fastest])
    equal = [fastest]
    for name, own in runs.items():
        bounds = speedup_interval(own, runs[fastest])
        if name != fastest and bounds is not None and not tells(bounds) and statistics.median(own) <= most:
            equal.append(name)
    return min(equal, key=lambda name: spread(runs[name])[2])


class Laps:
    """Seconds by what they were spent on, and how often: every lap counts from the end of the one before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self._ended = time.perf_counter()

    def lap(self, name: str = "") -> None:
        """End a lap; one without a name is not counted."""
        now = time.perf_counter()
        if name:
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._ended
            self.counts[name] = self.counts.get(name, 0) + 1
        self._ended = now
