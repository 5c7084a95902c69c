"""The time that hios.optimize may take, and what no longer fits."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import hios
from hios import HiosError, HiosWarning
from hios.optimizing import preparation, runtimes
from hios.optimizing import report as module
from hios.optimizing.candidates import itself
from hios.optimizing.options import Options
from hios.optimizing.preparation import Preparation, Subject
from hios.optimizing.report import Budget
from hios.optimizing.tracing import Traced
from tests.runtime.small import Branches


def test_steps_are_predicted_by_what_they_took(tmp_path: Path) -> None:
    """A step that took longer than guessed is predicted so the next time, also in another process."""
    with Budget(60.0, "Net", 10, tmp_path) as budget:
        guessed = budget.predicted_s("compile")
        budget.took("compile", 4 * guessed)
    with Budget(60.0, "Net", 10, tmp_path) as again:
        assert again.predicted_s("compile") == pytest.approx(5 * guessed, rel=1e-2)
        assert again.predicted_s("openvino") == Budget(60.0, "Net", 10, None).predicted_s("openvino")
    (tmp_path / "step-times.json").write_text("[")
    assert Budget(60.0, "Net", 10, tmp_path).predicted_s("compile") == guessed


def test_what_does_not_fit_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that take longer than what is left are refused with the numbers, and others are not."""
    monkeypatch.setattr(module.time, "monotonic", lambda: 0.0)  # type: ignore[attr-defined]
    budget = Budget(3.0, "Net", 100, None)
    assert budget.too_short_for("openvino") == ""
    why = budget.too_short_for("compile")
    assert why.startswith("preparing it takes about ")
    assert "of the budget of 3 s (budget_s) only " in why
    assert budget.too_short_for("openvino", keep_s=2.9) != ""


def test_a_short_budget_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a budget that has no time to prepare anything, nothing is exported and the report says why."""
    monkeypatch.setattr(module, "_GUESSES", dict.fromkeys(module._GUESSES, (1000.0, 0.0, 0.0, 0.0)))
    fast = hios.optimize(Branches(), torch.randn(1, 3, 16, 16), cache=tmp_path, least_ms=0.0, budget_s=1.0)
    assert {way.kind for way in fast.report.candidates} <= {"eager"}
    idle = {way.kind: way.why for way in fast.report.ways if way.outcome == "not started"}
    for kind in ("schedule", "openvino", "onnxruntime"):
        assert "budget_s" in idle[kind] or "not installed" in idle[kind]


def test_predictions_know_what_slows_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes on the same cores, slower steps before, and a model that takes long to run make steps longer."""
    monkeypatch.setattr(module, "usable_cores", lambda: [0, 1])
    budget = Budget(60.0, "Net", 10, None)
    alone = budget.predicted_s("extract")
    assert budget.predicted_s("extract", concurrent=1) == alone
    assert budget.predicted_s("extract", concurrent=3) == pytest.approx(2 * alone)
    budget.call_s = 1.0
    assert budget.predicted_s("extract") > alone
    before = budget.predicted_s("extract")
    budget.took("export", 3 * budget.predicted_s("export"))
    assert budget.predicted_s("extract") == pytest.approx(3 * before)
    budget = Budget(60.0, "Net", 10, None)
    budget.took("export", budget.predicted_s("export") / 3)  # what was quicker than expected promises nothing
    assert budget.predicted_s("extract") == alone


def test_predictions_are_for_the_size_of_the_model(tmp_path: Path) -> None:
    """What a step took for a small model says how long it takes for a large one; weights and operators both count."""
    with Budget(60.0, "Net", 100, tmp_path, 10.0) as small:
        small.took("extract", 2 * small.predicted_s("extract"))
    again = Budget(60.0, "Net", 100, tmp_path, 10.0)
    expected = again.predicted_s("extract")
    large, heavy = Budget(60.0, "Net", 1000, tmp_path, 10.0), Budget(60.0, "Net", 100, tmp_path, 1000.0)
    guessed = Budget(60.0, "Net", 1000, None, 10.0)
    assert large.predicted_s("extract") == pytest.approx(2.5 * guessed.predicted_s("extract"), rel=1e-2)
    assert heavy.predicted_s("extract") > expected


