"""Median and spread of repeated measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median, 20th and 80th percentile (linear interpolation) of at least one sample."""
    if len(samples) == 1:
        return samples[0], samples[0], samples[0]
    p20, _, _, p80 = statistics.quantiles(samples, n=5, method="inclusive")
    return statistics.median(samples), p20, p80
