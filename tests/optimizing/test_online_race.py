"""A choice made beside other work, made again in the user's own calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import hios
from hios import HiosWarning
from hios.errors import FailedCallError
from hios.optimizing import race as online_race
from hios.optimizing.autotune import raced_again
from hios.optimizing.candidates import Candidate, in_runtime, itself
from hios.optimizing.race import FEWEST_ROUNDS, OnlineRace, Race
from hios.optimizing.report import WayReport
from tests.optimizing.optimized_models import image, pretend_busy, require_equal
from tests.runtime.small import Branches
from tests.workers.processes import children

TODAY, OTHER, SLOW = itself(2), in_runtime("openvino", 2), in_runtime("onnxruntime", 2)
_MS = {TODAY.label: 20.0, OTHER.label: 10.0, SLOW.label: 15.0}


class _Session:
    """Calls of an online race on a clock of its own, beside other work that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns, self.calls, self.races = 0, list[str](), list[Race]()
        monkeypatch.setattr(online_race.time, "perf_counter_ns", lambda: self.now_ns)  # type: ignore[attr-defined]
        monkeypatch.setattr(online_race.time, "monotonic", lambda: self.now_ns / 1e9)  # type: ignore[attr-defined]
        pretend_busy(monkeypatch, 1.0)
        candidates = [TODAY, OTHER, SLOW]
        runs = {candidate.label: self._runs(candidate) for candidate in candidates}
        self.race = OnlineRace(candidates, runs, SLOW.label, [0], [], lambda race, _: self.races.append(race))

    def _runs(self, candidate: Candidate) -> Any:
        def run(tensors: list[Tensor]) -> list[Tensor]:
            self.calls.append(candidate.label)
            self.now_ns += int(_MS[candidate.label] * 1e6)
            return [tensors[0] * 2]

        return run

    def call(self, times: int) -> list[str]:
        """Make calls; returns what ran them."""
        before = len(self.calls)
        for number in range(times):
            (output,) = self.race.run([torch.tensor([float(number)])])
            assert output.item() == 2.0 * number
        return self.calls[before:]

    def wait(self) -> None:
        """Let enough time pass for a look at the cores."""
        self.now_ns += int(1e9 * (online_race.LOOK_S + 1))


def test_the_choice_is_made_again_once_the_cores_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Busy cores leave the provisional choice; idle ones have the candidates run the calls in turns, one each."""
    session = _Session(monkeypatch)
    assert set(session.call(5)) == {SLOW.label}
    session.wait()
    assert set(session.call(5)) == {SLOW.label}  # still busy
    pretend_busy(monkeypatch)
    assert set(session.call(5)) == {SLOW.label}  # not looked at yet
    session.wait()
    first = session.call(12)
    assert {first.count(label) for label in _MS} == {4}
    calls = session.call(2 * FEWEST_ROUNDS)
    assert SLOW.label not in calls  # left as clearly slower
    assert len(session.races) == 1
    way, reason = session.races[0].chosen()
    assert way is OTHER
    assert reason == "2.00 times as fast as the model itself, 2 threads"


def test_work_that_begins_meanwhile_ends_the_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds beside other work decide nothing."""
    session = _Session(monkeypatch)
    pretend_busy(monkeypatch)
    session.wait()
    session.call(12)
    pretend_busy(monkeypatch, 0.5)
    session.call(2 * FEWEST_ROUNDS)
    assert session.races == []
    assert set(session.call(3)) == {SLOW.label}


