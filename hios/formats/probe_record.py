"""The speed of the machine, measured with a fixed probe, as costs.json, schedule.json and run.json state it."""

from __future__ import annotations

from typing import Annotated

from hios.formats.base import AboveZero, Count, NonNegative, Record, Share, Text, doc

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
