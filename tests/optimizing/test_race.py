"""Candidates that take turns: who leaves early, who is refused, and what the budget ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from hios import HiosError
from hios.optimizing import race as module
from hios.optimizing.autotune import rows
from hios.optimizing.candidates import Candidate, in_runtime, itself
from hios.optimizing.other_inputs import Difference
from hios.optimizing.preparation import Preparation, ReadyCandidate
from hios.optimizing.race import FEWEST_ROUNDS, Race

TODAY = itself(1)


class _Clock:
    """A race whose calls take the time given for each label on a simulated clock; so does warming up."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, milliseconds: dict[str, float], warm_s: float = 0.0, warmed: float = 1.0
    ) -> None:
        self.calls, self.now_s = list[str](), 0.0

        def timed(race: Race, candidate: Candidate) -> float:
            self.calls.append(candidate.label)
            self.now_s += milliseconds[candidate.label] / 1e3
            return milliseconds[candidate.label]

        def warm(race: Race, candidate: Candidate) -> None:
            self.now_s += warm_s
            race.warm_ms[candidate.label] = milliseconds[candidate.label] / warmed

        monkeypatch.setattr(module.time, "monotonic", lambda: self.now_s)  # type: ignore[attr-defined] # what it imported
        monkeypatch.setattr(Race, "_timed", timed)
        monkeypatch.setattr(Race, "_warm", warm)


def _raced(
    candidates: Sequence[Candidate], call: Callable[[Candidate], list[Tensor]] = lambda _: [torch.ones(2)], **more: Any
) -> Race:
    """A race, at its end, of ways whose outputs are to be ones."""
    race = Race(candidates, call, [torch.ones(2)], 1e-4, **more)
    race.measure()
    return race


def test_what_is_clearly_slower_leaves_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slower candidates leave after few rounds, the model as it is never does, and the rest race to the end."""
    names = ("openvino", "onnxruntime", "compile")
    fast, close, slow = (in_runtime(name, 1) for name in names)
    times = {TODAY.label: 40.0, fast.label: 10.0, close.label: 10.5, slow.label: 14.0}
    clock = _Clock(monkeypatch, times)
    race = _raced([TODAY, fast, close, slow])
    assert set(race.latencies) == {TODAY.label, fast.label, close.label}
    assert clock.calls.count(slow.label) == len(race.left[slow.label]) < FEWEST_ROUNDS / 3
    assert len(race.latencies[fast.label]) >= FEWEST_ROUNDS
    assert race.chosen() == (fast, "4.00 times as fast as the model itself, 1 thread")


def test_the_budget_ends_a_race() -> None:
    """Once the deadline has passed nothing more is measured, and the model stays as it is."""
    race = _raced([TODAY, in_runtime("openvino", 1)], deadline=time.monotonic() - 1)
    assert race.reported() == {}
    way, reason = race.chosen()
    assert way is TODAY
    assert "budget" in reason


#: Milliseconds of rounds that a network took on two cores: the model itself, and OpenVINO.
_SLOW, _FAST = [41.1, 41.5, 42.0, 42.2], [16.7, 16.8, 17.0, 18.4]


def _after(rounds: dict[Candidate, list[float]], before: Race | None = None, *, busy: bool = False) -> Race:
    """A race after rounds that took so many milliseconds."""
    race = Race(list(rounds), lambda _: [], [], 1e-4, before=before, busy=busy)
    race.latencies = {candidate.label: times for candidate, times in rounds.items()}
    return race


@pytest.mark.parametrize(
    ("slow", "fast", "tells"),
    [
        (_SLOW, _FAST, True),
        (_SLOW[:3], _FAST[:3], True),  # by far
        (_SLOW[:2], _FAST[:2], False),
        ([20.0, 20.1, 20.2, 20.3], [15.0, 15.1, 15.2, 15.3], True),
        ([20.0, 20.1, 20.2], [15.0, 15.1, 15.2], False),
        ([20.0, 20.1, 20.2, 20.3], [15.0, 15.1, 15.2, 20.1], False),
        (5 * [10.0, 11.0, 12.0], 5 * [9.9, 10.9, 12.1], False),
        (15 * [10.0], 15 * [1.0], True),
    ],
)
def test_few_rounds_choose_what_they_tell(slow: list[float], fast: list[float], tells: bool) -> None:
    """A budget for a few rounds is enough where the slowest run of a way is faster than the fastest of the model."""
    other = in_runtime("openvino", 1)
    race = _after({TODAY: slow, other: fast})
    way, reason = race.chosen()
    assert way == (other if tells else TODAY)
    assert ("times as fast as the model itself, 1 thread" in reason) is tells
    assert race.reported() == {}
    assert race.together(other.label) == (fast, slow)


def test_what_was_taken_early_stays() -> None:
    """A final race with little time or none keeps what an earlier race has taken, and chooses what is shown faster."""
    quick, new = in_runtime("openvino", 1), in_runtime("onnxruntime", 1)
    early = _after({TODAY: _SLOW * 2, quick: _FAST * 2}, busy=True)
    for busy in (False, True):
        nothing = _after({TODAY: [], quick: [], new: []}, early, busy=busy)
        assert nothing.provisional() == quick
        assert nothing.together(quick.label) == (_FAST * 2, _SLOW * 2)
        for count in (1, 2, 3):
            few = {TODAY: _SLOW[:count], quick: _FAST[:count], new: [10.0] * count}
            assert _after(few, early, busy=busy).provisional() == quick
        assert _after({TODAY: _SLOW, quick: _FAST, new: [10.0] * 4}, early, busy=busy).provisional() == new
        assert _after({TODAY: [10.0] * 4, quick: _FAST, new: _FAST}, early, busy=busy).provisional() == TODAY
    way, reason = _after({TODAY: [], quick: [], new: []}, early).chosen()
    assert (way, reason) == (
        quick,
        "2.47 times as fast as the model itself, 1 thread, in the 8 rounds that there was time for",
    )


def test_what_was_taken_early_stays_unless_it_is_wrong_or_fails() -> None:
    """Evidence of speed says nothing about that."""
    quick = in_runtime("openvino", 1)
    for wrong in (True, False):
        race = _after({TODAY: []}, _after({TODAY: _SLOW * 2, quick: _FAST * 2}, busy=True))
        race.candidates = [TODAY, quick]
        if wrong:
            race.wrong[quick.label] = Difference(1.0)
        else:
            race.failed[quick.label] = "no memory"
        assert race.chosen() == (TODAY, "nothing was faster by more than the measurement can tell")


def test_a_whole_race_decides_by_its_own_rounds() -> None:
    """What was taken early, beside other work, goes if the rounds of a whole race do not show it to be faster."""
    quick = in_runtime("openvino", 1)
    early = _after({TODAY: _SLOW * 2, quick: _FAST * 2}, busy=True)
    slow = _after({TODAY: 18 * [42.0], quick: 18 * [17.0]}, early)
    assert slow.chosen()[0] == quick
    equal = _after({TODAY: 18 * [40.0], quick: 18 * [40.0]}, early)
    assert equal.chosen() == (TODAY, "nothing was faster by more than the measurement can tell")


def test_what_was_taken_early_is_measured_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not leave as slower after a few rounds, which tell less than those that it was taken by."""
    quick, new = in_runtime("openvino", 1), in_runtime("onnxruntime", 1)
    _Clock(monkeypatch, {TODAY.label: 42.0, quick.label: 17.0, new.label: 10.0})
    early = _after({TODAY: _SLOW * 2, quick: _FAST * 2}, busy=True)
    race = _raced([TODAY, quick, new], before=early)
    assert quick.label in race.latencies
    assert race.chosen()[0] is new