def test_workers_are_no_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this process are known from the start, as all that they have done before would hide other work."""
    seen: list[tuple[list[int], ...]] = []
    monkeypatch.setattr(online_race, "OtherWork", lambda *given: seen.append(given))
    OnlineRace([TODAY], {TODAY.label: lambda tensors: tensors}, TODAY.label, [0, 1], [7, 8], lambda *_: None)
    assert seen == [([0, 1], [7, 8])]


def test_candidates_that_fail_drop_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed call moves on in the round; one candidate that fails three times in a row is out, another is not."""
    session = _Session(monkeypatch)
    failed = list[str]()

    def failing(label: str, *, always: bool) -> Any:
        works = session.race.runs[label]

        def call(tensors: list[Tensor]) -> list[Tensor]:
            if always or failed.count(label) < 2:
                failed.append(label)
                raise FailedCallError(f"{label} fails")
            return works(tensors)

        return call

    session.race.runs = {
        **session.race.runs,
        OTHER.label: failing(OTHER.label, always=False),
        SLOW.label: failing(SLOW.label, always=True),
    }
    pretend_busy(monkeypatch)
    session.wait()
    calls = 0
    while not session.races and calls < 4 * FEWEST_ROUNDS:
        assert session.race.run([torch.ones(1)])[0].item() == 2.0  # by the model, where a candidate fails
        calls += 1
    assert (failed.count(OTHER.label), failed.count(SLOW.label)) == (2, 3)
    assert session.race.provisional == TODAY.label  # no longer the one that fails
    (settled,) = session.races
    assert settled.chosen()[0] is OTHER
    assert len(settled.latencies[OTHER.label]) == len(settled.latencies[TODAY.label]) == FEWEST_ROUNDS
    assert settled.failed == {SLOW.label: f"3 calls in a row failed: {SLOW.label} fails"}
    way = WayReport(SLOW.label, SLOW.kind, median_ms=1.0)
    assert raced_again((way,), settled) == (WayReport(SLOW.label, SLOW.kind, "refused", settled.failed[SLOW.label]),)


def test_bad_requests_drop_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many requests in a row the model refuses too, all candidates stay in the race."""
    session = _Session(monkeypatch)
    working = session.race.runs

    def refusing(label: str) -> Any:
        def call(tensors: list[Tensor]) -> list[Tensor]:
            if not tensors[0].isfinite():
                raise IndexError(label) if label == TODAY.label else FailedCallError(label)
            return working[label](tensors)

        return call

    session.race.runs = {label: refusing(label) for label in working}
    pretend_busy(monkeypatch)
    session.wait()
    while not session.races:
        with pytest.raises(IndexError, match=TODAY.label):
            session.race.run([torch.tensor([torch.nan])])
        session.call(1)
    (settled,) = session.races
    assert settled.failed == {}
    assert settled.chosen()[0] is OTHER
    assert len(settled.latencies[OTHER.label]) == FEWEST_ROUNDS


@pytest.mark.slow
def test_a_module_settles_in_its_own_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is optimized beside other work claims no speedup; later calls choose, keep it, and end the other workers."""
    pretend_busy(monkeypatch, 0.5)
    monkeypatch.setattr(online_race, "LOOK_S", 0.0)
    model, before = Branches(), set(children())
    keywords: dict[str, Any] = {"cache": tmp_path, "devices": 1, "least_ms": 0.0, "way": ("eager", "schedule")}
    with pytest.warns(HiosWarning, match="keeps the cores 50% busy"):
        fast = hios.optimize(model, torch.randn(1, 3, 16, 16), **keywords)
    assert fast.report.provisional
    assert "times as fast" not in fast.report.reason
    assert "other work kept the cores 50% busy" in repr(fast.report)
    assert "still to come: the final choice, in later calls, once the cores are idle" in repr(fast.report)
    assert list((tmp_path / "choices").rglob("*.json")) == []

    def call(times: int) -> None:
        for seed in range(times):
            require_equal(fast, model, image(seed))

    call(3)
    assert "times as fast" not in fast.report.reason
    pretend_busy(monkeypatch)
    call(6 * (FEWEST_ROUNDS + 5))
    assert (fast.report.busy_share, fast.report.cached) == (0.0, False)
    assert len(list((tmp_path / "choices").rglob("*.json"))) == 1
    assert all(way.runs == FEWEST_ROUNDS / 3 for way in fast.report.candidates)
    call(3)
    fast.close()
    assert set(children()) <= before
