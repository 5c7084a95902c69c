"""When the probe is timed, on a clock that only the session and the probe move."""

from __future__ import annotations

import warnings

import pytest

from hios import HiosWarning
from hios.core.drift import Estimate
from hios.platforms.probe_schedule import SHARE, ProbeSchedule

#: Seconds of the probe on one device.
_PROBE_S = 0.01


class _Machine:
    """Devices whose probe takes a hundredth of a second, and reads as long as its speed says."""

    def __init__(self, devices: int) -> None:
        self.now = 100.0
        self.slow = [1.0] * devices
        self.asked: list[int] = []

    def time_on(self, device: int) -> tuple[float, float]:
        self.asked.append(device)
        self.now += _PROBE_S
        return 6.0 * self.slow[device], 4.0 * self.slow[device]


@pytest.fixture
def machine() -> _Machine:
    """Two devices."""
    return _Machine(2)


@pytest.fixture
def probe(machine: _Machine) -> ProbeSchedule:
    """A session that has just begun."""
    return ProbeSchedule("test-1", machine.time_on, 2, clock=lambda: machine.now)


def _session(machine: _Machine, probe: ProbeSchedule, seconds: float, step_s: float) -> None:
    end = machine.now + seconds
    while machine.now < end:
        machine.now += step_s
        probe.take_if_due()


@pytest.mark.parametrize("step_s", [0.001, 0.1, 3.0])
def test_share_of_the_session(machine: _Machine, probe: ProbeSchedule, step_s: float) -> None:
    """Between the ends the probe takes 2 % of the time at most, and about that where there are moments enough."""
    probe.take_at_end()
    before = len(probe.samples)
    _session(machine, probe, 120.0, step_s)
    share = (len(probe.samples) - before) * _PROBE_S / 120.0
    assert share <= SHARE
    if step_s < 1:
        assert share >= 0.8 * SHARE


def test_all_devices_are_timed_in_turn(machine: _Machine, probe: ProbeSchedule) -> None:
    """Every time it is timed on each device, and samples say when and where."""
    probe.take_at_end()
    _session(machine, probe, 10.0, 0.5)
    assert machine.asked == [0, 1] * (len(machine.asked) // 2)
    assert [sample.device for sample in probe.samples] == machine.asked
    times = [sample.at_s for sample in probe.samples]
    assert times == sorted(times)
    assert times[0] == 0.0
    assert times[-1] == pytest.approx(machine.now - 100.0 - _PROBE_S, abs=1.5)
    assert {(sample.compute_ms, sample.copy_ms) for sample in probe.samples} == {(6.0, 4.0)}


def test_both_ends_suffice_to_see_a_change(machine: _Machine, probe: ProbeSchedule) -> None:
    """A session without a moment to time it in between is warned of drift all the same."""
    probe.take_at_end()
    machine.slow[1] = 1.3
    probe.take_at_end()
    with pytest.warns(HiosWarning, match=r"^while running net, device 1 became 30% slower .* repeat it when nothing"):
        probe.warn("running net")


def test_steady_machines_get_no_warning(machine: _Machine, probe: ProbeSchedule) -> None:
    """Neither a speed that stays nor one that changes by 4 % is worth a warning; nor is a session without a probe."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe.warn("running net")
        probe.take_at_end()
        machine.slow = [1.04, 0.97]
        _session(machine, probe, 60.0, 0.5)
        probe.take_at_end()
        probe.warn("running net")


def test_artifact(machine: _Machine, probe: ProbeSchedule) -> None:
    """run.json has the version, the median speed with its interval, and all samples; nothing before any."""
    assert probe.record() is None
    probe.take_at_end()
    record = probe.record()
    assert record is not None
    assert record.version == "test-1"
    assert record.speed.copy_ms == Estimate(4.0, 4.0, 4.0)
    assert len(record.samples) == len(machine.asked) == 8
