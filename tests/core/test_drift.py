"""Drift between sessions and within one, on simulated times of the probe."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from hios.core import drift
from hios.core.drift import Estimate, ProbeTiming, Speed

#: Noise of the probe, as a standard deviation relative to its time; copies take two thirds of the convolutions' time.
_NOISE, _COPIES = 0.02, 2 / 3


def _session(
    count: int, seed: int, compute: Callable[[float], float], copies: Callable[[float], float], devices: int = 1
) -> list[ProbeTiming]:
    """Samples of a session whose speed is a function of the share of it that is over."""
    draw = random.Random(seed)
    return [
        ProbeTiming(
            10.0 * number,
            device,
            compute(number / count) * draw.lognormvariate(0, _NOISE),
            _COPIES * copies(number / count) * draw.lognormvariate(0, _NOISE),
        )
        for number in range(count)
        for device in range(devices)
    ]


def _steady(_: float) -> float:
    return 3.0


def _speed(samples: list[ProbeTiming], devices: int | None = None) -> Speed:
    speed = drift.speed(samples, devices)
    assert speed is not None
    return speed


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.06, 1.25])
def test_drift_between_sessions_is_found(factor: float) -> None:
    """A session in which everything takes so many times as long has that drift, within a narrow interval."""
    then = _speed(_session(20, 1, _steady, _steady, devices=2))
    now = _speed(_session(30, 2, lambda _: 3.0 * factor, lambda _: 3.0 * factor, devices=2))
    estimate = drift.between(now, then, copy_share=0.3)
    assert estimate.value == pytest.approx(factor, rel=0.02)
    assert estimate.low <= factor <= estimate.high
    assert estimate.high - estimate.low < 0.06


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.25, 1.1), (1.0, 1.4)])
def test_copies_drift_by_themselves(share: float, expected: float) -> None:
    """Where only memory became slower, a network drifts by the share of its time that memory limits."""
    then = _speed(_session(40, 1, _steady, _steady))
    now = _speed(_session(40, 2, _steady, lambda _: 3.0 * 1.4))
    assert drift.between(now, then, share).value == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("samples", [(6, 6), (6, 30), (20, 40)])
def test_interval_of_drift_holds_the_truth(samples: tuple[int, int]) -> None:
    """The interval misses the true drift in at most 5 % of cases, and is not much wider than necessary."""
    cases = 400
    held, wide = 0, 0.0
    for case in range(cases):
        then = _speed(_session(samples[0], 2 * case, _steady, _steady))
        now = _speed(_session(samples[1], 2 * case + 1, lambda _: 3.3, lambda _: 3.3))
        estimate = drift.between(now, then, 0.5)
        held += estimate.low <= 1.1 <= estimate.high
        wide += (estimate.high - estimate.low) / cases
    assert held >= 0.95 * cases
    assert wide < 8 * _NOISE


def test_only_the_devices_that_ran_count() -> None:
    """The speed of one device is its own; that of several is their mean, each alike however often it was timed."""
    samples = [*[ProbeTiming(0.0, 0, 2.0, 1.0)] * 7, *[ProbeTiming(0.0, 1, 4.0, 3.0)] * 21]
    assert _speed(samples, 1) == Speed(Estimate(2, 2, 2), Estimate(1, 1, 1))
    assert _speed(samples) == Speed(Estimate(3, 3, 3), Estimate(2, 2, 2))
    assert drift.speed([], 1) is None


def test_speeds_of_several_times_are_mixed_by_their_shares() -> None:
    """Operators of an earlier session count with the speed of that session, by their share of the time."""
    slow, fast = Speed(Estimate(4, 3.9, 4.2), Estimate(2, 2, 2)), Speed(Estimate(2, 2, 2), Estimate(1, 0.9, 1.1))
    speed = drift.mixed([(30.0, slow), (10.0, fast)])
    assert speed is not None
    assert speed.compute_ms.value == pytest.approx(3.5)
    assert speed.compute_ms.low == pytest.approx(3.5 - 0.075)
    assert speed.copy_ms.high == pytest.approx(1.75 + 0.025)
    assert drift.mixed([]) is None


def test_error_beyond_drift() -> None:
    """A run that took as much longer as the probe did has no error; drift and error multiply."""
    by = Estimate(1.06, 1.05, 1.07)
    assert drift.error_beyond(by, 100.0, 106.0) == pytest.approx(0.0)
    assert drift.error_beyond(by, 100.0, 100.0) == pytest.approx(0.06)
    assert drift.error_beyond(Estimate(1, 1, 1), 90.0, 100.0) == pytest.approx(-0.1)


def test_ratio_of_certain_numbers_is_certain() -> None:
    """Without uncertainty in the parts there is none in sum and ratio."""
    assert drift.ratio(Estimate(3, 3, 3), Estimate(2, 2, 2)) == Estimate(1.5, 1.5, 1.5)
    assert drift.weighted([(0.5, Estimate(2, 2, 2)), (0.5, Estimate(4, 4, 4))]) == Estimate(3, 3, 3)


@pytest.mark.parametrize("count", [8, 12, 30, 100])
@pytest.mark.parametrize("slowed", [True, False])
def test_drift_within_a_session_is_found(count: int, slowed: bool) -> None:
    """A device that becomes 20 % slower, or faster, half-way is named with about that share."""
    before, after = (3.0, 3.6) if slowed else (3.6, 3.0)
    samples = _session(count, 5, lambda share: before if share < 0.5 else after, _steady)
    steady = [ProbeTiming(sample.at_s, 1, 3.0, 2.0) for sample in samples]
    estimate = drift.within([*steady, *samples])
    assert estimate is not None
    assert (estimate.device, estimate.part, estimate.slowed) == (0, "convolutions", slowed)
    assert estimate.factor == pytest.approx(1.2, abs=0.03)
    assert str(estimate).startswith(f"device 0 became {estimate.factor - 1:.0%} {'slower' if slowed else 'faster'} ")


def test_slow_drift_of_copies_is_found() -> None:
    """So is a speed that changes bit by bit, of copies alone."""
    estimate = drift.within(_session(60, 3, _steady, lambda share: 3.0 * (1 + 0.3 * share)))
    assert estimate is not None
    assert (estimate.part, estimate.slowed) == ("copies", True)
    assert estimate.factor == pytest.approx(1.22, abs=0.04)  # medians of a quarter of the session each


@pytest.mark.parametrize("count", [8, 9, 12, 18, 30, 60, 120])
def test_no_drift_is_not_found(count: int) -> None:
    """Of steady machines whose probe is noisy, few are taken for drifting ones."""
    cases, wrong = 200, 0
    for case in range(cases):
        estimate = drift.within(_session(count, case, _steady, _steady))
        assert estimate is not None
        wrong += estimate.factor > 1 + drift.MOST_CHANGE
    assert wrong <= 0.03 * cases


@pytest.mark.parametrize("count", [8, 9, 12, 30, 100])
@pytest.mark.parametrize("place", [0.0, 0.4, 0.999])
def test_one_outlier_is_harmless(count: int, place: float) -> None:
    """A sample that took ten times as long makes no drift, within a session or between two."""
    clean = _session(count, 7, _steady, _steady)
    samples = list(clean)
    at = int(place * count)
    samples[at] = ProbeTiming(samples[at].at_s, 0, 10 * samples[at].compute_ms, 10 * samples[at].copy_ms)
    estimate = drift.within(samples)
    assert estimate is not None
    assert estimate.factor <= 1 + drift.MOST_CHANGE
    assert drift.between(_speed(samples), _speed(clean), 0.5).value == pytest.approx(1.0, abs=0.02)


def test_few_samples_tell_no_drift() -> None:
    """Fewer than eight samples of a device tell nothing of a change."""
    assert drift.within(_session(7, 1, lambda share: 3.0 + share, _steady)) is None
    assert drift.within([]) is None


def test_ends_of_intervals_are_finite() -> None:
    """Bounds of a drift are positive and in order, also of two samples."""
    estimate = drift.between(_speed(_session(2, 1, _steady, _steady)), _speed(_session(1, 2, _steady, _steady)), 0.5)
    assert 0 < estimate.low <= estimate.value <= estimate.high < math.inf
