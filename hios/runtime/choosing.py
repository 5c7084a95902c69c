"""Which of several ways to run a network to take, by what was measured of each."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from hios.profiling.statistics import spread
from hios.runtime.bootstrap import interval, tells


def best(runs: Mapping[str, Sequence[float]]) -> str:
    """The fastest way, or the steadiest of those that the runs cannot tell from it.

    The fastest has the smallest median. Those whose ratio to it has a 95 % interval that holds 1 are as fast as far as
    one can tell; of them and itself the one with the smallest 80th percentile is taken. So no more is given up than
    noise, and a way that is fast in most runs but takes twice as long in every third does not win by the luck of its
    median: threads inside operators are such on machines of few cores. With too few rounds for intervals it is the
    fastest.

    Args:
        runs: latency of every round, by name; rounds in the same order for all.
    """
    fastest = min(runs, key=lambda name: statistics.median(runs[name]))
    equal = [fastest]
    for name, own in runs.items():
        found = interval(own, runs[fastest])
        if name != fastest and found is not None and not tells(found):
            equal.append(name)
    return min(equal, key=lambda name: spread(runs[name])[2])
