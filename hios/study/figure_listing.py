"""The registry of figures in words, and what is drawn of figures that are not drawn here: their published numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hios.charts import marks
from hios.files.artifacts import Json
from hios.files.text_tables import aligned
from hios.study.figure_data import SESSION_TIMES
from hios.study.published import Published
from hios.study.registry import Figure
from hios.study.rows import Row, Rows

if TYPE_CHECKING:
    import altair as alt

#: Characters of a line of text, and of one in a drawing.
_COLUMNS, _DRAWN_COLUMNS = 100, 84
_KINDS = {
    "paper": "the paper",
    "readme": "the authors' README",
    "program": "the authors' released program",
    "issue": "a thread in the authors' repository",
}


def state(figure: Figure, results: Path) -> str:
    """Whether a figure is in the folder of results, how to get it, or what is missing."""
    if figure.state != "drawn":
        return figure.state
    written = results / "figures" / f"{figure.id}.svg"
    return str(written) if written.is_file() else f"snakemake {figure.id}"


def contents(figure: Figure, results: Path) -> Json:
    """What the list says of a figure, as JSON has it."""
    return {
        "id": figure.id,
        "paper": figure.paper,
        "number": figure.number,
        "title": figure.title,
        "varies": figure.varies,
        "needs": list(figure.needs),
        "sessions": list(figure.sessions),
        "seconds": figure.seconds,
        "state": state(figure, results),
        "missing": figure.missing,
        "command": figure.command,
        "published": {
            entry.key: {"what": entry.what, "unit": entry.unit, **entry.numbers} for entry in figure.published.values()
        },
    }


def listing(figures: Iterable[Figure], results: Path) -> str:
    """A line for every figure, as a table: id, needs, sessions, seconds and state."""
    rows = [("figure", "needs", "sessions", "time", "state")]
    for figure in figures:
        seconds = "" if figure.missing else f"{figure.seconds:g} s"
        needs, sessions = ", ".join(figure.needs), ", ".join(figure.sessions) or "none"
        rows.append((figure.id, needs, "" if figure.missing else sessions, seconds, state(figure, results)))
    return "\n".join(
        [
            *aligned(rows, "<"),
            "",
            "Time is that of drawing, once the sessions are there. These take on two idle cores:",
            *(f"  {session}: {time}" for session, time in SESSION_TIMES.items()),
            "hios figures ID tells more about one.",
        ]
    )


def explained(figure: Figure, results: Path) -> str:
    """One figure: what it shows, what it needs, and what is published."""
    lines = [
        f"{figure.id}: {figure.paper}, {figure.number}",
        *textwrap.wrap(f"{figure.title}. {figure.varies[:1].upper()}{figure.varies[1:]}.", _COLUMNS),
        "",
        f"Needs     {', '.join(figure.needs)}",
        f"Sessions  {', '.join(figure.sessions) or 'none'}",
        f"State     {state(figure, results)}",
        *textwrap.wrap(figure.missing, _COLUMNS, initial_indent=" " * 10, subsequent_indent=" " * 10),
        *([f"Command   {figure.command}"] if figure.command else []),
        "",
        "Published:" if figure.published else "No number is published in words.",
    ]
    for entry in figure.published.values():
        lines += textwrap.wrap(
            f"{entry.what}: {entry.text} [{entry.unit}]", _COLUMNS, initial_indent="  ", subsequent_indent="    "
        )
        lines += textwrap.wrap(
            f"{entry.hardware}; {source_text(entry)}; tolerance {entry.tolerance:.0%}",
            _COLUMNS,
            initial_indent="    ",
            subsequent_indent="    ",
        )
    return "\n".join(lines)


def source_text(entry: Published) -> str:
    """Where a number is stated, in words."""
    return f"{_KINDS[entry.source.kind]}, {entry.source.place}"


def published_rows(figure: Figure) -> Rows:
    """The published numbers of a figure, a row each; one row that says that there are none, where there are none."""
    statements: Rows = [
        {
            "statement": entry.what,
            "case": case,
            "value": number,
            "unit": entry.unit,
            "hardware": entry.hardware,
            "source": source_text(entry),
            "mark": marks.PUBLISHED.name,
            "description": f"{entry.what}, {case}: {number:g} {entry.unit}, published",
        }
        for entry in figure.published.values()
        for case, number in entry.numbers.items()
    ]
    return statements or [{"statement": "no number is published in words"}]


def chart_of_published(figure: Figure, table: Rows) -> alt.TopLevelMixin:
    """The published numbers as points, a row a statement; what the figure needs stands above."""
    import altair as alt

    numbers = [row for row in table if "value" in row]
    title = alt.TitleParams(
        f"{figure.paper}, {figure.number}: published numbers only",
        subtitle=textwrap.wrap(f"{figure.title}. {figure.missing[:1].upper()}{figure.missing[1:]}.", _DRAWN_COLUMNS),
        anchor="start",
    )
    if not numbers:
        text = alt.Chart(alt.InlineData(values=table)).mark_text(align="left").encode(alt.Text("statement:N"))
        drawn: alt.Chart = text.properties(title=title, width=480, height=30)
        return drawn
    units = dict.fromkeys(row["unit"] for row in numbers)
    panels: list[Any] = [_panel([row for row in numbers if row["unit"] == unit], unit) for unit in units]
    stacked: alt.VConcatChart = alt.vconcat(*panels).resolve_scale(x="independent").properties(title=title)
    return stacked


def _panel(numbers: Rows, unit: str) -> alt.TopLevelMixin:
    """The numbers of a unit as points with their values."""
    import altair as alt

    values = [{**row, "label": _label(row), "text": f"{row['value']:g}"} for row in numbers]
    texts = (
        alt.Chart(alt.InlineData(values=values))
        .mark_text(align="left", dx=10)
        .encode(
            alt.X("value:Q", title=f"{unit}, as published"),
            alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=420)),
            alt.Text("text:N"),
        )
    )
    points = texts.mark_point(size=60).encode(
        marks.shape(numbers), marks.fill(numbers), alt.Description("description:N"), alt.Text()
    )
    layered: alt.TopLevelMixin = alt.layer(points, texts).properties(width=320)
    return layered


def _label(row: Row) -> str:
    return str(row["statement"]) if row["case"] == "value" else f"{row['statement']}: {row['case']}"


def chart_of_table(figure: Figure, table: Rows) -> alt.TopLevelMixin:
    """A table as a drawing: its cells as text, so that tables too have an SVG and a PDF."""
    import altair as alt

    columns = [name for name in table[0] if name != "description"]
    cells: list[Row] = [
        {"row": number, "column": name, "text": _cell(row.get(name))}
        for number, row in enumerate(table)
        for name in columns
    ]
    drawn: alt.Chart = (
        alt.Chart(alt.InlineData(values=cells))
        .mark_text(limit=230)
        .encode(
            alt.X("column:N", sort=columns, title=None, axis=alt.Axis(orient="top", labelAngle=0, grid=False)),
            alt.Y("row:O", title=None, axis=None),
            alt.Text("text:N"),
        )
        .properties(
            width=max(300, 120 * len(columns)),
            height=20 * len(table),
            title=alt.TitleParams(f"{figure.paper}, {figure.number}", subtitle=figure.title, anchor="start"),
        )
    )
    return drawn


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
