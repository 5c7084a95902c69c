"""Drift of the machine's speed: between two sessions, and within one.

A session times a fixed probe, convolutions and copies whose shapes never change, on every device throughout
(``hios.platforms.probe_schedule``); costs.json, schedule.json and run.json state its speed. If a network takes longer
than predicted, drift is the part by which the probe takes longer too; the rest is the prediction error.

Intervals of sums and ratios follow the method of variance estimates recovery, which needs only the intervals of their
parts: Zou and Donner, "Construction of confidence limits about effect measures: a general approach", Statistics
in Medicine 27 (2008), equations 4 and 5; ratios on the scale of logarithms.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from hios.files.base import AboveZero, Count, NonNegative, Record, Share, Text, doc
from hios.machine.statistics import interval

Version = Annotated[
    Text, doc("Version of the probe: identifies the work that it does, as times of different work are not comparable.")
]


class Estimate(Record, frozen=True):
    """A number, with the bounds between which the true one lies with a probability of 95 %."""

    value: AboveZero
    """The number."""
    low: AboveZero
    """Lower bound."""
    high: AboveZero
    """Upper bound."""


class Speed(Record, frozen=True):
    """Milliseconds that the probe takes: medians, as the mean over devices."""

    compute_ms: Estimate
    """Milliseconds of its convolutions."""
    copy_ms: Estimate
    """Milliseconds of its copies."""


class ProbeTiming(Record, frozen=True):
    """One timing of the probe on one device."""

    at_s: NonNegative
    """Seconds since the session began."""
    device: Count
    """Device, from 0."""
    compute_ms: AboveZero
    """Milliseconds of its convolutions."""
    copy_ms: AboveZero
    """Milliseconds of its copies."""


Samples = Annotated[tuple[ProbeTiming, ...], doc("All timings of the probe in this session.")]


class ProfiledSpeed(Record, frozen=True):
    """The speed of the machine when costs were measured."""

    version: Version
    speed: Speed
    """While t(v) was measured; for operators from the cache, in the session that measured them."""
    copy_share: Share
    """Share of the network's time spent in memory-bound operators, which drift as copies do."""


class ProfileProbe(ProfiledSpeed, frozen=True):
    """The speed of the machine when costs were measured, and throughout the session."""

    samples: Samples


class RunProbe(Record, frozen=True):
    """The speed of the machine while schedules ran."""

    version: Version
    speed: Speed
    """Over the whole session and all its devices."""
    samples: Samples


#: Change of the machine's speed within a session, as a share, from which users are warned.
MOST_CHANGE = 0.05
#: Window of the running medians used to detect a change: the interval of 15 samples tolerates three outliers at each
#: end. For short series the window is a third of their length, at least ``_FEWEST`` samples.
_WINDOW, _FEWEST = 15, 4


@dataclass(frozen=True, slots=True)
class Change:
    """How much slower a device was in the slowest part of a session than in the fastest.

    ``part`` is ``convolutions`` or ``copies``; ``factor`` the running median of the slowest part over that of the
    fastest, 1 if the difference is not significant; ``slowed`` whether the slowest part is the later one.
    """

    device: int
    part: str
    factor: float
    slowed: bool

    def __str__(self) -> str:
        return (
            f"device {self.device} became {self.factor - 1:.0%} {'slower' if self.slowed else 'faster'} "
            f"(the probe's {self.part}: a fixed piece of work that is timed throughout)"
        )


def median(samples: Sequence[float]) -> Estimate:
    """The median of at least one sample, with its interval (``interval``)."""
    return Estimate(statistics.median(samples), *interval(samples))


def weighted(terms: Iterable[tuple[float, Estimate]]) -> Estimate:
    """The sum of independent estimates with non-negative weights."""
    terms = list(terms)
    value = sum(weight * term.value for weight, term in terms)
    below = math.hypot(*(weight * (term.value - term.low) for weight, term in terms))
    above = math.hypot(*(weight * (term.high - term.value) for weight, term in terms))
    return Estimate(value, value - below, value + above)


