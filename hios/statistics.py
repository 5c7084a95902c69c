"""Median, spread and confidence of repeated measurements."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence

#: Width of the confidence interval, as a share of the median, below which a measurement is precise enough.
PRECISION = 0.02
#: Probability with which the interval may miss the median.
_MISS = 0.05
#: The fewest samples whose range misses it no more often.
FEWEST = 6


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
    """How many samples the interval leaves out on each side."""
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
    """How many samples it will take until they are precise: the interval shrinks with the root of their number."""
    return max(FEWEST, len(samples) * (_width(samples) / PRECISION) ** 2)


def _width(samples: Sequence[float]) -> float:
    low, high = interval(samples)
    median = statistics.median(samples)
    return (high - low) / median if median > 0 else math.inf if high > low else 0.0
