"""A run as a Chrome trace, for Perfetto or chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from hios.core.graph import Graph
from hios.core.schedule import Placement, merged_rows
from hios.files.artifacts import replacing


def write_trace(path: str | Path, title: str, graph: Graph, placements: Sequence[Placement]) -> None:
    """Write a process per device, a thread per stream, and a slice per operator on each of its devices.

    Operators of a stream that ran merged into one have one slice. Times of placements are measured milliseconds from
    the start of the run.
    """
    type_of = {operator.id: operator.type for operator in graph.operators}
    lanes = sorted({(device, row.stream) for row in placements for device in row.held_devices})
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": device, "tid": 0, "args": {"name": f"device {device}"}}
        for device in sorted({device for device, _ in lanes})
    ]
    events += [
        {"ph": "M", "name": "thread_name", "pid": device, "tid": stream, "args": {"name": f"stream {stream}"}}
        for device, stream in lanes
    ]
    events += [
        {
            "ph": "X",
            "name": " + ".join(member.operator for member in group),
            "cat": type_of[row.operator],
            "pid": device,
            "tid": row.stream,
            "ts": row.start_ms * 1e3,
            "dur": (row.finish_ms - row.start_ms) * 1e3,
            "args": {"stage": row.stage, "type": type_of[row.operator], "width": len(row.held_devices)},
        }
        for group in merged_rows(placements)
        for row in group[:1]
        for device in row.held_devices
    ]
    document = {"displayTimeUnit": "ms", "otherData": {"title": title}, "traceEvents": events}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(document) + "\n", encoding="utf-8")