def test_one_slow_step_or_a_busy_hour_keeps_nothing_out(tmp_path: Path) -> None:
    """What is quick or can be stopped is begun whatever it took before; the rest is predicted by what is usual."""
    for step in ("export", "openvino", "onnxruntime", "compile"):
        for _ in range(10):
            Budget(60.0, "Net", 10, tmp_path).took(step, 130.0)
        assert Budget(60.0, "Net", 10, tmp_path).too_short_for(step) == ""
    for seconds in (2.0, 200.0, 2.0):
        Budget(60.0, "Net", 10, tmp_path).took("extract", seconds)
    assert Budget(60.0, "Net", 10, tmp_path).predicted_s("extract") == pytest.approx(2.5, rel=1e-2)


def test_what_only_a_busy_hour_keeps_out_is_begun_again(tmp_path: Path) -> None:
    """Steps that cannot be stopped are left out after several slow ones, but not for ever."""
    for _ in range(5):
        Budget(60.0, "Net", 10, tmp_path).took("extract", 100.0)
    refused = [Budget(60.0, "Net", 10, tmp_path).too_short_for("extract") != "" for _ in range(7)]
    assert refused == [True] * 5 + [False] * 2
    for _ in range(5):
        Budget(60.0, "Net", 10, tmp_path).took("extract", 100.0)
    for _ in range(7):  # too short a budget in any case
        assert Budget(1.0, "Net", 10, tmp_path).too_short_for("extract")
    assert Budget(60.0, "Net", 10, tmp_path).too_short_for("extract")


def test_one_slow_step_does_not_stop_the_others() -> None:
    """Steps are predicted to be as slow as those before them in the same run, within reason."""
    budget = Budget(60.0, "Net", 10, None)
    guessed = budget.predicted_s("extract")
    budget.took("export", 100 * budget.predicted_s("export"))
    assert budget.predicted_s("extract") == pytest.approx(3 * guessed)


class _Conversion:
    """A conversion that takes until it is stopped, on a clock of the test."""

    runs, begun, took_s, now_s = True, True, 1.0, 0.0
    events: list[str]

    def __init__(self, kind: str, *_: object) -> None:
        self.kind = kind

    def begin(self, program: Path) -> None:
        """Record that it begins."""
        self.events.append(f"begin {self.kind}")

    def finish(self, deadline: float) -> str:
        """Record that it is waited for."""
        self.events.append(f"finish {self.kind}")
        _Conversion.now_s = deadline + 0.2
        return "not prepared"

    def end(self) -> None:
        """Nothing runs."""


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Preparation]:
    """A preparation whose steps are recorded."""
    monkeypatch.setattr(_Conversion, "events", [], raising=False)
    monkeypatch.setattr(_Conversion, "now_s", 0.0)
    monkeypatch.setattr(preparation, "Conversion", _Conversion)
    monkeypatch.setattr(preparation.runtimes, "missing", lambda kind: "")  # type: ignore[attr-defined]
    monkeypatch.setattr(Preparation, "_in_process", lambda *_: _Conversion.events.append("openvino"))
    monkeypatch.setattr(Preparation, "_extract", lambda *_: _Conversion.events.append("extract"))
    options = Options(devices=1, cache=False)
    subject = Subject(nn.Sequential(nn.Linear(4, 4)).eval(), (torch.ones(1, 4),), {}, options, options.divisions())
    subject.run_once()
    monkeypatch.setattr(module.time, "monotonic", lambda: _Conversion.now_s)  # type: ignore[attr-defined]
    with Budget(60.0, "Net", 2, None) as budget:
        yield Preparation(subject, budget, tmp_path, 1.0, lambda coming: _Conversion.events.append(" ".join(coming)))


