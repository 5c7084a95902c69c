"""A choice beside other work, on a simulated machine with a clock of its own."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import hios
from hios import HiosError, HiosWarning
from hios.optimizing import optimize
from hios.optimizing import race as module
from hios.optimizing.autotune import Autotune
from hios.optimizing.candidates import Candidate, in_runtime, itself
from hios.optimizing.module import torch_threads
from hios.optimizing.race import OnlineRace, Race
from hios.optimizing.report import Budget
from tests.optimizing.optimized_models import pretend_busy

#: Milliseconds on idle cores that docs/optimize.md has of the networks of the papers, in the order of the ways.
_NETWORKS = {
    "squeezenet": (27.1, 42.5, 15.5, 22.7, 13.5, 16.1, 10.0, 21.8, 15.0),
    "inception_v3": (95.5, 156.2, 82.1, 76.6, 42.8, 76.4, 41.6, 89.0, 52.0),
    "googlenet": (43.2, 71.1, 28.6, 26.3, 13.2, 25.5, 11.9, 23.8, 17.3),
    "resnet50": (51.8, 87.1, 38.1, 37.7, 22.6, 38.1, 21.4, 42.2, 33.9),
    "randwire": (164.7, 365.8, 129.5, 99.2, 75.9, 116.4, 108.4, 208.0, 114.7),
    "nasnet_large": (393.0, 821.2, 236.8, 265.0, 145.5, 317.8, 248.3, 309.8, 259.7),
    "bert": (217.1, 270.9, 140.3, 110.0, 75.4, 131.6, 91.7, 122.2, 84.1),
    "t5": (109.8, 197.0, 117.8, 65.7, 42.2, 80.6, 44.3, 135.9, 57.6),
}
_RUNTIMES = [in_runtime(kind, threads) for kind in ("openvino", "onnxruntime") for threads in (1, 2)]
#: The model itself, the runtimes, and the operators one after another on one core and on two.
_WAYS = [itself(2), itself(1), in_runtime("compile", 2), *_RUNTIMES]
_WAYS += [Candidate(f"sequential, {cores} cores", "compile", cores) for cores in (1, 2)]
#: How long other work keeps a core at a time.
_SLICE_MS = 4.0
_RESULT = [torch.ones(1)]


class _Machine:
    """Two cores that other processes take now and then; a way to run a network waits for each of its cores."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, network: Sequence[float], others: int = 0, seed: int = 0
    ) -> None:
        self.now_ms, self.others = 0.0, others
        self._draw = random.Random(seed)
        self._quiet_ms = {way.label: ms for way, ms in zip(_WAYS, network, strict=True)}
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now_ms / 1e3)  # type: ignore[attr-defined]
        monkeypatch.setattr(module.time, "perf_counter_ns", lambda: int(self.now_ms * 1e6))  # type: ignore[attr-defined]
        monkeypatch.setattr(module.time, "sleep", lambda _: None)  # type: ignore[attr-defined]

    def call(self, way: Candidate) -> list[Tensor]:
        """A call, which takes time on the clock."""
        left = self._quiet_ms[way.label]
        while left > 0:
            self.now_ms += min(_SLICE_MS, left)
            left -= _SLICE_MS
            for _ in range(way.threads):
                while self._draw.random() < self.others / 4:
                    self.now_ms += self._draw.random() * _SLICE_MS
        return _RESULT

    def raced(self, deadline_s: float, ways: Sequence[Candidate] = _WAYS, **more: Any) -> Race:
        """A race beside other work, at its end."""
        race = Race(ways, self.call, _RESULT, 1e-4, deadline_s, busy=True, **more)
        race.measure()
        return race

    def typical_ms(self, way: Candidate) -> float:
        """The median of many calls under this load."""
        times = []
        for _ in range(200):
            began = self.now_ms
            self.call(way)
            times.append(self.now_ms - began)
        return statistics.median(times)


