"""What people see: the report of a run, one schedule by itself, and the algorithms.

    predictions what a report is made from where nothing was run: graph.json, costs.json and schedules of every model
    results     what a report is made from: run.json, graph.json and costs.json of every model
    tables      rows and CSV files
    dataframes  results as pandas data frames
    hardware    cores or GPUs, in words
    costs       what predictions rest on, in words
    facts       what was run and how far it can be trusted, in words
    colours     one colour an operator type, the same on the whole page
    lanes       the streams of all devices, from top to bottom
    axes        the look of plotly figures
    charts      the latencies of a model as a figure
    gantt       Gantt charts as figures
    prediction_page  the page of predictions
    page        HTML pages, from the templates beside it
    labels      short names of operators
    layering    layered drawing of a directed acyclic graph
    frames      every block of a graph drawn by itself
    floorplan   where the frames of a picture stand, and the lines between them
    picture     where everything of the picture of a graph stands
    captions    the words of a picture
    drawing     a picture as SVG
    filling     pages from templates
    summary     what one schedule says about itself, in words
    terminal    one schedule as text
    algorithms  the registry of algorithms in words

Plotly is loaded by axes, charts, gantt and page, Jinja2 by filling, pandas by dataframes and for tables, and none of
them by anything else in hios: what prints text or draws an SVG needs none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hios import artifacts
from hios.errors import ArtifactError
from hios.graph import Graph
from hios.report.predictions import ModelPredictions, is_predicted, read_predictions
from hios.report.results import ModelResults, read_results
from hios.report.tables import (
    LATENCY_COLUMNS,
    OPERATOR_COLUMNS,
    csv_text,
    latency_rows,
    operator_rows,
    prediction_rows,
    table,
)
from hios.schedule import Schedule

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Report", "report_of", "report_of_predictions", "write_picture", "write_report", "write_schedule"]


def write_report(directories: Sequence[Path], output: Path, tables: Path, schedules: Sequence[str] = ()) -> None:
    """Write the page and its tables; each file appears whole, by rename.

    Args:
        directories: results folders, one a model, each with run.json, graph.json and costs.json; or, where costs are
            predicted, with graph.json, costs.json and the schedules in schedules/.
        output: the HTML page, self-contained: it loads nothing from elsewhere.
        tables: folder for ``latency.csv`` (a row per model and schedule, and the references) and
            ``operators.csv`` (a row per operator); times in milliseconds unless the column says otherwise.
        schedules: labels of the predicted schedules to show, the names of their files; all of the folder if none.

    Raises:
        ArtifactError: some folders hold predictions and some runs, an output cannot be written, or a file is missing,
            damaged or does not fit the others of its folder; then nothing is written.
    """
    latency, operators = Path(tables) / "latency.csv", Path(tables) / "operators.csv"
    for path in (output, latency, operators):
        artifacts.require_writable(path)
    if Path(output).resolve() in (latency.resolve(), operators.resolve()):
        raise ArtifactError(f"{output}: named for the page, and it is the place of a table; name another")
    # All of it first: bad input must not leave a new page beside old tables.
    made = _read(list(map(Path, directories)), schedules)
    made.write(output)
    _write(latency, csv_text(made.latencies))
    _write(operators, csv_text(made.operators))


@dataclass(frozen=True)
class Report:
    """A report of one or several networks.

    Attributes:
        html: the page, self-contained: it loads nothing from elsewhere. Notebooks show it in a frame.
        latencies: latency.csv as a data frame, a row per model and schedule, and the references.
        operators: operators.csv as a data frame, a row per operator.
    """

    html: str
    latencies: pd.DataFrame
    operators: pd.DataFrame

    def write(self, path: str | Path) -> None:
        """Write the page; the file appears whole, by rename.

        Raises:
            ArtifactError: it cannot be written.
        """
        _write(path, self.html)


def _read(directories: Sequence[Path], schedules: Sequence[str]) -> Report:
    """The report of results folders, of runs or of predictions."""
    predicted = [directory for directory in directories if is_predicted(directory)]
    if not predicted:
        if schedules:
            raise ArtifactError(
                f"--schedule: found {schedules[0]}; allowed: for predictions, as run.json states what ran"
            )
        return report_of(read_results(directories))
    if others := [directory for directory in directories if directory not in predicted]:
        raise ArtifactError(
            f"report: found predictions in {predicted[0]}, none in {others[0]}; allowed: only predictions, or only runs"
        )
    return report_of_predictions(read_predictions(directories, schedules))


def report_of_predictions(models: Sequence[ModelPredictions]) -> Report:
    """The report of networks of which nothing was run, in this order."""
    from hios.report.prediction_page import render_predictions

    rows = [row for model in models for row in prediction_rows(model.name, model.schedules, model.costs)]
    return Report(render_predictions(models), table(LATENCY_COLUMNS, rows), _operators(models))


def report_of(models: Sequence[ModelResults]) -> Report:
    """The report of networks that were executed, in this order."""
    from hios.report.page import render

    return Report(
        render(models),
        table(LATENCY_COLUMNS, [row for model in models for row in latency_rows(model)]),
        _operators(models),
    )


def _operators(models: Sequence[ModelResults | ModelPredictions]) -> pd.DataFrame:
    rows = [row for model in models for row in operator_rows(model.name, model.graph, model.costs)]
    return table(OPERATOR_COLUMNS, rows)


def _write(path: str | Path, text: str) -> None:
    with artifacts.replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def write_schedule(schedule: Schedule, output: Path, types: Mapping[str, str]) -> None:
    """Write a page with the Gantt chart of one schedule, self-contained like the report.

    Args:
        schedule: what schedule.json holds.
        output: the HTML page.
        types: type of every operator, for colours; empty if unknown.

    Raises:
        ArtifactError: the page cannot be written.
    """
    artifacts.require_writable(output)
    from hios.report.page import render_schedule

    text = render_schedule(schedule, types)
    with artifacts.replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def write_picture(graph: Graph, output: Path) -> str:
    """Write the picture of a graph by blocks, coloured by operator type, the most frequent type first.

    Args:
        graph: with blocks or without.
        output: ``.svg``, or ``.html`` for a page to zoom and to follow lines, self-contained like the report.

    Returns:
        What was drawn and how large it is, in words.

    Raises:
        ArtifactError: the file cannot be written or is neither; the blocks cannot be read one after another.
    """
    suffix = Path(output).suffix.lower()
    if suffix not in (".svg", ".html"):
        raise ArtifactError(f"{output}: found the suffix {suffix or 'none'}; allowed: .svg, .html")
    artifacts.require_writable(output)
    from hios.report.captions import counts, size, words
    from hios.report.colours import ranked_styles
    from hios.report.drawing import svg, svg_file
    from hios.report.picture import lay_out

    picture = lay_out(graph)
    styles = ranked_styles(Counter(operator.type for operator in graph.operators))
    if suffix == ".svg":
        text = svg_file(picture, styles)
    else:
        from hios.report.filling import filled

        view = {**words(picture), "svg": svg(picture, styles)}
        text = filled("graph.html.j2", {"name": graph.name, "picture": view, "legend": counts(picture, styles)})
    with artifacts.replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
    return f"{size(picture)}; {picture.plan.width:.0f} x {picture.plan.height:.0f} pixels"
