"""Tidy tables of figures: a row is a dictionary by column, and rows of a chart name their mark in the column `mark`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hios.charts import marks

#: A row of a tidy table, by column.
Row = dict[str, Any]
Rows = list[Row]


def grouped(rows: Rows, column: str | Callable[[Row], Any]) -> dict[Any, Rows]:
    """Rows by the value of a column, or of a function of them, in the order in which values first occur."""
    groups: dict[Any, Rows] = {}
    for row in rows:
        groups.setdefault(row[column] if isinstance(column, str) else column(row), []).append(row)
    return groups


def measured(rows: Rows) -> Rows:
    """The rows that were measured."""
    return [row for row in rows if row["mark"] == marks.MEASURED.name]


def predicted(rows: Rows) -> Rows:
    """The rows that were predicted."""
    return [row for row in rows if row["mark"] == marks.PREDICTED.name]