def test_what_fails_or_differs_is_named() -> None:
    """A candidate that raises, and one with other values, shapes or dtypes, take no part."""
    kinds = {"openvino": torch.zeros(2), "onnxruntime": torch.ones(3), "compile": torch.ones(2, dtype=torch.float64)}
    candidates = [TODAY, *(in_runtime(kind, 1) for kind in kinds), Candidate("broken", "compile", 2)]

    def call(candidate: Candidate) -> list[Tensor]:
        if candidate.label == "broken":
            raise ValueError("no such operator\nand more")
        return [torch.ones(2) if candidate is TODAY else kinds[candidate.kind]]

    race = _raced(candidates, call)
    assert race.failed == {"broken": "no such operator"}
    assert [race.wrong[in_runtime(kind, 1).label].off for kind in kinds] == [1.0, math.inf, math.inf]
    assert race.chosen()[0] is TODAY


def test_one_that_is_asked_for_is_taken_or_refused() -> None:
    """A forced candidate is taken however slow it is; where it is wrong, the error says by how much."""
    forced = in_runtime("openvino", 1)
    race = _raced([TODAY, forced], forced=[forced.label])
    assert race.chosen() == (forced, "as asked for")
    wrong = _raced(
        [TODAY, forced],
        lambda candidate: [torch.ones(2) if candidate is TODAY else torch.zeros(2)],
        forced=[forced.label],
    )
    with pytest.raises(HiosError, match=r"^OpenVINO, 1 thread: outputs differ from the model's by 1 of"):
        wrong.chosen()


