"""The trace of lanes and requests."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path

import pytest

pytest.importorskip("torch")
from hios.serving.admission import LiveTask
from hios.serving.instances import LiveRun
from hios.serving.lane import Answer
from hios.serving.lane_trace import LaneTrace
from tests.serving.scenarios import scenario, served


def test_a_long_trace_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the most entries, nothing is added, and the trace says how much is left out."""
    monkeypatch.setattr(LaneTrace, "_MOST", 10)
    trace = LaneTrace(scenario(served("one", [[1.0]], 10.0)))
    trace.begin(recording=True)
    for number in range(1, 5):
        assert (trace.cut == "") == (number < 4)
        run = LiveRun(number, 0, 1, ((0, 0),), (LiveTask(0, (), Future(), 0.0, number=number),), 0.0)
        trace.add(0, run, (0,), Answer(number, False, 0, 1000, 2000, ""))
        if number == 3:
            trace.add_unserved(0, 0.0, 1.0, "dropped")
    trace.write(tmp_path / "trace.json", "title")
    contents = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert contents["otherData"]["left out"] == "3 runs and requests are left out, after the first 10 entries"
    assert sum(event["ph"] == "X" for event in contents["traceEvents"]) == 2
