"""Pieces of benchmarks/serving_comparison.py that need no server."""

from __future__ import annotations

import importlib

import pytest

pytest.importorskip("torch")
pytest.importorskip("aiohttp")
from tests.scripts import ROOT


def test_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The goals are for hios beside the best of the others; what nobody could reach is said to be so."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")  # as for a script
    script = importlib.import_module("serving_comparison")

    def row(worst: float, goodput: float) -> dict[str, float]:
        return {"worst %": worst, "goodput/s": goodput, "offered/s": 10.0}

    assert script.best_setup([row(60, 9), row(70, 8)]) == row(70, 8)
    table = {
        "0.8": {"hios": row(90, 9), "ray": row(60, 8), "pytriton": row(50, 9)},
        "1": {"hios": row(50, 9), "ray": row(60, 8)},
        "1.5": {"hios": row(50, 8), "ray": row(60, 2)},
    }
    lines = script.goals(table)
    assert lines[:3] == [
        "hios, load 0.8, worst %: met: 1.50 times ray (goal: 1.3)",
        "hios, load 0.8, goodput/s: MISSED: 1.00 times pytriton (goal: 1.3); no server could: 9 of 10 are there "
        "already",
        "hios, load 1, worst %: MISSED: 0.83 times ray (goal: 0.98)",
    ]
    assert lines[-2:] == [
        "hios: goodput at 1.5 is 89% of that at 1 (goal of hios: 90%)",
        "ray: goodput at 1.5 is 25% of that at 1 (goal of hios: 90%)",
    ]