def test_what_rounding_explains_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for where outputs differ by more than the tolerance only; what differs by more stays out."""
    near, far = in_runtime("openvino", 1), in_runtime("onnxruntime", 1)
    outputs = {TODAY.label: 1.0, near.label: 1.001, far.label: 1.1}
    asked = []
    monkeypatch.setattr(Race, "_first", lambda race, way: (race.call(way), 1.0))
    monkeypatch.setattr(Race, "_timed", lambda *_: 1.0)

    def rounding() -> float:
        asked.append(True)
        return 2e-3

    for candidates, explained in (([TODAY], 0.0), ([TODAY, near, far], 2e-3)):
        race = _raced(candidates, lambda way: [torch.full((2,), outputs[way.label])], rounding=rounding)
        assert bool(asked) == (len(candidates) > 1)
        assert race.explained == explained
    assert list(race.wrong) == [far.label]
    assert list(race.latencies) == [TODAY.label, near.label]


def test_a_short_budget_keeps_the_faster_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there is no time for all candidates in the smallest useful number of rounds, half of them leave."""
    names = [Candidate(f"way {number}", "compile", 1) for number in range(5)]
    times = {TODAY.label: 10.0, **{way.label: 10.0 + number / 10 for number, way in enumerate(names)}}
    _Clock(monkeypatch, times)
    race = _raced([TODAY, *names], deadline=0.7)
    assert TODAY.label in race.latencies
    assert 2 <= len(race.latencies) < 6
    assert "way 4" not in race.latencies


def test_rounds_that_no_longer_fit_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last three rounds are left out if they would end after the deadline, by how long the rounds before took."""
    other = in_runtime("openvino", 1)
    clock = _Clock(monkeypatch, {TODAY.label: 100.0, other.label: 60.0}, warmed=2.0)
    race = _raced([TODAY, other], deadline=5.0)
    assert 4.0 < clock.now_s <= 5.0
    assert len(race.latencies[other.label]) % 3 == 0


def test_time_is_kept_for_rounds_while_warming_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many ways, whose outputs take long to compare, do not take the time in which those near the fastest are raced."""
    quick, slow = in_runtime("openvino", 1), [Candidate(f"way {number}", "compile", 1) for number in range(40)]
    milliseconds = {TODAY.label: 40.0, quick.label: 16.0, **dict.fromkeys((way.label for way in slow), 30.0)}
    _Clock(monkeypatch, milliseconds, warm_s=0.25)
    race = _raced([TODAY, quick, *slow], deadline=9.0)
    assert len(race.latencies[quick.label]) >= FEWEST_ROUNDS
    assert race.chosen() == (quick, "2.50 times as fast as the model itself, 1 thread")
    assert 20 < len(race.warm_ms) < len(race.candidates)


@pytest.mark.parametrize(("times", "pairs"), [((1, 2), 3), ((2, 1), 3), ((10, 11), 8), ((1, 1), 8)])
def test_clear_differences_need_few_pairs(times: tuple[int, int], pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice holds if its calls take less time than the model's: two pairs tell where it is clear, all elsewhere."""
    clock, calls = [0], [0]
    monkeypatch.setattr(module.time, "perf_counter_ns", lambda: clock[0])  # type: ignore[attr-defined] # what it imported
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0] / 1e9)  # type: ignore[attr-defined]

    def taking(nanoseconds: int) -> Callable[[], None]:
        def call() -> None:
            clock[0] += nanoseconds
            calls[0] += 1

        return call

    assert module.outruns(taking(times[0]), taking(times[1]), settle=False) is (times[0] < times[1])
    assert calls[0] == 2 * pairs


def test_without_rounds_the_report_has_calls_of_warming_up() -> None:
    """What was compared and chosen by warming up alone is not said to be uncompared; what was not tried is."""
    quick, untried = in_runtime("openvino", 1), in_runtime("onnxruntime", 1)
    ways = [TODAY, quick, untried]
    race = Race(ways, lambda way: [], [], 1e-4, busy=True)
    race.warm_ms.update({TODAY.label: 50.0, quick.label: 10.0})
    race.latencies = {quick.label: []}
    assert race.provisional() is quick
    ready = {way.label: ReadyCandidate(way, lambda tensors: [], 1.0, 1.0) for way in ways}
    preparation = cast(Preparation, SimpleNamespace(ready=ready, absent=[]))
    told = {way.label: way for way in rows(race, preparation, {})}
    assert (told[quick.label].median_ms, told[quick.label].equal) == (10.0, True)
    assert "while warming up" in told[quick.label].why
    assert told[untried.label].outcome == "not started"


@pytest.mark.parametrize("busy", [False, True])
def test_a_busy_machine_has_no_speedups(busy: bool) -> None:
    """Times of rounds beside other work are told, but nothing is claimed of them."""
    quick = in_runtime("openvino", 1)
    race = _after({TODAY: _SLOW * 2, quick: _FAST * 2}, busy=busy)
    ready = {way.label: ReadyCandidate(way, lambda tensors: [], 1.0, 1.0) for way in (TODAY, quick)}
    told = rows(race, cast(Preparation, SimpleNamespace(ready=ready, absent=[])), {})
    assert all(way.median_ms is not None for way in told)
    assert [way.speedup is None and way.high is None for way in told] == [busy, busy]