@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("network", _NETWORKS.values(), ids=_NETWORKS)
def test_what_is_fast_is_found_beside_other_work(
    monkeypatch: pytest.MonkeyPatch, network: Sequence[float], others: int
) -> None:
    """The provisional choice is within 10 % of the best way under the same load, in the time that is kept for a race.

    That is half of the default budget at most, and time for 18 rounds of three ways as slow as the model.
    """
    machine = _Machine(monkeypatch, network, others, seed=1)
    typical = {way.label: machine.typical_ms(way) for way in _WAYS}
    for seed in range(3):
        machine = _Machine(monkeypatch, network, others, seed)
        reserve_s = min(max(18 * 3 * typical[_WAYS[0].label] / 1e3, 9.0), 30.0)
        assert typical[machine.raced(reserve_s).provisional().label] <= 1.1 * min(typical.values())
        assert machine.now_ms / 1e3 <= 1.1 * reserve_s


def test_what_is_not_faster_is_not_chosen_beside_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is faster than the model by more than the measurement can tell, it stays."""
    for seed in range(3):
        race = _Machine(monkeypatch, (50.0,) + 8 * (50.5,), seed=seed).raced(30.0)
        assert race.provisional() is _WAYS[0]


def test_the_model_leaves_once_it_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that takes long beside other work is measured only until it is clear; its rounds are reported."""
    race = _Machine(monkeypatch, _NETWORKS["bert"], others=1).raced(60.0)
    today = _WAYS[0].label
    assert race.left[today] == race.today_ms
    assert 3 <= len(race.today_ms) < len(race.latencies[race.provisional().label])
    assert race.reported() == race.latencies


@pytest.mark.parametrize("deadline_s", [30.0, 7.0])
def test_a_model_that_takes_seconds_does_not_take_all_time(monkeypatch: pytest.MonkeyPatch, deadline_s: float) -> None:
    """Where threads that wait for cores make the model far slower, a call tells, and the others get the time."""
    machine = _Machine(monkeypatch, (2500.0, 120.0, 140.0, *(90.0, 230.0, 150.0, 170.0), 180.0, 200.0), others=1)
    race = machine.raced(deadline_s)
    assert race.provisional() is _WAYS[3]
    assert race.today_ms == []
    assert machine.now_ms / 1e3 <= 1.1 * deadline_s
    assert race.able(3.0)[0] is _WAYS[0]  # it takes part once the cores are idle


def test_three_rounds_tell_where_the_model_takes_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more rounds are spent on it."""
    race = _Machine(monkeypatch, (220.0, 400.0, 140.0, *(90.0, 230.0, 150.0, 170.0), 180.0, 200.0)).raced(30.0)
    assert race.provisional() is _WAYS[3]
    assert len(race.today_ms) == 3


def test_a_brief_race_ends_once_the_model_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of the others is the fastest is left to later races."""
    race = _Machine(monkeypatch, _NETWORKS["googlenet"]).raced(30.0, brief=True)
    assert {len(own) for own in race.latencies.values()} == {3}
    assert _NETWORKS["googlenet"][_WAYS.index(race.provisional())] <= 13.2


