"""Candidates that take turns: who leaves early, who is refused, and what the budget ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from hios import HiosError
from hios.optimizing import race as module
from hios.optimizing.candidates import Candidate, in_runtime, itself
from hios.optimizing.race import FEWEST_ROUNDS, Race

TODAY = itself(1)


class _Clock:
    """A race whose calls take the time given for each label on a simulated clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, milliseconds: dict[str, float]) -> None:
        self.calls: list[str] = []

        def timed(race: Race, candidate: Candidate) -> float:
            self.calls.append(candidate.label)
            return milliseconds[candidate.label]

        monkeypatch.setattr(Race, "_timed", timed)
        monkeypatch.setattr(Race, "_warm", lambda race, c: race.warm_ms.update({c.label: milliseconds[c.label]}))


def _race(candidates: Sequence[Candidate], expected: Tensor, **more: object) -> Race:
    return Race(candidates, lambda candidate: [expected], [expected], 1e-4, **more)  # type: ignore[arg-type]


def test_what_is_clearly_slower_leaves_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slower candidates leave after few rounds, the model as it is never does, and the rest race to the end."""
    names = ("openvino", "onnxruntime", "compile")
    fast, close, slow = (in_runtime(name, 1) for name in names)
    times = {TODAY.label: 40.0, fast.label: 10.0, close.label: 10.5, slow.label: 14.0}
    clock = _Clock(monkeypatch, times)
    race = _race([TODAY, fast, close, slow], torch.ones(2))
    race.measure()
    assert set(race.latencies) == {TODAY.label, fast.label, close.label}
    assert clock.calls.count(slow.label) == len(race.left[slow.label]) < FEWEST_ROUNDS / 3
    assert len(race.latencies[fast.label]) >= FEWEST_ROUNDS
    assert race.chosen() == (fast, "4.00 times as fast as the model itself, 1 thread")


def test_the_budget_ends_a_race() -> None:
    """Once the deadline has passed nothing more is measured, and the model stays as it is."""
    race = _race([TODAY, in_runtime("openvino", 1)], torch.ones(2), deadline=time.monotonic() - 1)
    race.measure()
    assert race.reported() == {}
    way, reason = race.chosen()
    assert way is TODAY
    assert "budget" in reason


def test_rounds_too_few_for_a_comparison_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a budget for a few rounds only, nothing can be shown to be faster."""
    other = in_runtime("openvino", 1)
    race = _race([TODAY, other], torch.ones(2))
    race.latencies = {TODAY.label: [10.0] * 15, other.label: [1.0] * 15}
    assert race.chosen()[0] is TODAY


def test_what_fails_or_differs_is_named() -> None:
    """A candidate that raises, and one with other values, shapes or dtypes, take no part."""
    expected = torch.ones(2)
    kinds = {"openvino": torch.zeros(2), "onnxruntime": torch.ones(3), "compile": torch.ones(2, dtype=torch.float64)}
    candidates = [TODAY, *(in_runtime(kind, 1) for kind in kinds), Candidate("broken", "compile", 2)]

    def call(candidate: Candidate) -> list[Tensor]:
        if candidate.label == "broken":
            raise ValueError("no such operator\nand more")
        return [expected if candidate is TODAY else kinds[candidate.kind]]

    race = Race(candidates, call, [expected], 1e-4)
    race.measure()
    assert race.failed == {"broken": "no such operator"}
    assert [race.wrong[in_runtime(kind, 1).label].off for kind in kinds] == [1.0, math.inf, math.inf]
    assert race.chosen()[0] is TODAY


def test_one_that_is_asked_for_is_taken_or_refused() -> None:
    """A forced candidate is taken however slow it is; where it is wrong, the error says by how much."""
    forced = in_runtime("openvino", 1)
    race = _race([TODAY, forced], torch.ones(2), forced=[forced.label])
    race.measure()
    assert race.chosen() == (forced, "as asked for")
    wrong = Race(
        [TODAY, forced],
        lambda candidate: [torch.ones(2) if candidate is TODAY else torch.zeros(2)],
        [torch.ones(2)],
        1e-4,
        forced=[forced.label],
    )
    wrong.measure()
    with pytest.raises(HiosError, match=r"^OpenVINO, 1 thread: outputs differ from the model's by 1 of"):
        wrong.chosen()


def test_what_rounding_explains_takes_part() -> None:
    """It is asked for where outputs differ by more than the tolerance only; what differs by more stays out."""
    near, far = in_runtime("openvino", 1), in_runtime("onnxruntime", 1)
    outputs = {TODAY.label: 1.0, near.label: 1.001, far.label: 1.1}
    asked = []

    def rounding() -> float:
        asked.append(True)
        return 2e-3

    for candidates, explained in (([TODAY], 0.0), ([TODAY, near, far], 2e-3)):
        race = Race(
            candidates,
            lambda candidate: [torch.full((2,), outputs[candidate.label])],
            [torch.ones(2)],
            1e-4,
            rounding=rounding,
        )
        race.measure()
        assert bool(asked) == (len(candidates) > 1)
        assert race.explained == explained
    assert list(race.wrong) == [far.label]
    assert near.label in race.latencies or near.label in race.left


def test_a_short_budget_keeps_the_faster_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there is no time for all candidates in the smallest useful number of rounds, half of them leave."""
    names = [Candidate(f"way {number}", "compile", 1) for number in range(5)]
    times = {TODAY.label: 10.0, **{way.label: 10.0 + number / 10 for number, way in enumerate(names)}}
    _Clock(monkeypatch, times)
    monkeypatch.setattr(module.time, "monotonic", lambda: 0.0)  # type: ignore[attr-defined] # what it imported
    race = _race([TODAY, *names], torch.ones(2), deadline=0.7)
    race.measure()
    assert TODAY.label in race.latencies
    assert 2 <= len(race.latencies) < 6
    assert "way 4" not in race.latencies


def test_rounds_that_no_longer_fit_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last three rounds are left out if they would end after the deadline, by how long the rounds before took."""
    clock = [0.0]
    other = in_runtime("openvino", 1)
    milliseconds = {TODAY.label: 100.0, other.label: 60.0}

    def timed(race: Race, candidate: Candidate) -> float:
        clock[0] += milliseconds[candidate.label] / 1e3
        return milliseconds[candidate.label]

    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])  # type: ignore[attr-defined] # what it imported
    monkeypatch.setattr(Race, "_timed", timed)
    monkeypatch.setattr(Race, "_warm", lambda race, c: race.warm_ms.update({c.label: milliseconds[c.label] / 2}))
    race = _race([TODAY, other], torch.ones(2), deadline=5.0)
    race.measure()
    assert 4.0 < clock[0] <= 5.0
    assert len(race.latencies[other.label]) % 3 == 0


@pytest.mark.parametrize(("times", "pairs"), [((1, 2), 3), ((2, 1), 3), ((10, 11), 8), ((1, 1), 8)])
def test_clear_differences_need_few_pairs(times: tuple[int, int], pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice holds if its calls take less time than the model's: two pairs tell where it is clear, all elsewhere."""
    clock, calls = [0], [0]
    monkeypatch.setattr(module.time, "perf_counter_ns", lambda: clock[0])  # type: ignore[attr-defined] # what it imported

    def taking(nanoseconds: int) -> Callable[[], None]:
        def call() -> None:
            clock[0] += nanoseconds
            calls[0] += 1

        return call

    assert module.outruns(taking(times[0]), taking(times[1]), settle=False) is (times[0] < times[1])
    assert calls[0] == 2 * pairs
