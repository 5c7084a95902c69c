"""The chart of the latencies of a model. All times in milliseconds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hios.charts.marks import BOUND as BOUND_MARK
from hios.charts.marks import MEASURED, PREDICTED, inline
from hios.charts.rendering import to_svg
from hios.charts.theme import BOUND, GROUND, INK, SERIES
from hios.report.model_results import ModelResults
from hios.report.tables import Row, auto_rows, reference_rows, schedule_rows

if TYPE_CHECKING:
    import altair as alt

#: Pixels: the plot, and a row.
_WIDTH, _ROW = 800, 30
#: What the chart shows of a row, with its name.
_SHOWN = {"measured_median_ms": "median", "measured_p80_ms": "p80", "predicted_ms": "predicted"}
#: Values above this multiple of the median row are cut off; the axis ends at this multiple of the largest other value.
_OUTLIER = 3.0
_ROOM = 1.08
#: Kinds of rows in the order of the legend, with their colors: blue, vermilion, green, grey.
_KINDS = {
    "schedule": SERIES[0],
    "schedule of the lowest median": SERIES[1],
    "chosen by other runs": SERIES[2],
    "reference": SERIES[4],
}


def latency_chart(model: ModelResults, identity: str) -> str:
    """Measured medians of schedules and references with p20 to p80, predicted latencies and lower bounds, as SVG."""
    import altair as alt

    rows = _rows(model)
    end = _end(rows)
    last = end or _ROOM * max(
        [row[column] for row in rows for column in _SHOWN if row.get(column) is not None] or [0.0]
    )
    scale = alt.Scale(domain=[0, last or 1.0], nice=False)
    x = alt.X("start:Q", title="latency, ms", scale=scale, axis=alt.Axis(grid=True, tickCount=10))
    y = alt.Y(
        "label:N",
        title=None,
        sort=None,
        scale=alt.Scale(domain=[row["label"] for row in rows]),
        axis=alt.Axis(ticks=False, domain=False, labelPadding=6, labelLimit=320),
    )
    layers = [_bars(rows, model.decimals, x, y), _ranges(rows, x, y)]
    if any(row.get("predicted_ms") is not None for row in rows):
        layers.append(_markers(rows, model.decimals, x, y))
    if end is not None:
        layers.append(_cut_off(rows, end, model.decimals, y))
    description = (
        f"Bar chart of the measured median latency of every schedule and reference of {model.name}, with the range "
        "from p20 to p80, the predicted latency and the lower bound; the tables of schedules and "
        "references have its numbers"
    )
    chart = alt.layer(*layers).properties(width=_WIDTH, height=_ROW * len(rows), description=description)
    return to_svg(chart, identity)


def _rows(model: ModelResults) -> list[Row]:
    """Rows of tables with the kind that their bars show; the baseline where it is not among the schedules."""
    schedules = schedule_rows(model)
    groups = {
        "chosen by other runs": auto_rows(model),
        "reference": reference_rows(model)[1 if model.has_sequential else 0 :],
    }
    rows = [
        {**row, "bar": "schedule of the lowest median" if position == model.fastest else "schedule"}
        for position, row in enumerate(schedules)
    ]
    return rows + [{**row, "bar": kind} for kind, group in groups.items() for row in group]


def _end(rows: Sequence[Row]) -> float | None:
    """End of the axis if single large values would flatten all others; None if no value is that large."""
    values = [row[column] for row in rows for column in _SHOWN if row.get(column) is not None]
    typical = statistics.median(row["measured_median_ms"] for row in rows)
    within = [value for value in values if value <= _OUTLIER * typical]
    return None if len(within) == len(values) else _ROOM * max(within, default=0.0) or None


def _bars(rows: Sequence[Row], decimals: int, x: alt.X, y: alt.Y) -> alt.Chart:
    import altair as alt

    kinds = {kind: color for kind, color in _KINDS.items() if any(row["bar"] == kind for row in rows)}
    values = [
        {
            "label": row["label"],
            "kind": row["bar"],
            "start": 0.0,
            "finish": row["measured_median_ms"],
            "description": f"{row['label']}\nmeasured median {row['measured_median_ms']:.{decimals}f} ms\n"
            f"p20 {row['measured_p20_ms']:.{decimals}f} ms, p80 {row['measured_p80_ms']:.{decimals}f} ms",
        }
        for row in rows
    ]
    scale = alt.Scale(domain=list(kinds), range=list(kinds.values()))
    legend = alt.Legend(
        orient="top", direction="horizontal", symbolType="square", symbolStrokeColor="transparent", labelLimit=0
    )
    drawn: alt.Chart = (
        inline(values)
        .mark_bar(clip=True, height=alt.RelativeBandSize(0.6))
        .encode(
            x,
            alt.X2("finish:Q"),
            y,
            alt.Fill("kind:N", scale=scale, title=MEASURED.name, legend=legend),
            alt.Description("description:N"),
        )
    )
    return drawn


def _ranges(rows: Sequence[Row], x: alt.X, y: alt.Y) -> alt.LayerChart | alt.FacetChart:
    """Lines from p20 to p80, on the background's color so that they show on the bar too."""
    import altair as alt

    values = [
        {"label": row["label"], "start": row["measured_p20_ms"], "finish": row["measured_p80_ms"]} for row in rows
    ]
    base = inline(values).encode(x, alt.X2("finish:Q"), y)
    return alt.layer(
        base.mark_rule(clip=True, strokeWidth=4, color=GROUND, aria=False),
        base.mark_rule(clip=True, strokeWidth=1.6, color=INK, aria=False),
    )


