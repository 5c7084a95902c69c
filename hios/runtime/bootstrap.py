"""How sure a speedup is: bootstrap intervals, paired by round. Light: the report uses them too."""

from __future__ import annotations

import functools
import random
import statistics
from collections.abc import Sequence

#: With fewer rounds no interval can be of 95 %: that one of two equals wins all of five has a chance of 6 %.
LEAST_ROUNDS = 6
_RESAMPLES = 2000
#: Position of the lower end among the ratios of all resamples in order; 2.5 % are below.
_BELOW = _RESAMPLES // 40

#: Lower and upper end.
Interval = tuple[float, float]


def speedup_interval(slower: Sequence[float], faster: Sequence[float]) -> Interval | None:
    """95 % interval of the ratio of two medians, the first over the second (Efron's percentile bootstrap).

    Rounds are drawn with replacement, and both competitors keep the runs of the same rounds: what disturbs a round
    disturbs both. The draws depend on the number of rounds alone, so the same runs give the same interval.

    Args:
        slower: latency of every round.
        faster: latency of the same rounds, more than zero.

    Returns:
        None where rounds are too few, or those of one competitor only.
    """
    if len(slower) != len(faster) or len(faster) < LEAST_ROUNDS or min(faster) <= 0:
        return None
    medians = zip(_medians(tuple(slower)), _medians(tuple(faster)), strict=True)
    ratios = sorted(above / below for above, below in medians)
    return ratios[_BELOW], ratios[-1 - _BELOW]


def tells(found: Interval | None) -> bool:
    """Whether an interval tells the competitors apart: it does not hold 1."""
    return found is not None and not found[0] <= 1 <= found[1]


@functools.lru_cache(maxsize=8)
def _draws(rounds: int) -> tuple[tuple[int, ...], ...]:
    draw, every = random.Random(0), range(rounds)
    return tuple(tuple(draw.choices(every, k=rounds)) for _ in range(_RESAMPLES))


@functools.lru_cache(maxsize=256)
def _medians(runs: tuple[float, ...]) -> tuple[float, ...]:
    """Median of every resample."""
    return tuple(statistics.median([runs[place] for place in drawn]) for drawn in _draws(len(runs)))