def test_a_brief_race_looks_after_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that takes less than twice as long has lost after four rounds, and the race is over."""
    machine = _Machine(monkeypatch, (100.0, 180.0, 110.0, *(120.0, 60.0, 120.0, 61.0), 110.0, 105.0))
    race = machine.raced(30.0, brief=True)
    assert race.provisional() is _WAYS[4]
    assert len(race.today_ms) == len(race.latencies[_WAYS[4].label]) == 4


@pytest.mark.parametrize(("onnx_ms", "taken", "rounds"), [(10.0, 6, 4), (13.5, 4, 3), (16.0, 4, 3)])
def test_a_brief_race_goes_on_for_what_seems_faster_than_what_was_taken(
    monkeypatch: pytest.MonkeyPatch, onnx_ms: float, taken: int, rounds: int
) -> None:
    """The next way is taken as soon as rounds show it to be faster, not once all others are there."""
    machine = _Machine(monkeypatch, (30.0, 42.5, 15.5, 22.7, 13.5, 16.1, onnx_ms, 21.8, 15.0))
    today, openvino, onnx = _WAYS[0], _WAYS[4], _WAYS[6]
    first = machine.raced(3.0, [today, openvino], brief=True)
    assert first.provisional() is openvino
    race = machine.raced(9.0, [today, openvino, onnx], brief=True, before=first)
    assert race.provisional() is _WAYS[taken]
    assert max(map(len, (*race.latencies.values(), *race.left.values()))) == rounds


@pytest.mark.parametrize("network", _NETWORKS.values(), ids=_NETWORKS)
def test_a_choice_is_settled_within_a_minute(monkeypatch: pytest.MonkeyPatch, network: Sequence[float]) -> None:
    """Once the other work has ended, calls one after another come to the best way on idle cores within a minute."""
    machine = _Machine(monkeypatch, network, others=2)

    pretend_busy(monkeypatch, 1.0)
    settled: list[Race] = []
    runs = {way.label: lambda tensors, way=way: machine.call(way) for way in _WAYS}
    online = OnlineRace(_WAYS, runs, _WAYS[0].label, [0, 1], [], lambda race, busy: settled.append(race))
    while machine.now_ms < 120e3:
        online.run(_RESULT)
    assert not settled
    pretend_busy(monkeypatch)
    machine.others, quiet_ms = 0, machine.now_ms
    while not settled:
        online.run(_RESULT)
    assert machine.now_ms - quiet_ms <= 60e3
    quiet = dict(zip(_WAYS, network, strict=True))
    way, reason = settled[0].chosen()
    assert quiet[way] == min(quiet.values())
    assert "times as fast as the model itself, 2 threads" in reason


@pytest.mark.parametrize(("share", "expected"), [(0.0, 2), (0.5, 1)])
def test_threads_that_wait_for_cores_do_not_count(monkeypatch: pytest.MonkeyPatch, share: float, expected: int) -> None:
    """Beside other work predictions and comparisons are by calls of the model with one thread if that is faster."""
    asked: list[tuple[float, int]] = []

    def raced(autotune: Autotune, budget: Budget, outputs: list[Tensor], threads: int) -> None:
        asked.append((budget.call_s, threads))
        raise HiosError("this is all that is tested")

    monkeypatch.setattr(Autotune, "raced", raced)
    monkeypatch.setattr(optimize, "timed", lambda call: (call(), 1e-3))
    pretend_busy(monkeypatch, share)
    with torch_threads(2), pytest.warns(HiosWarning, match="this is all that is tested"):
        hios.optimize(torch.nn.Linear(4, 4), torch.ones(1, 4), least_ms=0.0, cache=False)
    ((call_s, threads),) = asked
    assert threads == expected
    assert (call_s == 1e-6) == (expected == 1)


@pytest.mark.filterwarnings("ignore::hios.HiosWarning")
@pytest.mark.parametrize(("share", "reason"), [(0.0, "a search"), (0.5, "it takes 0.10 ms")])
def test_a_quick_model_is_left_alone_beside_other_work(
    monkeypatch: pytest.MonkeyPatch, share: float, reason: str
) -> None:
    """A model whose threads wait for cores for longer than ``least_ms`` is quick all the same with one thread."""

    def raced(*_: object) -> None:
        raise HiosError("a search")

    monkeypatch.setattr(Autotune, "raced", raced)
    monkeypatch.setattr(optimize._Optimizer, "_eager_ms", lambda self, first_ms: 16.0)
    monkeypatch.setattr(optimize, "timed", lambda call: (call(), 0.1))
    pretend_busy(monkeypatch, share)
    with torch_threads(2):
        fast = hios.optimize(torch.nn.Linear(4, 4), torch.ones(1, 4), cache=False)
    assert fast.report.reason.startswith(reason)
