"""When measuring ends."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from itertools import cycle

import pytest

from hios.machine.terminal import Meter
from hios.profiling.measurements import Effort, sample

STEADY, NOISY = (1.0, 1.001), tuple(1.0 + (7 * number % 23) / 10 for number in range(23))


class _Machine:
    """Hands out samples by name, and remembers which were asked for together."""

    def __init__(self, **samples: Sequence[float]) -> None:
        self._samples: dict[str, Iterator[float]] = {name: cycle(own) for name, own in samples.items()}
        self.rounds: list[tuple[tuple[str, ...], int]] = []

    def run(self, names: list[str], rounds: int) -> dict[str, list[float]]:
        self.rounds.append((tuple(names), rounds))
        return {name: [next(self._samples[name]) for _ in range(rounds)] for name in names}


def _counts(machine: _Machine, names: list[str], effort: Effort, *, whole: bool = False) -> dict[str, int]:
    with Meter(len(names) * effort.repeats, "measuring", "runs", effort.deadline) as meter:
        samples_of = sample(names, machine.run, effort, meter, whole=whole)
    return {name: len(samples) for name, samples in samples_of.items()}


def test_steady_things_are_measured_as_often_as_asked() -> None:
    """What is certain after the least number of repeats is not measured again, in calls of a chunk."""
    machine = _Machine(a=STEADY, b=STEADY)
    assert _counts(machine, ["a", "b"], Effort(7, math.inf)) == {"a": 7, "b": 7}
    assert machine.rounds == [(("a", "b"), 5), (("a", "b"), 2)]


def test_noisy_things_are_measured_longer() -> None:
    """What stays uncertain is measured five times as often, without what is certain."""
    machine = _Machine(a=STEADY, b=NOISY)
    assert _counts(machine, ["a", "b"], Effort(10, math.inf)) == {"a": 10, "b": 50}
    assert machine.rounds[2:] == [(("b",), 5)] * 8


def test_rounds_may_stay_whole() -> None:
    """Where caches must look the same, all are measured until all are certain."""
    machine = _Machine(a=STEADY, b=NOISY)
    assert _counts(machine, ["a", "b"], Effort(10, math.inf), whole=True) == {"a": 50, "b": 50}


def test_measuring_ends_when_precise() -> None:
    """The interval narrows with the number of samples, and measuring ends where it is narrow enough."""
    machine = _Machine(a=[1.0, 1.0, 1.0, 1.05, 0.95, 1.05, 0.95])
    assert 10 < _counts(machine, ["a"], Effort(10, math.inf))["a"] < 50


def test_the_deadline_ends_repeating() -> None:
    """After the deadline nothing is repeated beyond the least number, which is measured all the same."""
    machine = _Machine(a=NOISY, b=NOISY)
    assert _counts(machine, ["a", "b"], Effort(10, time.monotonic())) == {"a": 10, "b": 10}


def test_nothing_to_measure() -> None:
    """Without anything to measure, nothing is called."""
    machine = _Machine()
    assert _counts(machine, [], Effort(10, math.inf)) == {}
    assert machine.rounds == []


@pytest.mark.parametrize(("taken", "left"), [(0, 10), (4, 6), (50, 0)])
def test_estimate_of_what_is_left(taken: int, left: int) -> None:
    """What is left is the rest of the least number, and nothing once the most is reached."""
    samples = [next(own) for own in [cycle(NOISY)] for _ in range(taken)]
    assert Effort(10, math.inf).left(samples) == left


def test_the_bar_ends_full(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever was expected, at the end the bar states what was done, and no remaining time."""
    _counts(_Machine(a=STEADY, b=NOISY), ["a", "b"], Effort(10, math.inf))
    last = capsys.readouterr().err.split("\r")[-1].strip()
    assert last.startswith("measuring 100% |")
    assert "60 of 60 runs" in last
