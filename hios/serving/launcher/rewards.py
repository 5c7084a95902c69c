"""The rewards (2) of TOP, of measures that are normalized by mean and standard deviation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hios.schedulers.policy.network import Array

#: Weights a, b and c of utilisation, latency and variance (TOP, section VI-B).
WEIGHTS = (0.4, 0.4, 0.2)
#: A larger exponent counts as this, so that rewards are numbers that single precision has.
_LARGEST = 80.0


@dataclass(frozen=True)
class Scores:
    """Mean and standard deviation of every measure."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, rows: Array) -> Scores:
        """Those of steps that were carried out, a row each; a measure that never changes has a deviation of 1."""
        if not len(rows):
            return cls(np.zeros(rows.shape[1]), np.ones(rows.shape[1]))
        deviation = rows.std(axis=0)
        return cls(rows.mean(axis=0), np.where(deviation > 0, deviation, 1.0))

    def normalized(self, rows: Array, clip: float) -> Array:
        """Z-scores, of at most ``clip`` in size; 0: no limit."""
        scores: Array = (rows - self.mean) / self.deviation
        return np.clip(scores, -clip, clip) if clip else scores


def rewards(scores: Array) -> Array:
    """The rewards of all agents, of z-scores (utilisation, latency of every model, variance) in rows.

    r^0 = exp(a xi - b mean_j l_j - c sigma) for the launcher, r^i = exp(a xi - b l_i - c sigma) for model i.
    """
    a, b, c = WEIGHTS
    utilisation, latencies, variance = scores[:, :1], scores[:, 1:-1], scores[:, -1:]
    own = np.concatenate([latencies.mean(axis=1, keepdims=True), latencies], axis=1)
    values: Array = np.exp(np.minimum(a * utilisation - b * own - c * variance, _LARGEST))
    return values
