"""Shared by figures over batch sizes: each schedule with the batch sizes that it was made for and ran with."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from hios.charts import marks
from hios.study import network_runs as runs
from hios.study.figure_data import FigureData

if TYPE_CHECKING:
    import altair as alt

    from hios.study.registry import Row, Rows

_MS_PER_S = 1000.0
_LABEL = re.compile(r"(?P<network>.+)-b(?P<batch>[0-9]+)")
_MADE_FOR = re.compile(r".+-for-b(?P<batch>[0-9]+)")


def batch_rows(data: FigureData, algorithms: Collection[str], references: Collection[str] = ()) -> Rows:
    """A row for every network, batch size, schedule and mark.

    Args:
        data: with the session batches.
        algorithms: names in the registry.
        references: other ways to run the networks, as run.json names them.
    """
    session = FigureData(networks=data.variants.get("batches", {}))
    rows = runs.schedule_rows(session, algorithms, devices=1)
    if references:
        rows += runs.reference_rows(session, references)
    return [with_batch(row) for row in rows]


def with_batch(row: Row) -> Row:
    """A row of a network of the session, whose label names the batch size, with columns for it and the throughput."""
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


def throughput_chart(rows: Rows) -> alt.TopLevelMixin:
    """Images a second over the batch size, a line for every network and algorithm."""
    import altair as alt

    shown = [
        {
            **row,
            "series": f"{row['network']}, {row['algorithm']}",
            "description": f"{row['algorithm']}, batch {row['batch']}: {row['images a s']:.3g} a second, {row['mark']}",
        }
        for row in rows
        if row["images a s"] is not None
    ]
    x = alt.X("batch:Q", axis=alt.Axis(values=sorted({row["batch"] for row in rows})))
    drawn: alt.TopLevelMixin = marks.lines(
        shown, x=x, y=alt.Y("images a s:Q", title="images a second"), series="series"
    )
    return drawn
