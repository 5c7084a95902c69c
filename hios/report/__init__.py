"""The report: one page that opens offline, and the tables behind it.

    results    what is read: run.json, graph.json and costs.json of every model
    tables     rows and CSV files
    colours    one colour an operator type, the same on the whole page
    charts     plotly figures
    page       the HTML page, from the templates beside it

Plotly and Jinja2 are loaded here and nowhere else in hios.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hios import artifacts
from hios.report.page import render
from hios.report.results import read_results
from hios.report.tables import LATENCY_COLUMNS, OPERATOR_COLUMNS, csv_text, latency_rows, operator_rows

__all__ = ["write_report"]


def write_report(directories: Sequence[Path], output: Path, tables: Path) -> None:
    """Write the page and its tables; each file appears whole, by rename.

    Args:
        directories: results folders, one a model, each with run.json, graph.json and costs.json.
        output: the HTML page, self-contained: it loads nothing from elsewhere.
        tables: folder for ``latency.csv`` (a row per model and schedule, and the references) and
            ``operators.csv`` (a row per operator); times in milliseconds unless the column says otherwise.

    Raises:
        ArtifactError: a file is missing, damaged or does not fit the others of its folder; then nothing is
            written.
    """
    models = read_results(directories)
    # All texts first: bad input must not leave a new page beside old tables.
    texts = {
        Path(output): render(models),
        Path(tables) / "latency.csv": csv_text(
            LATENCY_COLUMNS, [row for model in models for row in latency_rows(model)]
        ),
        Path(tables) / "operators.csv": csv_text(
            OPERATOR_COLUMNS, [row for model in models for row in operator_rows(model)]
        ),
    }
    for path, text in texts.items():
        with artifacts.replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="")
