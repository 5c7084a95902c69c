"""The charts of the report as plotly figures. All times in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from hios.artifacts import Json
from hios.report.colours import Style
from hios.report.results import ModelResults
from hios.report.tables import Row, reference_rows, schedule_rows

_INK = "#24292f"
_GRID = "#e4e7eb"
_TINT = "#f6f7f9"
_FONT = {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 12, "color": _INK}
_SCHEDULE = "#8fb8de"
_FASTEST = "#2f6fae"
_REFERENCE = "#c3c9d0"
_PREDICTED = "#b5651d"
#: Height of a lane or bar, and of the few pixels more that title and axis take.
_ROW_PX = 30
_DENSE_ROW_PX = 20
_MANY_LANES = 8
#: 0.1 microseconds: finer than any clock here, and a third of the bytes of full precision.
_DECIMALS = 4


def latency_chart(model: ModelResults) -> go.Figure:
    """Measured medians of schedules and references with p20 to p80; predicted latency as a marker."""
    schedules, references = schedule_rows(model), _chart_references(model)
    rows = [*schedules, *references]
    kinds: dict[str, tuple[str, list[int]]] = {
        "schedule, measured median": (_SCHEDULE, [i for i in range(len(schedules)) if i != model.fastest]),
        "fastest schedule, measured median": (
            _FASTEST,
            [i for i in range(len(schedules)) if i == model.fastest],
        ),
        "reference, measured median": (_REFERENCE, list(range(len(schedules), len(rows)))),
    }
    figure = go.Figure(
        [_latency_bars(name, colour, rows, chosen) for name, (colour, chosen) in kinds.items() if chosen]
    )
    if schedules:
        figure.add_trace(_predicted_markers(schedules))
    figure.update_layout(
        **_layout(height=_ROW_PX * len(rows) + 100, top=40),
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        showlegend=True,
        xaxis={**_time_axis("latency, ms"), "rangemode": "tozero"},
        yaxis=_row_axis({i: row["label"] for i, row in enumerate(rows)}, -0.6, len(rows) - 0.4),
    )
    return figure


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
        x=[_short(median) for median, _, _ in measured],
        width=0.62,
        marker={"color": colour},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [_short(p80 - median) for median, _, p80 in measured],
            "arrayminus": [_short(median - p20) for median, p20, _ in measured],
            "color": _INK,
            "thickness": 1.2,
            "width": 4,
        },
        customdata=[
            [rows[i]["label"], _short(p20), _short(p80)] for i, (_, p20, p80) in zip(chosen, measured, strict=True)
        ],
        hovertemplate="<b>%{customdata[0]}</b><br>measured median %{x:.3f} ms"
        "<br>p20 %{customdata[1]:.3f} ms, p80 %{customdata[2]:.3f} ms<extra></extra>",
    )


def _predicted_markers(schedules: Sequence[Row]) -> go.Scatter:
    return go.Scatter(
        name="predicted",
        mode="markers",
        x=[_short(row["predicted_ms"]) for row in schedules],
        # Beside the bar, where it does not hide the error bar.
        y=[position + 0.41 for position in range(len(schedules))],
        marker={"symbol": "triangle-up", "size": 9, "color": _PREDICTED},
        customdata=[[row["label"]] for row in schedules],
        hovertemplate="<b>%{customdata[0]}</b><br>predicted %{x:.3f} ms<extra></extra>",
    )


def gantt_chart(model: ModelResults, result: Json, styles: Mapping[str, Style]) -> go.Figure:
    """A schedule as predicted above the same schedule as it ran: a lane a stream of a device."""
    lanes = _lanes(result)
    offset = len(lanes) + 1
    top = {"predicted": 0, "measured": offset}
    ends = {kind: max((row["finish_ms"] for row in result[kind]), default=0.0) for kind in top}
    names = {first + lane: name for first in top.values() for lane, name in enumerate(_lane_names(lanes))}
    bars: dict[Style, list[tuple[int, str, Json]]] = {style: [] for style in styles.values()}
    for kind, first in top.items():
        for placement in result[kind]:
            lane = first + lanes.index((placement["device"], placement["stream"]))
            bars[styles[model.type_of(placement["operator"])]].append((lane, kind, placement))
    figure = go.Figure([_operator_bars(model, style, rows) for style, rows in bars.items() if rows])
    row_px = _ROW_PX if len(lanes) <= _MANY_LANES else _DENSE_ROW_PX
    figure.update_layout(
        **_layout(height=row_px * (2 * offset) + 64, top=6),
        showlegend=False,
        barmode="overlay",
        hovermode="closest",
        xaxis={
            **_time_axis("time since the inference began, ms"),
            "range": [0, 1.01 * (max(ends.values()) or 1.0)],
        },
        yaxis=_row_axis(names, -1, 2 * offset - 0.9),
        shapes=_bands(ends, top, len(lanes)),
        annotations=[_heading(kind, result, first, model.decimals) for kind, first in top.items()],
    )
    return figure


def _lanes(result: Json) -> list[tuple[int, int]]:
    """(device, stream) of every lane; a device that got no operator keeps an empty lane, so that it shows."""
    used = {(row["device"], row["stream"]) for kind in ("predicted", "measured") for row in result[kind]}
    idle = {(device, 0) for device in range(result["devices"])} if used else set()
    return sorted(used | {lane for lane in idle if lane[0] not in {device for device, _ in used}})


def _lane_names(lanes: Sequence[tuple[int, int]]) -> list[str]:
    devices = [device for device, _ in lanes]
    return [
        f"device {device}" if devices.count(device) == 1 else f"device {device}, stream {stream}"
        for device, stream in lanes
    ]


def _operator_bars(model: ModelResults, style: Style, rows: Sequence[tuple[int, str, Json]]) -> go.Bar:
    """All operators of one style in one trace: plotly draws few large traces faster than many small ones."""
    marker: dict[str, Any] = {
        "color": style.colour,
        "line": {"color": "rgba(36, 41, 47, 0.45)", "width": 0.5},
    }
    if style.hatched:
        marker["pattern"] = {
            "shape": "/",
            "size": 5,
            "solidity": 0.25,
            "fgcolor": _INK,
            "bgcolor": style.colour,
            "fgopacity": 0.6,
        }
    return go.Bar(
        name=style.name,
        orientation="h",
        y=[lane for lane, _, _ in rows],
        base=[_short(row["start_ms"]) for _, _, row in rows],
        x=[_short(row["finish_ms"] - row["start_ms"]) for _, _, row in rows],
        width=0.84,
        marker=marker,
        customdata=[
            [
                row["operator"],
                model.type_of(row["operator"]),
                kind,
                _short(row["start_ms"]),
                _short(row["finish_ms"]),
                "none" if row["stage"] is None else row["stage"],
            ]
            for _, kind, row in rows
        ],
        hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]}<br>%{customdata[2]}: "
        "%{customdata[3]:.3f} to %{customdata[4]:.3f} ms<br>stage %{customdata[5]}<extra></extra>",
    )


def _bands(ends: Mapping[str, float], top: Mapping[str, int], lanes: int) -> list[dict[str, Any]]:
    """A tint behind the lanes, and a dotted line where each half ends."""
    span = {kind: {"y0": first - 0.5, "y1": first + lanes - 0.5} for kind, first in top.items()}
    whole = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "fillcolor": _TINT, "line": {"width": 0}}
    tints = [{**whole, **rows} for rows in span.values()]
    lines = [
        {"type": "line", "x0": ends[kind], "x1": ends[kind], **rows, "line": {"dash": "dot", "width": 1.2}}
        for kind, rows in span.items()
    ]
    return [{**shape, "layer": "below"} for shape in (*tints, *lines)]


def _heading(kind: str, result: Json, first: int, decimals: int) -> dict[str, Any]:
    text = {
        "predicted": f"<b>predicted</b>, {result['predicted_ms']:.{decimals}f} ms",
        "measured": f"<b>measured</b>, the run of median latency ({result['latency_ms']['median']:.{decimals}f} ms)",
    }[kind]
    place = {"xref": "paper", "x": 0, "xanchor": "left", "y": first - 0.5, "yanchor": "bottom"}
    return {"text": text, **place, "showarrow": False}


def _layout(height: int, top: int) -> dict[str, Any]:
    return {
        "template": "none",
        "font": _FONT,
        "height": height,
        "margin": {"l": 10, "r": 16, "t": top, "b": 58},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": "#8a939d", "font": _FONT},
    }


def _time_axis(title: str) -> dict[str, Any]:
    return {
        "title": {"text": title, "standoff": 8},
        "gridcolor": _GRID,
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": _GRID,
        "tickformat": ",~f",
    }


def _row_axis(names: Mapping[int, str], first: float, last: float) -> dict[str, Any]:
    """Rows from top to bottom, which plotly counts upwards; zooming concerns time only."""
    return {
        "tickvals": list(names),
        "ticktext": list(names.values()),
        "ticklabelstandoff": 6,
        "range": [last, first],
        "automargin": True,
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
    }


def _short(time_ms: float) -> float:
    return round(time_ms, _DECIMALS)
