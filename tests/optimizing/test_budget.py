"""The time that hios.optimize may take, and what no longer fits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import hios
from hios.optimizing import report as module
from hios.optimizing.report import Budget
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


def test_what_does_not_fit_is_not_begun() -> None:
    """Steps that take longer than what is left are refused with the numbers, and others are not."""
    budget = Budget(3.0, "Net", 100, None)
    assert budget.too_short_for("openvino") == "" or budget.left_s < 3
    why = budget.too_short_for("compile")
    assert why.startswith("preparing it takes about ")
    assert "of the budget of 3 s (budget_s) only " in why
    assert budget.too_short_for("openvino", keep_s=2.9) != ""


def test_a_short_budget_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a budget that has no time to prepare anything, nothing is exported and the report says why."""
    monkeypatch.setattr(module, "_GUESSES", dict.fromkeys(module._GUESSES, (1000.0, 0.0, 0.0)))
    fast = hios.optimize(Branches(), torch.randn(1, 3, 16, 16), cache=tmp_path, least_ms=0.0, budget_s=1.0)
    assert {way.kind for way in fast.report.candidates} <= {"eager"}
    idle = {way.kind: way.why for way in fast.report.ways if way.outcome == "not started"}
    assert set(idle) >= {"schedule", "openvino", "onnxruntime"}
    assert all("budget_s" in why or "not installed" in why for why in idle.values())


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
