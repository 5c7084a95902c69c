"""The tables of a report as files: CSV in full, LaTeX of what a paper shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hios.charts.latex import latex_document
from hios.csv_tables import csv_text

if TYPE_CHECKING:
    import pandas as pd

#: Columns of latency.tex and operators.tex: those of the CSV files that a paper shows, with their heads.
_LATEX_LATENCY = {
    "model": "model",
    "label": "schedule or reference",
    "devices": "devices",
    "measured_median_ms": "median, ms",
    "measured_p20_ms": "p20, ms",
    "measured_p80_ms": "p80, ms",
    "speedup": "speedup",
    "predicted_ms": "predicted, ms",
    "prediction_error": "error",
    "predicted_lower_bound_ms": "lower bound, ms",
}
_LATEX_OPERATORS = {
    "model": "model",
    "operator": "operator",
    "type": "type",
    "time_ms": "time, ms",
    "flops": "FLOP",
    "bytes": "bytes",
}


#: The files that `table_files` makes.
TABLES = ("latency.csv", "operators.csv", "latency.tex", "operators.tex")


def table_files(latencies: pd.DataFrame, operators: pd.DataFrame) -> dict[str, str]:
    """The files of the two tables, by name: CSV in full, and LaTeX of what a paper shows of them."""
    tables = (_csv(latencies), _csv(operators), latency_latex(latencies), operators_latex(operators))
    return dict(zip(TABLES, tables, strict=True))


def _csv(frame: pd.DataFrame) -> str:
    """A table as CSV; absent values are empty fields."""
    return csv_text(list(frame.columns), frame.where(frame.notna(), None).to_dict("records"))


def latency_latex(frame: pd.DataFrame) -> str:
    """latency.tex: the rows of latency.csv with four digits."""
    caption = (
        "Latency of every schedule and reference, measured and predicted; error is predicted over measured less 1."
    )
    return latex_document(_rounded(frame, _LATEX_LATENCY), caption, "tab:latency")


def operators_latex(frame: pd.DataFrame) -> str:
    """operators.tex: the rows of operators.csv with four digits."""
    caption = "Operators of every model, each alone on one device; a multiply-add counts as two FLOP."
    return latex_document(_rounded(frame, _LATEX_OPERATORS), caption, "tab:operators")


def _rounded(frame: pd.DataFrame, heads: Mapping[str, str]) -> pd.DataFrame:
    shown = frame[list(heads)].rename(columns=heads).astype("object")
    return shown.map(lambda value: float(f"{value:.4g}") if isinstance(value, float) else value)
