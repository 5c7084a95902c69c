"""Rounds of schedules by what the last one measured as it ran, on a small engine, and what remains if one fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from torch import Tensor

from hios.core.schedule import Placement, Plan, StagedPlan
from hios.errors import HiosError
from hios.machine.description import usable_cores
from hios.optimizing import preparation
from hios.optimizing.candidates import Candidate, scheduled
from hios.optimizing.options import Options
from hios.optimizing.preparation import Preparation, Subject
from hios.optimizing.report import Budget
from hios.optimizing.schedules import ScheduleProposals, tasks
from hios.optimizing.tracing import Traced
from hios.platforms.cpu import worker as device
from hios.platforms.cpu.engine import Engine
from hios.platforms.cpu.segment_runtimes import Choosing
from tests.runtime import faults
from tests.runtime.schedules import schedule_of
from tests.runtime.small import Branches, alternating, branches

pytestmark = pytest.mark.skipif(len(usable_cores()) < 2, reason="needs a core for each of two devices")


def _candidate(label: str, plan: Plan, latency_ms: float = 1e-6) -> Candidate:
    """By a prediction that no run keeps."""
    return scheduled(label, replace(schedule_of(branches().graph, plan), latency_ms=latency_ms))


#: A preparation, its engine, and the candidates that it runs.
_Made = tuple[Preparation, Engine, list[Candidate]]


class _Proposals:
    """Schedules whose first device has as many operators as there were rounds; one round may fail."""

    def __init__(self, failing: int = 0) -> None:
        self.failing, self.runs = failing, list[int]()

    def again(self, _: Candidate, runs: Sequence[Sequence[Placement]], label: str) -> Candidate:
        self.runs.append(len(runs))
        if len(self.runs) == self.failing:
            raise HiosError("no such schedule")
        stages, count = tuple(((operator,),) for operator in branches().graph.order), len(self.runs)
        return _candidate(label, StagedPlan((stages[:count], stages[count:])))


_DIVISIONS = [[[core] for core in usable_cores()[:2]]]


def _engine() -> Engine:
    """One whose segments are not converted, and whose operators refuse large numbers."""
    network, candidates = branches(), [_candidate("first", alternating())]
    racing, workers = tasks(network.graph, candidates, _DIVISIONS, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "load", faults.load_refusing)
        choosing = Choosing(network.inputs, None, 0.0)
        return Engine(network.graph, network.tensors, racing, workers, choosing=choosing)


@pytest.fixture(scope="module")
def shared() -> Iterator[Engine]:
    """An engine for tests that leave it able to run its schedule."""
    with _engine() as engine:
        yield engine


def _prepared(engine: Engine, folder: Path) -> _Made:
    """A preparation with a schedule that is ready."""
    network, candidates = branches(), [_candidate("first", alternating())]
    subject = Subject(Branches().eval(), network.inputs, {}, Options(cache=False), _DIVISIONS)
    own = Preparation(subject, Budget(600.0, "Net", 5, None), folder, 1.0)
    own.traced = Traced(network.graph, network.tensors)
    own._run_on(engine, candidates, 0.0)
    return own, engine, candidates


@pytest.fixture
def made(shared: Engine, tmp_path: Path) -> Iterator[_Made]:
    """What has one schedule on the shared engine, before and after."""
    yield _prepared(shared, tmp_path)
    shared.keep_only("first")


def _rounds(made: _Made, proposals: _Proposals) -> list[str]:
    own, engine, candidates = made
    with pytest.MonkeyPatch.context() as patch, own.budget:
        patch.setattr(preparation, "_SEGMENTS_SHARE", 0.0)
        return [one.label for one in own._by_segments(engine, candidates, cast(ScheduleProposals, proposals))]


def _programs(engine: Engine) -> list[str]:
    """Those of both workers, which have the same."""
    one, other = engine._pool.call_each(faults.programs, {0: {}, 1: {}}).values()
    assert one == other
    return cast(list[str], one)


def test_the_last_round_replaces_those_before(made: _Made) -> None:
    """Every round follows from nine runs; workers keep the first schedule and the last, which both run."""
    own, engine, _ = made
    proposals = _Proposals()
    assert _rounds(made, proposals) == ["first, by segments, round 3"]
    assert proposals.runs == [9, 9, 9]
    assert _programs(engine) == ["first", "first, by segments, round 3"]
    for name in _programs(engine):
        engine.run(name, own.subject.tensors)
    engine.keep_only("first")
    assert _programs(engine) == ["first"]


def test_a_round_that_fails_leaves_the_last(made: _Made) -> None:
    """The report says why there is no other."""
    own, engine, _ = made
    assert _rounds(made, _Proposals(failing=2)) == ["first, by segments, round 1"]
    assert _programs(engine) == ["first", "first, by segments, round 1"]
    assert [(row.label, row.outcome, row.why) for row in own.absent] == [
        ("first, by segments", "refused", "no such schedule")
    ]
    assert "first" in own.ready


def _large(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [faults.LARGE * tensor for tensor in tensors]


def test_an_operator_that_fails_leaves_the_engine(made: _Made) -> None:
    """In the runs that measure, and in the one that a new schedule is recorded in."""
    own, engine, candidates = made
    small = own.subject.tensors
    own.subject.tensors = _large(small)
    assert _rounds(made, _Proposals()) == []
    assert own.absent[0].why.endswith("too large")
    new, _ = tasks(branches().graph, [*candidates, replace(candidates[0], label="new")], own.subject.divisions, [])
    with pytest.raises(HiosError, match="too large"):
        engine.add("new", new["new"], branches().tensors, Choosing(_large(small), None, 0.0))
    assert _programs(engine) == ["first"]
    own.ready["first"].run(small)


def test_a_worker_that_dies_takes_its_schedules_along(tmp_path: Path) -> None:
    """What the engine can no longer run is not ready, and the error says why."""
    with _engine() as engine:
        made = _prepared(engine, tmp_path)
        os.kill(engine.process_ids[0], signal.SIGKILL)
        with pytest.raises(HiosError, match="died by signal SIGKILL"):
            _rounds(made, _Proposals())
    assert made[0].ready == {}


@pytest.mark.parametrize(("latency_ms", "budget_s"), [(1e6, 600.0), (1e-6, 2.5)])
def test_runs_that_do_not_fit_are_not_begun(
    latency_ms: float,
    budget_s: float,
    made: _Made,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the predicted latency, and by what is left."""
    own, _, candidates = made
    monkeypatch.setattr(Engine, "timeline", None)
    own.budget.seconds = budget_s
    candidates[0] = _candidate("first", alternating(), latency_ms)
    proposals = _Proposals()
    assert _rounds(made, proposals) == proposals.runs == []


def test_runs_end_once_one_is_too_slow(made: _Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten more that take as long as the first do not fit."""
    own, engine, _ = made
    calls, clock = list[str](), SimpleNamespace(now=0.0)

    def slow(name: str, _: Sequence[Tensor]) -> list[Placement]:
        calls.append(name)
        clock.now += 60.0
        return []

    monkeypatch.setattr(engine, "timeline", slow)
    monkeypatch.setattr(preparation.time, "monotonic", lambda: clock.now)  # type: ignore[attr-defined]
    own.budget.began = 0.0
    proposals = _Proposals()
    assert _rounds(made, proposals) == proposals.runs == []
    assert calls == ["first"]