def ratio(now: Estimate, then: Estimate) -> Estimate:
    """The ratio of two independent estimates; all bounds are above 0."""
    value = now.value / then.value
    below = math.hypot(math.log(now.value / now.low), math.log(then.high / then.value))
    above = math.hypot(math.log(now.high / now.value), math.log(then.value / then.low))
    return Estimate(value, value * math.exp(-below), value * math.exp(above))


def speed(samples: Sequence[ProbeTiming], devices: int | None = None) -> Speed | None:
    """Median speed over a session: the mean over its devices, with equal weights; None without samples of these.

    Only the first ``devices`` devices count; all if None.
    """
    used = sorted({sample.device for sample in samples if devices is None or sample.device < devices})
    own = [[sample for sample in samples if sample.device == device] for device in used]
    medians = [Speed(median([s.compute_ms for s in taken]), median([s.copy_ms for s in taken])) for taken in own]
    return mixed([(1.0, own_speed) for own_speed in medians])


def mixed(parts: Sequence[tuple[float, Speed]]) -> Speed | None:
    """The mean of several speeds by weights above 0, such as of operators that were measured at different times."""
    total = sum(weight for weight, _ in parts)
    if total <= 0:
        return None
    return Speed(
        weighted((weight / total, part.compute_ms) for weight, part in parts),
        weighted((weight / total, part.copy_ms) for weight, part in parts),
    )


def between(now: Speed, then: Speed, copy_share: float) -> Estimate:
    """Drift between two sessions: how many times as long a network takes now as it took then.

    ``copy_share`` is the share of the network's time in memory-bound operators, 0 to 1; they drift as copies do, the
    others as convolutions do.
    """
    compute, copies = ratio(now.compute_ms, then.compute_ms), ratio(now.copy_ms, then.copy_ms)
    return weighted([(1 - copy_share, compute), (copy_share, copies)])


def since(then: ProfiledSpeed | None, version: str, samples: Sequence[ProbeTiming], devices: int) -> Estimate | None:
    """Drift of the devices of a schedule since its costs were measured; None if unknown.

    ``version`` is that of the probe in the later session, which the samples are of; other versions are not comparable.
    """
    now = speed(samples, devices)
    if then is None or now is None or then.version != version:
        return None
    return between(now, then.speed, then.copy_share)


def error_beyond(drift: Estimate, predicted_ms: float, measured_ms: float) -> float:
    """The prediction error after correcting for drift: (predicted * drift - measured) / measured."""
    return (predicted_ms * drift.value - measured_ms) / measured_ms


def within(samples: Sequence[ProbeTiming]) -> Change | None:
    """The largest change of any device within a session; None if there are too few samples."""
    changes: list[Change] = []
    for device in sorted({sample.device for sample in samples}):
        own = sorted((sample for sample in samples if sample.device == device), key=lambda sample: sample.at_s)
        series = {"convolutions": [s.compute_ms for s in own], "copies": [s.copy_ms for s in own]}
        for part, times in series.items():
            if len(times) >= 2 * _FEWEST:
                changes.append(Change(device, part, *_change(times)))
    return max(changes, key=lambda change: change.factor, default=None)


def _change(times: Sequence[float]) -> tuple[float, bool]:
    """The ratio of the slowest to the fastest running median, and whether the slowest comes later.

    Single outliers do not change a running median. Noise alone makes some medians larger than others, so the ratio is 1
    unless the intervals of two of them do not overlap.
    """
    length = max(min(_WINDOW, len(times) // 3), _FEWEST)
    running = [median(times[first : first + length]) for first in range(len(times) - length + 1)]
    if max(window.low for window in running) <= min(window.high for window in running):
        return 1.0, False
    medians = [window.value for window in running]
    return max(medians) / min(medians), medians.index(max(medians)) > medians.index(min(medians))
