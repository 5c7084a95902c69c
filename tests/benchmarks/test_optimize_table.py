"""The table of all ways to run the networks, and the starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import optimize_gain
from benchmarks.optimize_gain import Start, starts, table
from hios.optimizing.report import Report, WayReport


def _report(chosen: str, **medians: float) -> Report:
    ways = [
        WayReport(label, "eager" if label == "a" else "compile", median_ms=median, ready_s=float(number))
        for number, (label, median) in enumerate(medians.items(), 2)
    ]
    slow = WayReport("slow", "compile", "slower", median_ms=99.0)
    absent = WayReport("absent", "openvino", "not started", "no time")
    return Report("Net", chosen, "because", (*ways, slow, absent), seconds=9.0)


def test_networks_of_many_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of the script beside it are taken by name."""
    monkeypatch.syspath_prepend(Path(optimize_gain.__file__).parent)  # as for a script
    model, (x,) = optimize_gain.built("mlps-32")
    assert model(x).shape == (32, 16 * 256)


def test_table() -> None:
    """A column a network: medians of every way, those that left early in brackets, and the kept one's ratio."""
    assert table({"one": _report("b", a=10.0, b=5.1, c=5.0), "two": _report("a", a=20.0)}).splitlines() == [
        "| ms | one | two |",
        "| --- | ---: | ---: |",
        "| a | 10.0 | 20.0 |",
        "| b | 5.1 |  |",
        "| c | 5.0 |  |",
        "| slow | (99.0) | (99.0) |",
        "| kept | b | a |",
        "| kept over the fastest | 1.020 | 1.000 |",
        "| seconds until 80 % of the gain | 3.0 |  |",
        "| seconds in all | 9.0 | 9.0 |",
    ]


@pytest.mark.parametrize("kept", [True, False])
def test_starts(kept: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A start counts as one from the cache only if the choice came from there."""
    known: set[str] = set()

    def started(name: str, cache: str, **options: object) -> Start:
        first = cache not in known
        known.add(cache)
        return Start(9.0 if first else 1.5, 0.25, "ONNX Runtime", kept and not first)

    monkeypatch.setattr(optimize_gain, "started", started)
    monkeypatch.setattr(optimize_gain, "busy_share", lambda cores: 0.02)
    starts("net")
    lines = capsys.readouterr().out.splitlines()
    cached = "1.5 s, ONNX Runtime, first call 0.25 s" if kept else "none, as no choice was kept; run this on an idle"
    assert lines[0] == "net: cores 2% busy with other work before"
    assert lines[1] == "net: first start, default budget: 9.0 s, ONNX Runtime, first call 0.25 s"
    assert lines[2].startswith(f"net: from the cache: {cached}")
    assert lines[3].startswith(f"net: from the cache, the model itself: {cached}")
    assert lines[4].startswith("net: first start, budget of 3 s: 9.0 s")
