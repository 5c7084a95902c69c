"""What ran on which lane, as a Chrome trace, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
import time
from pathlib import Path

from hios.artifacts import replacing
from hios.serving.instances import Run
from hios.serving.lane import Answer
from hios.serving.scenario import Scenario


class LaneTrace:
    """Runs of blocks by lane, up to so many that a viewer still opens the file.

    Args:
        scenario: whose models are served.
    """

    _MOST = 200_000

    def __init__(self, scenario: Scenario) -> None:
        self._labels = [model.label for model in scenario.models]
        self._events: list[dict[str, object]] = []
        self._recording = False
        self._begin_ns = 0

    def begin(self, *, recording: bool) -> None:
        """Begin a repeat; only some repeats are recorded."""
        self._recording = recording
        if recording:
            self._begin_ns = time.perf_counter_ns()

    def add(self, lane: int, run: Run, places: tuple[int, ...], answer: Answer) -> None:
        """Record a run of a lane; called by the server."""
        if not self._recording or len(self._events) >= self._MOST:
            return
        blocks = [f"{self._labels[model]} {block}" for model, block in (run.members[place] for place in places)]
        self._events.append(
            {
                "ph": "X",
                "name": " + ".join(blocks),
                "cat": "failed" if answer.failed or answer.aborted else "run",
                "pid": 0,
                "tid": lane,
                "ts": (answer.began_ns - self._begin_ns) / 1e3,
                "dur": (answer.ended_ns - answer.began_ns) / 1e3,
                "args": {"run": run.number, "combined block": run.combined},
            }
        )

    def write(self, path: str | Path, title: str) -> None:
        """Write the trace, with a thread for each lane and a slice for each block."""
        lanes = sorted({int(str(event["tid"])) for event in self._events})
        names: list[dict[str, object]] = [
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": lane, "args": {"name": f"lane {lane}"}}
            for lane in lanes
        ]
        document = {
            "displayTimeUnit": "ms",
            "otherData": {"title": title},
            "traceEvents": [*names, *self._events],
        }
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(document) + "\n", encoding="utf-8")
