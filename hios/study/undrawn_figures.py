"""Figures that are not drawn here: their published numbers, as published, and what it takes to measure them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hios.charts import marks
from hios.study.published import Published

if TYPE_CHECKING:
    import altair as alt

    from hios.study.registry import Figure, Row, Rows

_KINDS = {
    "paper": "the paper",
    "readme": "the authors' README",
    "program": "the authors' released program",
    "issue": "a thread in the authors' repository",
}
#: Characters of a line of text in a drawing.
_COLUMNS = 84


def source_text(entry: Published) -> str:
    """Where a number is stated, in words."""
    return f"{_KINDS[entry.source.kind]}, {entry.source.place}"


def rows(figure: Figure) -> Rows:
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


def chart(figure: Figure, table: Rows) -> alt.TopLevelMixin:
    """The published numbers as points, a row a statement; what the figure needs stands above."""
    import altair as alt

    numbers = [row for row in table if "value" in row]
    title = alt.TitleParams(
        f"{figure.paper}, {figure.number}: published numbers only",
        subtitle=_lines(f"{figure.title}. {figure.missing[:1].upper()}{figure.missing[1:]}."),
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


def chart_of_table(figure: Figure) -> Callable[[Rows], alt.TopLevelMixin]:
    """Makes a drawing of a table: its cells as text, so that tables too have an SVG and a PDF."""

    def draw(table: Rows) -> alt.TopLevelMixin:
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

    return draw


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def _lines(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, _COLUMNS)
