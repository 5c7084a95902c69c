"""Schedules by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hios import Placement, Schedule

#: Operator, device, stream, stage, start and finish in milliseconds.
Row = tuple[str, int, int, int | None, float, float]


def made(rows: Sequence[Row], **fields: Any) -> Schedule:
    """A schedule from its rows; the latency is the last finish, the bound nothing, unless they are given."""
    known: dict[str, Any] = {
        "algorithm": "by hand",
        "parameters": {},
        "devices": 1,
        "latency_ms": float(max(finish for *_, finish in rows)),
        "lower_bound_ms": 0.0,
        "scheduling_time_s": 0.0,
    }
    placements = tuple(
        Placement(operator, device, stream, stage, float(start), float(finish))
        for operator, device, stream, stage, start, finish in rows
    )
    return Schedule(**{**known, **fields}, placements=placements)
