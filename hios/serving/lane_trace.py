"""What ran on which lane, and every request that ran, as a Chrome trace for Perfetto or chrome://tracing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hios.files.artifacts import write_whole
from hios.serving.instances import LiveRun
from hios.serving.lane import Answer
from hios.serving.scenario import Scenario

#: Processes of the trace: lanes with a thread each, and requests with a thread for each model.
_LANES, _REQUESTS = 0, 1


@dataclass
class _TracedRequest:
    """A request that ran: by block, when it began and ended, on any lane."""

    model: int
    arrived_ns: int
    blocks: dict[int, tuple[int, int]] = field(default_factory=dict)
    failed: bool = False


class LaneTrace:
    """Runs of blocks by lane and by request, up to so many that a viewer still opens the file."""

    _MOST = 100_000

    def __init__(self, scenario: Scenario) -> None:
        self._labels, self._lanes = [model.label for model in scenario.models], scenario.lanes
        self._events: list[dict[str, Any]] = []
        self._requests: dict[int, _TracedRequest] = {}
        self._unserved: list[dict[str, Any]] = []
        self._size = self._left_out = 0
        self._recording = False
        self._begin_ns = 0

    def begin(self, *, recording: bool) -> None:
        """Begin a repeat; only some repeats are recorded."""
        self._recording = recording
        if recording:
            self._begin_ns = time.perf_counter_ns()

    def add(self, lane: int, run: LiveRun, places: tuple[int, ...], answer: Answer) -> None:
        """Record a run of a lane; called by the server."""
        if not self._recording or self._is_full():
            return
        members = [run.members[place] for place in places]
        event = self._event("X", " + ".join(f"{self._labels[model]} {block}" for model, block in members), _LANES, lane)
        self._events.append(
            {
                **event,
                "cat": "failed" if answer.failed or answer.aborted else "run",
                "ts": self._us(answer.began_ns),
                "dur": (answer.ended_ns - answer.began_ns) / 1e3,
                "args": {
                    "run": run.number,
                    "combined block": run.combined,
                    "requests": [run.tasks[place].number for place in places],
                },
            }
        )
        self._size += 1 + 2 * len(places)
        for bit, (place, (model, block)) in enumerate(zip(places, members, strict=True)):
            task = run.tasks[place]
            self._size += 0 if task.number in self._requests else 4
            request = self._requests.setdefault(task.number, _TracedRequest(model, round(task.arrived_s * 1e9)))
            began, ended = request.blocks.get(block, (answer.began_ns, answer.ended_ns))
            request.failed |= answer.aborted or bool(answer.failed >> bit & 1)
            request.blocks[block] = min(began, answer.began_ns), max(ended, answer.ended_ns)

    def add_unserved(self, model: int, arrived_s: float, ended_s: float, why: str) -> None:
        """Record a request that did not run, as it was dropped or expired; times are those of ``time.perf_counter``."""
        if not self._recording or self._is_full():
            return
        number = f"{why} {len(self._unserved)}"
        for phase, at_s in (("b", arrived_s), ("e", ended_s)):
            event = self._event(phase, f"{self._labels[model]} {why}", _REQUESTS, model)
            self._unserved.append({**event, "cat": why, "id": number, "ts": self._us(round(at_s * 1e9))})
        self._size += 2

    def _is_full(self) -> bool:
        """Whether there is no room for more, which then is counted."""
        self._left_out += self._size >= self._MOST
        return self._size >= self._MOST

    @property
    def cut(self) -> str:
        """What is not in the trace, in words; empty if all is."""
        if not self._left_out:
            return ""
        return f"{self._left_out:,} runs and requests are left out, after the first {self._MOST:,} entries"

    def write(self, path: str | Path, title: str) -> None:
        """Write the trace: a slice for each block on its lane, and for each request, with its wait and its blocks."""
        lanes = sorted({event["tid"] for event in self._events})
        names = [
            {"ph": "M", "name": "process_name", "pid": _LANES, "args": {"name": "lanes"}},
            {"ph": "M", "name": "process_name", "pid": _REQUESTS, "args": {"name": "requests"}},
            *(self._name(_LANES, lane, f"lane {lane}" if lane < self._lanes else "all lanes") for lane in lanes),
            *(self._name(_REQUESTS, model, label) for model, label in enumerate(self._labels)),
        ]
        slices = [event for number, request in self._requests.items() for event in self._slices(number, request)]
        document = {
            "displayTimeUnit": "ms",
            "otherData": {"title": title, **({"left out": self.cut} if self.cut else {})},
            "traceEvents": [*names, *self._events, *slices, *self._unserved],
        }
        write_whole(path, json.dumps(document) + "\n")

    def _slices(self, number: int, request: _TracedRequest) -> Iterator[dict[str, Any]]:
        """A request from its arrival to the end of its last block; within it the wait before the first, and each."""
        blocks = sorted(request.blocks.items())
        begin, end = min(began for _, (began, _) in blocks), max(ended for _, (_, ended) in blocks)
        spans = [
            (f"{self._labels[request.model]} {number}", request.arrived_ns, end),
            ("waits", request.arrived_ns, begin),
            *((f"block {block}", *span) for block, span in blocks),
        ]
        for name, began, ended in spans:
            for phase, at_ns in (("b", began), ("e", ended)):
                event = self._event(phase, name, _REQUESTS, request.model)
                yield {**event, "cat": "failed" if request.failed else "request", "id": number, "ts": self._us(at_ns)}

    def _us(self, at_ns: int) -> float:
        return (at_ns - self._begin_ns) / 1e3

    @staticmethod
    def _event(phase: str, name: str, process: int, thread: int) -> dict[str, Any]:
        return {"ph": phase, "name": name, "pid": process, "tid": thread}

    @classmethod
    def _name(cls, process: int, thread: int, name: str) -> dict[str, Any]:
        return {**cls._event("M", "thread_name", process, thread), "args": {"name": name}}
