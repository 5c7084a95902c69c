"""What figures over batch sizes have in common: each schedule with the batch that it was made for and runs with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hios.study import network_runs as runs
from hios.study.figure_data import FigureData

if TYPE_CHECKING:
    from hios.study.registry import Row, Rows

_MS_PER_S = 1000.0
_LABEL = re.compile(r"(?P<network>.+)-b(?P<batch>[0-9]+)")
_MADE_FOR = re.compile(r".+-for-b(?P<batch>[0-9]+)")


def batch_rows(data: FigureData) -> Rows:
    """A row for every network, batch size, schedule and mark."""
    session = data.variants.get("batches", {})
    return [_row(row) for row in runs.schedule_rows(FigureData(networks=session), ("sequential", "ios"), devices=1)]


def _row(row: Row) -> Row:
    label = _LABEL.fullmatch(row["network"])
    network, batch = (label["network"], int(label["batch"])) if label else (row["network"], 1)
    other = _MADE_FOR.fullmatch(row["schedule"])
    made_for = int(other["batch"]) if other else batch
    more = {
        "batch": batch,
        "made for batch": made_for,
        "images a s": _MS_PER_S * batch / row["ms"] if row["ms"] else None,
    }
    return {**row, "network": network, **more}
