"""What ends a search: its time is up, or the gap to a bound is closed."""

from __future__ import annotations

import time
from dataclasses import dataclass

#: Chains of simulated annealing side by side.
CHAINS = 2
#: A gap below this share is rounding in floating point.
CLOSED = 1e-9


@dataclass(frozen=True, slots=True)
class Clock:
    """When a search began, by `time.perf_counter`, and how many seconds it may take."""

    began: float
    limit: float

    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.began

    def left(self) -> float:
        """Seconds to the end."""
        return self.limit - self.spent()


def is_open(latency: float, bound: float) -> bool:
    """Whether there is a gap between a latency and a bound."""
    return latency > bound * (1 + CLOSED)