def _markers(rows: Sequence[Row], decimals: int, x: alt.X, y: alt.Y) -> alt.Chart:
    """Predicted latencies and lower bounds, below the middle of the bar, where they do not hide its range."""
    import altair as alt

    marks = {PREDICTED: ("predicted_ms", INK), BOUND_MARK: ("predicted_lower_bound_ms", BOUND)}
    values = [
        {
            "label": row["label"],
            "mark": mark.name,
            "start": row[column],
            "description": f"{row['label']}\n{mark.name} {row[column]:.{decimals}f} ms",
        }
        for row in rows
        for mark, (column, _) in marks.items()
        if row.get(column) is not None
    ]
    names = [mark.name for mark in marks if any(value["mark"] == mark.name for value in values)]
    shapes = alt.Scale(
        domain=names, range=[mark.shape if mark is PREDICTED else "M0,-1V1" for mark in marks][: len(names)]
    )
    colors = alt.Scale(domain=names, range=[color for _, color in marks.values()][: len(names)])
    legend = alt.Legend(orient="top", direction="horizontal", title=None, symbolFillColor="transparent")
    drawn: alt.Chart = (
        inline(values)
        .mark_point(clip=True, size=64, yOffset=9, strokeWidth=1.8, opacity=1, fill=GROUND)
        .encode(
            x,
            y,
            alt.Shape("mark:N", scale=shapes, legend=legend),
            alt.Stroke("mark:N", scale=colors, legend=legend),
            alt.Description("description:N"),
        )
    )
    return drawn


def _cut_off(rows: Sequence[Row], end: float, decimals: int, y: alt.Y) -> alt.Chart:
    """Values beyond the end of the axis, as numbers at the right end of their rows."""
    import altair as alt

    beyond = {
        row["label"]: [
            f"{name} {row[column]:.{decimals}f}" for column, name in _SHOWN.items() if (row.get(column) or 0) > end
        ]
        for row in rows
    }
    values = [{"label": label, "text": f"{', '.join(texts)} ms ▸"} for label, texts in beyond.items() if texts]
    drawn: alt.Chart = (
        inline(values)
        .mark_text(align="right", dx=-6, color=GROUND, fontWeight="bold", aria=False)
        .encode(y=y, x=alt.value(_WIDTH), text="text:N")
    )
    return drawn
