"""Output for readers: the report of a run, the page of a single schedule, and the list of algorithms.

    results                   what a report is made from: files of runs and of predictions, and their environment
    tables, dataframes        rows, CSV and LaTeX files; results as pandas data frames
    statements                the same in words, with numbers from the data; what predictions are based on
    serving_results           several models on one device: tables and charts of policies
    charts                    Gantt charts and the chart of latencies, by Altair in the look of `hios.charts`
    page                      HTML from the templates beside it, drawn by several processes; what a large one leaves out
    archive                   all that a page was made from as one file, and the page made again from it
    graph_layout, graph_boxes, graph_svg    the picture of a graph; names that fit boxes and bars
    terminal                  one schedule as text
    algorithm_listing         the registry of algorithms in words

Altair, Jinja2 and pandas are loaded by charts, pages and tables, and by nothing else in hios: what prints text or draws
a graph needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hios.core.graph import Graph
from hios.core.schedule import Schedule
from hios.errors import ArtifactError
from hios.files import artifacts
from hios.report.results import (
    NOT_RECORDED,
    ModelPredictions,
    ModelResults,
    Provenance,
    is_predicted,
    papers_page,
    read_predictions,
    read_results,
)
from hios.report.serving_results import ServedScenario, read_serving
from hios.report.tables import (
    LATENCY_COLUMNS,
    OPERATOR_COLUMNS,
    TABLES,
    View,
    latency_rows,
    operator_rows,
    prediction_rows,
    table,
    table_files,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Report",
    "report_of",
    "report_of_predictions",
    "write_papers",
    "write_picture",
    "write_report",
    "write_schedule",
]


def write_report(
    directories: Sequence[Path],
    output: Path,
    tables: Path,
    schedules: Sequence[str] = (),
    provenance: Provenance = NOT_RECORDED,
    papers: View | None = None,
    serving: Path | None = None,
    served: Sequence[str] = (),
    processes: int = 1,
) -> None:
    """Write the page and its tables; each file appears whole, by rename.

    Args:
        directories: results folders, one a model, each with run.json, graph.json and costs.json; or, where costs are
            predicted, with graph.json, costs.json and the schedules in schedules/.
        output: the HTML page, self-contained: it loads nothing from elsewhere.
        tables: folder for ``latency.csv`` (a row per model and schedule, and the references) and
            ``operators.csv`` (a row per operator); times in milliseconds unless the column says otherwise. Beside them
            ``latency.tex`` and ``operators.tex``, rounded, as LaTeX documents.
        schedules: labels of the predicted schedules to show, the names of their files; all of the folder if none.
        provenance: the command and the configuration behind the page, which shows them.
        papers: what a page beside this one, papers.html or NAME-papers.html, shows of the papers' figures, see
            `hios.study.page_part`; None for no such page.
        serving: folder of serving results, as the pipeline writes them, for the page to show; None for none.
        served: results in that folder to show, SCENARIO/simulated/POLICY-LOAD.json; all of the folder if none.
        processes: the most that may draw at once, where there are many networks.

    Raises:
        ArtifactError: some folders hold predictions and some runs, an output cannot be written, or a file is missing,
            damaged or does not fit the others of its folder; then nothing is written.
    """
    places = {name: Path(tables) / name for name in TABLES}
    beside = dict.fromkeys(places.values(), "a table")
    second = papers_page(output)
    if papers is not None:
        papers = {**papers, "address": second.name}
        beside[second] = "the page of the papers"
    for path in (output, *beside):
        artifacts.require_writable(path)
    for path, what in beside.items():
        if path.resolve() == Path(output).resolve():
            raise ArtifactError(f"{output}: named for the page, and it is the place of {what}; name another")
    # Make everything before writing: bad input must not leave a new page next to old tables.
    scenarios = [] if serving is None else read_serving(serving, served)
    made = _read(list(map(Path, directories)), schedules, provenance, papers, scenarios, processes)
    if papers is not None:
        write_papers(output, papers)
    made.write(output)
    for name, text in made.files().items():
        artifacts.write_whole(places[name], text)


def write_papers(report: Path, papers: View) -> Path:
    """Write the page of the papers beside that of a report; its path, or an `ArtifactError` if it cannot be written."""
    from hios.report.page import render_papers

    page = papers_page(report)
    artifacts.require_writable(page)
    artifacts.write_whole(page, render_papers(papers, Path(report).name))
    return page


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
    _files: Mapping[str, str] | None = field(default=None, repr=False, compare=False)

    def files(self) -> dict[str, str]:
        """The tables as CSV and LaTeX files, by name."""
        return dict(self._files or table_files(self.latencies, self.operators))

    def write(self, path: str | Path) -> None:
        """Write the page; the file appears whole, by rename.

        Raises:
            ArtifactError: it cannot be written.
        """
        artifacts.write_whole(path, self.html)


def _read(
    directories: Sequence[Path],
    schedules: Sequence[str],
    provenance: Provenance,
    papers: View | None,
    serving: Sequence[ServedScenario],
    processes: int,
) -> Report:
    """The report of results folders, of runs or of predictions."""
    predicted = [directory for directory in directories if is_predicted(directory)]
    if not predicted:
        if schedules:
            raise ArtifactError(
                f"--schedule: found {schedules[0]}; allowed: for predictions, as run.json states what ran"
            )
        return report_of(read_results(directories), provenance, papers, serving, processes)
    if others := [directory for directory in directories if directory not in predicted]:
        raise ArtifactError(
            f"report: found predictions in {predicted[0]}, none in {others[0]}; allowed: only predictions, or only runs"
        )
    return report_of_predictions(read_predictions(directories, schedules), provenance, papers, serving)


def report_of_predictions(
    models: Sequence[ModelPredictions],
    provenance: Provenance = NOT_RECORDED,
    papers: View | None = None,
    serving: Sequence[ServedScenario] = (),
) -> Report:
    """The report of networks of which nothing was run, in this order."""
    from hios.report.page import render_predictions

    rows = [row for model in models for row in prediction_rows(model.name, model.graph, model.schedules, model.costs)]
    page = render_predictions(models, provenance, papers, serving)
    return Report(page, table(LATENCY_COLUMNS, rows), _operators(models))


def report_of(
    models: Sequence[ModelResults],
    provenance: Provenance = NOT_RECORDED,
    papers: View | None = None,
    serving: Sequence[ServedScenario] = (),
    processes: int = 1,
) -> Report:
    """The report of networks that were executed, in this order."""
    from hios.report.page import render

    latencies = table(LATENCY_COLUMNS, [row for model in models for row in latency_rows(model)])
    operators = _operators(models)
    files = table_files(latencies, operators)
    page = render(models, files, provenance, papers, serving, processes)
    return Report(page, latencies, operators, files)


def _operators(models: Sequence[ModelResults | ModelPredictions]) -> pd.DataFrame:
    rows = [row for model in models for row in operator_rows(model.name, model.graph, model.costs)]
    return table(OPERATOR_COLUMNS, rows)


def write_schedule(schedule: Schedule, output: Path, types: Mapping[str, str]) -> None:
    """Write a page with the Gantt chart of one schedule, self-contained like the report, in colors of ``types`` if any.

    Raises:
        ArtifactError: the page cannot be written.
    """
    artifacts.require_writable(output)
    from hios.report.page import render_schedule

    artifacts.write_whole(output, render_schedule(schedule, types))


def write_picture(graph: Graph, output: Path) -> str:
    """Write the picture of a graph by blocks, colored by operator type, the most frequent type first.

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
    from hios.report.graph_layout import lay_out
    from hios.report.graph_svg import size, svg, svg_file, type_counts, words

    picture = lay_out(graph)
    if suffix == ".svg":
        text = svg_file(picture)
    else:
        from hios.report.page import filled

        view = {**words(picture), "svg": svg(picture)}
        legend = type_counts(operator.type for operator in graph.operators)
        text = filled("graph.html.j2", name=graph.name, picture=view, legend=legend)
    artifacts.write_whole(output, text)
    return f"{size(picture)}; {picture.plan.width:.0f} x {picture.plan.height:.0f} pixels"
