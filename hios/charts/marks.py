"""The four kinds of numbers in charts - measured, predicted, published, bound - and how each is drawn.

A prediction or a published number never looks like a measurement: rows of a chart carry the name of their mark in the
column ``mark``, and the functions here turn it into shapes, dashes and fills, with a legend. Color is left for series.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hios.charts.theme import SOFT, series_colors

if TYPE_CHECKING:
    import altair as alt

#: A row of a chart by column, and several.
Row = dict[str, Any]
Rows = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Mark:
    """The kind of a number: its name in the column ``mark`` and in legends, and its meaning in a sentence for readers.

    The shape of points has its name in Vega; ``dash`` has the lengths of strokes and gaps of lines in pixels, none for
    a solid line. Points and bars that are not filled are outlines.
    """

    name: str
    meaning: str
    shape: str
    dash: tuple[int, ...]
    filled: bool


MEASURED = Mark("measured here", "timed on the machine that the page names", "circle", (), filled=True)
PREDICTED = Mark("predicted", "computed by a cost model; nothing ran", "triangle-up", (6, 4), filled=False)
PUBLISHED = Mark("published", "stated by the paper, on the paper's hardware", "diamond", (1, 3), filled=False)
BOUND = Mark("bound", "no schedule is faster under the given costs", "stroke", (10, 3, 2, 3), filled=False)
MARKS = (MEASURED, PREDICTED, PUBLISHED, BOUND)


def explanation(marks: Sequence[Mark] = MARKS) -> str:
    """The meaning of the marks as one sentence for a caption."""
    looks = {
        MEASURED: "filled, solid line",
        PREDICTED: "outlined, triangle, dashed line",
        PUBLISHED: "outlined, diamond, dotted line",
        BOUND: "stroke, dash-dotted line",
    }
    return "; ".join(f"{mark.name} ({looks[mark]}): {mark.meaning}" for mark in marks) + "."


def used(rows: Rows) -> list[Mark]:
    """The marks of some rows, in the order of the explanation; a ValueError if a row names none of the four."""
    names = {row["mark"] for row in rows}
    if unknown := names - {mark.name for mark in MARKS}:
        raise ValueError(f"mark: found {sorted(unknown)}; allowed: {', '.join(mark.name for mark in MARKS)}")
    return [mark for mark in MARKS if mark.name in names]


def _scale(rows: Rows, looks: dict[str, Any], *, legend: bool) -> alt.Scale:
    """A look for every mark. Vega-Lite merges the legends of scales only if their domains are in the same order."""
    import altair as alt

    names = [mark.name for mark in used(rows)][:: 1 if legend else -1]
    return alt.Scale(type="ordinal", domain=names, range=[looks[name] for name in names])


def shape(rows: Rows) -> alt.Shape:
    """Encoding of points by mark, with the legend of the marks."""
    import altair as alt

    scale = _scale(rows, {mark.name: mark.shape for mark in MARKS}, legend=True)
    return alt.Shape("mark:N", scale=scale, title=None, legend=alt.Legend(symbolFillColor=SOFT))


def dash(rows: Rows, *, legend: bool = False) -> alt.StrokeDash:
    """Encoding of strokes by mark."""
    import altair as alt

    scale = _scale(rows, {mark.name: list(mark.dash) for mark in MARKS}, legend=legend)
    shown = alt.Legend(symbolType="square", symbolFillColor=SOFT, symbolSize=90) if legend else None
    return alt.StrokeDash("mark:N", scale=scale, title=None, legend=shown)


def fill(rows: Rows) -> alt.FillOpacity:
    """Encoding of the fill of points and bars: only measured numbers are filled."""
    import altair as alt

    scale = _scale(rows, {mark.name: float(mark.filled) for mark in MARKS}, legend=False)
    return alt.FillOpacity("mark:N", scale=scale, title=None, legend=None)


def colors(names: Sequence[str], field: str) -> dict[str, Any]:
    """Encodings of fill and stroke by series, named in a column; names in the order of the legend."""
    import altair as alt

    palette = series_colors(names)
    scale = alt.Scale(domain=list(palette), range=list(palette.values()))
    return {
        "stroke": alt.Stroke(f"{field}:N", scale=scale, title=None),
        "fill": alt.Fill(f"{field}:N", scale=scale, title=None),
    }


def inline(rows: Rows) -> alt.Chart:
    """A chart of rows that Altair does not copy each time a chart is composed of others."""
    import altair as alt

    data = alt.InlineData(values=list(rows))
    object.__setattr__(data, "__deepcopy__", lambda _: data)  # Altair's own way to set turns names into keys
    return alt.Chart(data)


def lines(rows: Rows, *, x: alt.X, y: alt.Y, series: str) -> alt.LayerChart | alt.FacetChart:
    """Lines with points: a line for every value of the column ``series``, and every mark.

    Rows have the columns of the axes, ``mark``, the series, and ``description``, which is shown at the pointer.
    """
    import altair as alt

    looks = colors(list(dict.fromkeys(row[series] for row in rows)), series)
    base = inline(rows)
    line = base.mark_line(strokeWidth=2, aria=False).encode(x, y, looks["stroke"], dash(rows), alt.Detail("mark:N"))
    points = base.mark_point(size=60, strokeWidth=1.6, opacity=1).encode(
        x, y, *looks.values(), shape(rows), fill(rows), alt.Description("description:N")
    )
    return alt.layer(line, points)


def bars(rows: Rows, *, x: alt.X, y: alt.Y, series: str, beside: alt.XOffset | alt.YOffset) -> alt.Chart:
    """Bars of rows as `lines` takes them, filled if measured and outlined otherwise.

    ``beside`` is the column by which bars of one place stand side by side: XOffset of upright bars, YOffset of others.
    """
    import altair as alt

    looks = colors(list(dict.fromkeys(row[series] for row in rows)), series)
    encodings = [*looks.values(), dash(rows, legend=True), fill(rows), alt.Description("description:N")]
    drawn: alt.Chart = inline(rows).mark_bar(strokeWidth=1.2).encode(x, y, beside, *encodings)
    return drawn


def bar_chart(
    column: str,
    title: str,
    *,
    place: Callable[[Row], str],
    series: str,
    words: Callable[[Row], str],
    width: int = 420,
    step: int = 22,
    label_limit: int = 320,
    ticks: int | None = 8,
) -> Callable[[Rows], alt.TopLevelMixin]:
    """Makes horizontal bars of a column, one below another; rows without a value are left out.

    ``column`` decides their length, ``series`` their color; ``place`` is what stands beside the bars of a row, and
    those of one place stand side by side, by mark. ``words`` describes a row for readers who do not see the chart.
    Width, height of a place and longest text of a place are in pixels; ``ticks`` is None for as many as Vega likes.
    """

    def draw(rows: Rows) -> alt.TopLevelMixin:
        import altair as alt

        shown = [{**row, "place": place(row), "description": words(row)} for row in rows if row.get(column) is not None]
        places = list(dict.fromkeys(row["place"] for row in shown))
        x = alt.X(f"{column}:Q", title=title, axis=alt.Undefined if ticks is None else alt.Axis(tickCount=ticks))
        y = alt.Y("place:N", sort=places, title=None, axis=alt.Axis(labelLimit=label_limit))
        drawn = bars(shown, x=x, y=y, series=series, beside=alt.YOffset("mark:N"))
        return drawn.properties(width=width, height=alt.Step(step))

    return draw


def line_chart(
    x: str,
    y: str,
    *,
    series: Callable[[Row], str],
    words: Callable[[Row], str],
    x_axis: Callable[[Rows], Mapping[str, Any]],
    y_axis: Mapping[str, Any],
    size: Mapping[str, int] | None = None,
) -> Callable[[Rows], alt.TopLevelMixin]:
    """Makes lines of a column over another; rows without a value are left out.

    ``series`` names the line of a row, ``words`` describes it for readers who do not see the chart. Axes have title,
    scale and axis as Vega-Lite has them; the size is in pixels, that of the theme if None.
    """

    def draw(rows: Rows) -> alt.TopLevelMixin:
        import altair as alt

        shown = [{**row, "series": series(row), "description": words(row)} for row in rows if row.get(y) is not None]
        drawn = lines(shown, x=alt.X(f"{x}:Q", **x_axis(shown)), y=alt.Y(f"{y}:Q", **y_axis), series="series")
        return drawn.properties(**(size or {}))

    return draw


def panels(charts: Sequence[tuple[str, str, Any]]) -> alt.VConcatChart:
    """Charts one below another, each with a title, a line below that, if it is not empty, and scales of its own."""
    import altair as alt

    titled: list[Any] = [
        chart.properties(title=alt.TitleParams(title, anchor="start", subtitle=below or alt.Undefined))
        for title, below, chart in charts
    ]
    scales: Any = dict.fromkeys(("y", "stroke", "fill", "shape", "strokeDash", "fillOpacity"), "independent")
    stacked: alt.VConcatChart = alt.vconcat(*titled).resolve_scale(**scales)
    return stacked
