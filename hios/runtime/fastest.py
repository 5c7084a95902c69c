"""Which of several measured candidates is taken."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from hios.statistics import is_faster, speedup_interval, spread, tells

#: How many times the smallest median a steadier way may have: what noise may cost, also where runs spread so widely
#: that they tell nothing apart.
_AS_FAST = 1.03


def best(runs: Mapping[str, Sequence[float]], baseline: str | None = None) -> str:
    """The fastest candidate; among those statistically tied with it, the one with the smallest 80th percentile.

    With a baseline, only ways that are significantly faster than it take part: the 95 % interval of the speedup over
    it lies above 1. If there are none, or too few rounds for intervals, the baseline is taken.

    The fastest has the smallest median. A way is tied with it if the 95 % interval of their ratio contains 1 and its
    median is at most 3 % larger. So no more than noise is given up, and a way that is fast in most runs but takes twice
    as long in every third does not win by the luck of its median; threads inside operators behave so on machines of few
    cores. With too few rounds for intervals, the fastest is taken.

    A way that is just as fast as the baseline has a chance of 2.5 % to seem faster; among many such ways, one is taken
    more often than that.

    Args:
        runs: latency of every round, by name; rounds in the same order for all.
        baseline: the way that is taken unless another is faster; None if all are equally welcome.
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
