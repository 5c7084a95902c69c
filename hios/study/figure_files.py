"""A figure as files: CSV and LaTeX of its table, SVG and PDF of its chart, JSON with all of it and the verdicts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hios.charts import marks, rendering
from hios.charts.rendering import escaped
from hios.files import artifacts
from hios.files.text_tables import csv_text
from hios.files.versions import checkout
from hios.formats.study import ComparedNumber, FigureFile, FigureOrigin
from hios.study.figure_data import FigureData
from hios.study.figure_listing import chart_of_published, chart_of_table, published_rows, source_text
from hios.study.published import Comparison, Verdict
from hios.study.registry import Figure
from hios.study.rows import Row, Rows

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

#: Why a figure that reads sessions has no rows.
_NO_DATA = "no network of the configuration was executed with the algorithms of this figure"
_NOT_SERVED = "no scenario of serving: in config.yaml has such models under the policies of this figure"
_NO_EXPERIMENT = (
    "it takes scenarios of serving: in config.yaml with such models; batches and several GPUs also platform: model"
)
_NO_ARCHIVES = "it compares machines, and `study: archives:` in config.yaml names no archive of another one"
#: Columns that only charts need.
HIDDEN = frozenset({"description"})
#: Suffixes of a figure's files.
ENDINGS = ("csv", "tex", "svg", "pdf", "json")


def write_figure(figure: Figure, data: FigureData, folder: Path) -> FigureFile:
    """Write a figure as ``folder``/ID.csv, .tex, .svg, .pdf and .json; what the JSON file holds.

    One that is not drawn has the published numbers as its table and chart, marked as published.

    Raises:
        HiosError: a file cannot be written, or the data are not those of the figure.
    """
    began = time.perf_counter()
    figure, record = stated(figure, data)
    rows = list(record.rows)
    if figure.missing:
        chart = chart_of_published(figure, rows)
    else:
        chart = figure.chart(rows) if figure.chart is not None else chart_of_table(figure, rows)
    places = {ending: folder / f"{figure.id}.{ending}" for ending in ENDINGS}
    for path in places.values():
        artifacts.require_writable(path)
    svg = rendering.to_svg(described(chart, record), f"{figure.id}-chart")
    artifacts.write_whole(places["csv"], table_text(rows))
    artifacts.write_whole(places["tex"], latex(record))
    artifacts.write_whole(places["svg"], svg)
    artifacts.write_whole(places["pdf"], rendering.svg_to_pdf(svg))
    origin = FigureOrigin(time.perf_counter() - began, data.seconds, checkout())
    record = msgspec.structs.replace(record, origin=origin)
    artifacts.write(places["json"], "figure", record)
    return record


def _no_data(figure: Figure) -> str:
    if "archives" in figure.sessions:
        return _NO_ARCHIVES
    if any(session.startswith("top/") for session in figure.sessions):
        return _NO_EXPERIMENT
    return _NOT_SERVED if figure.sessions == ("serving",) else _NO_DATA


def stated(figure: Figure, data: FigureData) -> tuple[Figure, FigureFile]:
    """The figure, which says what is missing if the data lack it, and what its JSON file holds but for its origin."""
    rows = figure.rows(data)
    # HIOS's statements are on images from those of the networks' papers up to the largest that fit.
    comparable = data.as_published(varied=figure.varied, larger=figure.id.startswith("hios_"))
    comparisons = compared(figure, figure.compare(rows if comparable == data else figure.rows(comparable)))
    if not rows:
        figure = msgspec.structs.replace(figure, missing=figure.missing or _no_data(figure))
        rows = published_rows(figure)
    return figure, FigureFile(
        id=figure.id,
        paper=figure.paper,
        number=figure.number,
        title=figure.title,
        caption=caption(figure, rows),
        needs=figure.needs,
        state=figure.state,
        missing=figure.missing,
        command=figure.command,
        reason="" if figure.missing else figure.why(rows),
        columns=tuple(_table(rows).columns),
        rows=tuple(rows),
        comparisons=tuple(comparisons),
        data=data.files,
        finding="" if figure.missing else figure.finding(rows),
    )


def compared(figure: Figure, comparisons: Iterable[Comparison]) -> list[ComparedNumber]:
    """Every published statement of a figure, with what was found of it and the verdict.

    Those that the figure compares, but that nothing was found of, are not on this machine.

    Raises:
        ValueError: a comparison is with a statement that is not the figure's.
    """
    by_key: dict[str, list[Comparison]] = {key: [] for key in figure.published}
    for comparison in comparisons:
        if comparison.published.key not in by_key:
            raise ValueError(f"{figure.id}: found a comparison with {comparison.published.key}, which is not its own")
        if comparison.verdict is not Verdict.ELSEWHERE:
            by_key[comparison.published.key].append(comparison)
    comparable = {comparison.published.key for comparison in figure.compare([])}
    return [
        _compared(comparison)
        for key, entry in figure.published.items()
        for comparison in by_key[key] or [Comparison(entry, comparable=key in comparable)]
    ]


def _compared(comparison: Comparison) -> ComparedNumber:
    entry = comparison.published
    return ComparedNumber(
        key=entry.key,
        what=entry.what,
        unit=entry.unit,
        published=entry.text,
        hardware=entry.hardware,
        source=source_text(entry),
        tolerance=entry.tolerance,
        verdict=comparison.verdict.value,
        found=comparison.found_text,
        by=comparison.by if comparison.found is not None else "",
        absent=comparison.absent,
    )


def caption(figure: Figure, rows: Rows) -> str:
    """What a figure shows, and what the marks in it mean."""
    text = f"{figure.title}. {figure.varies[:1].upper()}{figure.varies[1:]}."
    if figure.missing:
        text += f" {figure.missing[:1].upper()}{figure.missing[1:]}."
    elif why := figure.why(rows):
        text += f" {why}"
    marked = [row for row in rows if "mark" in row]
    return f"{text} {marks.explanation(marks.used(marked))}" if marked else text


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table as CSV, without the columns that only charts need."""
    return csv_text(list(dict.fromkeys(name for row in rows for name in row if name not in HIDDEN)), rows)


def described(chart: alt.TopLevelMixin, record: FigureFile) -> alt.TopLevelMixin:
    """The chart with the description that readers get who do not see it."""
    drawn: Any = chart
    return drawn.properties(description=f"{record.paper}, {record.number}: {record.caption}")  # type: ignore[no-any-return]


def latex(record: FigureFile) -> str:
    """The table of a figure with the rules of booktabs, which compiles as it is with that package."""
    from pandas.io.formats.style import Styler

    table = _table(record.rows)
    style = Styler(table).format(_cell, na_rep="").hide(axis="index").format_index(escaped, axis=1)
    aligned = "".join("r" if table[name].dtype.kind in "if" else "l" for name in table.columns)
    text: str = style.to_latex(hrules=True, column_format=aligned)
    return f"% {record.paper}, {record.number}: {record.title}\n% needs \\usepackage{{booktabs}}\n{text}"


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else escaped(str(value))


def _table(rows: Sequence[Row]) -> pd.DataFrame:
    """The rows without the columns that only charts need."""
    import pandas as pd

    return pd.DataFrame([{key: value for key, value in row.items() if key not in HIDDEN} for row in rows])
