"""The chart of the latencies of a model as a plotly figure. All times in milliseconds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import plotly.graph_objects as go

from hios.report.axes import INK, ROW_PX, Properties, layout, row_axis, short, time_axis
from hios.report.results import ModelResults
from hios.report.tables import Row, auto_rows, reference_rows, schedule_rows

_SCHEDULE = "#8fb8de"
_FASTEST = "#2f6fae"
_AUTO = "#5b8c5a"
_REFERENCE = "#c3c9d0"
_PREDICTED = "#b5651d"
#: What the chart shows of a row, with its name.
_SHOWN = {"measured_median_ms": "median", "measured_p80_ms": "p80", "predicted_ms": "predicted"}
#: Values beyond so many times the median row are cut off, and the axis ends so much beyond the largest of the others.
_OUTLIER = 3.0
_ROOM = 1.08


def latency_chart(model: ModelResults) -> go.Figure:
    """Measured medians of schedules and references with p20 to p80; predicted latency as a marker."""
    schedules, autos, references = schedule_rows(model), auto_rows(model), _chart_references(model)
    rows = [*schedules, *autos, *references]
    first_reference = len(schedules) + len(autos)
    kinds: dict[str, tuple[str, list[int]]] = {
        "schedule, measured median": (_SCHEDULE, [i for i in range(len(schedules)) if i != model.fastest]),
        "fastest schedule, measured median": (
            _FASTEST,
            [i for i in range(len(schedules)) if i == model.fastest],
        ),
        "chosen by other runs, measured median": (_AUTO, list(range(len(schedules), first_reference))),
        "reference, measured median": (_REFERENCE, list(range(first_reference, len(rows)))),
    }
    figure = go.Figure(
        [_latency_bars(name, colour, rows, chosen) for name, (colour, chosen) in kinds.items() if chosen]
    )
    if schedules:
        figure.add_trace(_predicted_markers(schedules))
    end = _end(rows)
    figure.update_layout(
        **layout(height=ROW_PX * len(rows) + 100, top=40),
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        showlegend=True,
        xaxis={**time_axis("latency, ms"), **({"rangemode": "tozero"} if end is None else {"range": [0, end]})},
        annotations=[] if end is None else _cut_off(rows, end, model.decimals),
        yaxis=row_axis({i: row["label"] for i, row in enumerate(rows)}, -0.6, len(rows) - 0.4),
    )
    return figure


def _end(rows: Sequence[Row]) -> float | None:
    """Where the axis ends so that single large values do not flatten all others; None where none is that large."""
    values = [row[column] for row in rows for column in _SHOWN if row.get(column) is not None]
    typical = statistics.median(row["measured_median_ms"] for row in rows)
    within = [value for value in values if value <= _OUTLIER * typical]
    return None if len(within) == len(values) else _ROOM * max(within, default=0.0) or None


def _cut_off(rows: Sequence[Row], end: float, decimals: int) -> list[Properties]:
    """What lies beyond the end of the axis, in numbers at the right of its row."""
    beyond = {
        position: [
            f"{name} {row[column]:.{decimals}f}" for column, name in _SHOWN.items() if (row.get(column) or 0) > end
        ]
        for position, row in enumerate(rows)
    }
    place = {"xref": "paper", "x": 1, "xanchor": "right", "showarrow": False, "bgcolor": "rgba(255, 255, 255, 0.85)"}
    return [{"text": f"{', '.join(texts)} ms ▸", "y": position, **place} for position, texts in beyond.items() if texts]


def _chart_references(model: ModelResults) -> list[Row]:
    """The references, and the baseline where it is not among the schedules."""
    shown = any(row["algorithm"] == "sequential" and row["devices"] == 1 for row in schedule_rows(model))
    return reference_rows(model)[1 if shown else 0 :]


def _latency_bars(name: str, colour: str, rows: Sequence[Row], chosen: Sequence[int]) -> go.Bar:
    measured = [[rows[i][f"measured_{key}_ms"] for key in ("median", "p20", "p80")] for i in chosen]
    return go.Bar(
        name=name,
        orientation="h",
        y=list(chosen),
        x=[short(median) for median, _, _ in measured],
        width=0.62,
        marker={"color": colour},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [short(p80 - median) for median, _, p80 in measured],
            "arrayminus": [short(median - p20) for median, p20, _ in measured],
            "color": INK,
            "thickness": 1.2,
            "width": 4,
        },
        customdata=[
            [rows[i]["label"], short(p20), short(p80)] for i, (_, p20, p80) in zip(chosen, measured, strict=True)
        ],
        hovertemplate="<b>%{customdata[0]}</b><br>measured median %{x:.3f} ms"
        "<br>p20 %{customdata[1]:.3f} ms, p80 %{customdata[2]:.3f} ms<extra></extra>",
    )


def _predicted_markers(schedules: Sequence[Row]) -> go.Scatter:
    return go.Scatter(
        name="predicted",
        mode="markers",
        x=[short(row["predicted_ms"]) for row in schedules],
        # Beside the bar, where it does not hide the error bar.
        y=[position + 0.41 for position in range(len(schedules))],
        marker={"symbol": "triangle-up", "size": 9, "color": _PREDICTED},
        customdata=[[row["label"]] for row in schedules],
        hovertemplate="<b>%{customdata[0]}</b><br>predicted %{x:.3f} ms<extra></extra>",
    )