@pytest.mark.parametrize("at_once", [False, True])
def test_what_is_quick_to_prepare_comes_first(
    at_once: bool, recorded: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two cores ONNX Runtime is ready before torch.compile and the graph are begun; on more, all begin at once."""
    monkeypatch.setattr(preparation, "usable_cores", lambda: list(range(4 if at_once else 2)))
    monkeypatch.setattr(_Conversion, "finish", lambda self, _: self.events.append(f"finish {self.kind}") or "stopped")
    recorded.prepare()
    first = ["begin onnxruntime", *(["begin compile"] if at_once else []), "openvino", "onnxruntime compile schedule"]
    then = ["finish onnxruntime", *([] if at_once else ["begin compile"]), "extract"]
    assert _Conversion.events == [*first, *then, "finish compile"]


def test_openvino_reads_the_onnx_file_before_ways_take_turns(
    recorded: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once ONNX Runtime has its file, one short race has both; garbage is looked for rarely until all is prepared."""
    thresholds, before = [], gc.get_threshold()

    def load(self: Preparation, kind: str, took: float, threads: int = 0, *, from_onnx: bool = False) -> None:
        _Conversion.events.append(f"load {kind}{' from ONNX' * from_onnx}")
        thresholds.append(gc.get_threshold()[0])

    monkeypatch.setattr(Preparation, "_load", load)
    monkeypatch.setattr(preparation, "usable_cores", lambda: [0, 1])
    monkeypatch.setattr(_Conversion, "finish", lambda self, _: self.events.append(f"finish {self.kind}") or "")
    recorded.prepare()
    began = _Conversion.events.index("finish onnxruntime")
    assert _Conversion.events[began : began + 4] == [
        "finish onnxruntime",
        "load onnxruntime",
        "load openvino from ONNX",
        "compile schedule",
    ]
    assert min(thresholds) >= max(before[0], 500_000)
    assert gc.get_threshold() == before


def test_a_conversion_that_is_stopped_leaves_time_for_schedules(
    recorded: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.compile is stopped so early that schedules, whose graph is there, still fit."""
    graph = Traced(hios.Graph("net", (hios.Operator("a", "relu"),), ()), {})
    monkeypatch.setattr(Preparation, "_extract", lambda self: setattr(self, "traced", graph))

    def proposed(*_: object) -> None:
        raise HiosError("schedules are proposed")

    monkeypatch.setattr(preparation, "ScheduleProposals", proposed)
    recorded.options = Options(devices=1, cache=False, way=("compile", "schedule"))
    with pytest.warns(HiosWarning, match="schedules are proposed"):
        recorded.prepare()
    assert _Conversion.events == ["begin compile", "finish compile"]


@pytest.mark.parametrize(("left_s", "prepared"), [(30.0, {1: 7.0, 2: 8.0}), (0.1, {2: 8.0})])
def test_a_runtime_is_loaded_with_one_thread_too_if_there_is_time(
    left_s: float, prepared: dict[int, float], recorded: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it takes is its own loading after the conversion, not that with all threads; other rows stay as they are."""

    def load(kind: str, path: Path, threads: int, strides: object) -> runtimes.Run:
        _Conversion.now_s += 1.0 + threads
        return lambda tensors: tensors

    monkeypatch.setattr(runtimes, "load", load)
    recorded.everything = [0, 1]
    recorded._add(itself(2), lambda tensors: tensors, 0.0, 0.0)
    recorded._load("openvino", 5.0)
    _Conversion.now_s = recorded.budget.deadline - recorded.reserve_s - left_s
    recorded._load_alone()
    ready = {own.candidate.threads: own.prepare_s for own in recorded.ready.values() if own.candidate.kind != "eager"}
    assert ready == prepared
    rows = [(way.label, way.outcome) for way in recorded.absent]
    assert rows == ([] if 1 in prepared else [("OpenVINO, 1 thread", "not started")])
