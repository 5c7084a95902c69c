"""Repeating measurements until their medians are precise or the time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hios.progress import Meter
from hios.statistics import expected_repeats, is_precise

#: Rounds of one call to a worker.
CHUNK = 5
#: A measurement whose median stays uncertain ends at this many times the minimum number of repeats.
_MOST = 5

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Effort:
    """How often to measure: at least ``repeats`` times, then until precise, the deadline or ``most``.

    ``chunk`` is the number of rounds of one call to a worker: the progress bar moves and devices take turns.
    ``deadline`` is a time of ``time.monotonic``.
    """

    repeats: int
    deadline: float
    chunk: int = CHUNK

    @property
    def most(self) -> int:
        """The number of repeats after which a measurement stops in any case."""
        return _MOST * self.repeats

    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self.deadline

    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def is_settled(self, samples: Sequence[float]) -> bool:
        """Whether no more samples are needed."""
        return len(samples) >= self.repeats and (len(samples) >= self.most or is_precise(samples))

    def left(self, samples: Sequence[float]) -> float:
        """How many more samples are expected."""
        if len(samples) < self.repeats:
            return self.repeats - len(samples)
        return 0.0 if self.is_settled(samples) else max(1.0, min(expected_repeats(samples), self.most) - len(samples))


def sample(
    keys: Sequence[Key],
    run: Callable[[list[Key], int], Mapping[Key, Sequence[float]]],
    effort: Effort,
    meter: Meter,
    *,
    whole: bool = False,
    later: int = 0,
) -> dict[Key, list[float]]:
    """Samples of all keys, taken in rounds over those that are not settled yet.

    Args:
        keys: what to measure, in the order of a round.
        run: measures some of it for a number of rounds; returns its samples.
        effort: how often.
        meter: is told of every sample.
        whole: rounds include every key until all are settled, as fewer keys would leave more of the caches to each.
        later: number of samples that later calls will take, for the estimate of the remaining time.
    """
    samples: dict[Key, list[float]] = {key: [] for key in keys}
    waiting, taken = list(keys), 0
    while waiting:
        target = effort.repeats if taken < effort.repeats else effort.most
        rounds = min(effort.chunk, target - taken)
        for key, times in run(waiting, rounds).items():
            samples[key].extend(times)
        taken += rounds
        done = len(waiting) * rounds
        if taken >= effort.repeats:
            unsettled = [key for key in waiting if not effort.is_settled(samples[key])]
            if taken >= effort.most or effort.is_over():
                unsettled = []
            waiting = waiting if whole and unsettled else unsettled
        left = [effort.left(samples[key]) for key in waiting]
        meter.advance(done, (len(left) * max(left, default=0.0) if whole else sum(left)) + later)
    return samples
