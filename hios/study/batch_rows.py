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
    network, batch, made_for = batches_of(row["network"], row["schedule"])
    more = {
        "batch": batch,
        "made for batch": made_for,
        "images a s": _MS_PER_S * batch / row["ms"] if row["ms"] else None,
    }
    return {**row, "network": network, **more}


def batches_of(label: str, schedule: str) -> tuple[str, int, int]:
    """A network, the batch size that it runs with, and the one that a schedule was made for.

    Args:
        label: of the network in the session, such as ``inception_v3-b4``.
        schedule: its label, such as ``ios-1``, or ``ios-for-b1``.
    """
    own, other = _LABEL.fullmatch(label), _MADE_FOR.fullmatch(schedule)
    network, batch = (own["network"], int(own["batch"])) if own else (label, 1)
    return network, batch, int(other["batch"]) if other else batch
