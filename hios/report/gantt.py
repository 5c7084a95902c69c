"""Gantt charts as plotly figures: a lane a stream of a device, a bar an operator. All times in milliseconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from hios.formats.run_file import ScheduleResult
from hios.graph import Graph
from hios.report.axes import INK, ROW_PX, Properties, layout, row_axis, short, time_axis
from hios.report.colours import COLOURS, Style
from hios.report.labels import short_names
from hios.report.lanes import Lane, lane_names, lanes, lanes_of
from hios.report.results import ModelResults
from hios.schedule import Placement, Schedule

_TINT = "#f6f7f9"
_STAGE_TINT = "#dfe5ec"
_BOUND = "#b5651d"
_DENSE_ROW_PX = 20
_MANY_LANES = 8
#: Bars of operators whose types are not known.
_UNKNOWN = Style("type unknown", COLOURS[0])


@dataclass(frozen=True, slots=True)
class _Half:
    """One pass of a schedule: placements, a name for the hover, a heading above the lanes."""

    kind: str
    placements: Sequence[Placement]
    heading: str

    @property
    def end_ms(self) -> float:
        return max((row.finish_ms for row in self.placements), default=0.0)


def gantt_chart(model: ModelResults, result: ScheduleResult, styles: Mapping[str, Style]) -> go.Figure:
    """A schedule as predicted above the same schedule as it ran."""
    predicted, measured = result.predicted_ms, result.latency_ms.median
    halves = [
        _Half("predicted", result.predicted, f"<b>predicted</b>, {predicted:.{model.decimals}f} ms"),
        _Half(
            "measured",
            result.measured,
            f"<b>measured</b>, the run of median latency ({measured:.{model.decimals}f} ms)",
        ),
    ]
    return _figure(halves, result.devices, model.type_of, lambda row: styles[model.type_of(row.operator)])


def predicted_chart(schedule: Schedule, graph: Graph, styles: Mapping[str, Style]) -> go.Figure:
    """A schedule that was not run, as predicted."""

    def type_of(operator: str) -> str:
        return graph.operators[graph.index[operator]].type

    half = _Half("predicted", schedule.placements, f"<b>predicted</b>, {schedule.latency_ms:.3f} ms")
    return _figure([half], schedule.devices, type_of, lambda row: styles[type_of(row.operator)])


def schedule_chart(schedule: Schedule, types: Mapping[str, str], styles: Mapping[str, Style]) -> go.Figure:
    """One schedule under the cost model, with operators named, stages tinted in turn, and the lower bound.

    Args:
        schedule: at least one placement.
        types: type of every operator; empty if unknown.
        styles: how the bars of every type look.
    """

    def type_of(operator: str) -> str:
        return types.get(operator, "type unknown")

    rows = schedule.placements
    half = _Half("predicted", rows, "")
    figure = _figure([half], schedule.devices, type_of, lambda row: styles.get(type_of(row.operator), _UNKNOWN))
    names = short_names([row.operator for row in rows])
    figure.update_traces(textposition="inside", insidetextanchor="middle", textangle=0)
    for trace in figure.data:
        trace.text = [names[entry[0]] for entry in trace.customdata]
    # A name that does not fit its bar is hidden until zooming makes room; the margin is for that of the bound.
    figure.update_layout(
        uniformtext={"minsize": 10, "mode": "hide"}, margin={"t": 24}, height=figure.layout.height + 18
    )
    shown = lanes((lane for row in rows for lane in lanes_of(row)), schedule.devices)
    for band in _stage_bands(rows, shown):
        figure.add_shape(band)
    if schedule.lower_bound_ms > 0:
        figure.add_vline(
            x=short(schedule.lower_bound_ms),
            line={"color": _BOUND, "dash": "dash", "width": 1.2},
            annotation={"text": "lower bound", "font": {"color": _BOUND}, "yanchor": "bottom"},
            annotation_position="top left",
        )
    return figure


def _figure(
    halves: Sequence[_Half], devices: int, type_of: Callable[[str], str], style_of: Callable[[Placement], Style]
) -> go.Figure:
    """Lanes of all halves, one half above the other."""
    shown = lanes((lane for half in halves for row in half.placements for lane in lanes_of(row)), devices)
    lane_of = {lane: number for number, lane in enumerate(shown)}
    names = lane_names(shown)
    tall = len(shown) + 1
    bars: dict[Style, list[tuple[int, str, Placement]]] = defaultdict(list)
    for first, half in enumerate(halves):
        for row in half.placements:
            for lane in lanes_of(row):
                bars[style_of(row)].append((first * tall + lane_of[lane], half.kind, row))
    figure = go.Figure([_operator_bars(type_of, style, rows) for style, rows in bars.items()])
    row_px = ROW_PX if len(shown) <= _MANY_LANES else _DENSE_ROW_PX
    figure.update_layout(
        **layout(height=row_px * (len(halves) * tall) + 64, top=6),
        showlegend=False,
        barmode="overlay",
        hovermode="closest",
        xaxis={
            **time_axis("time since the inference began, ms"),
            "range": [0, 1.01 * (max(half.end_ms for half in halves) or 1.0)],
        },
        yaxis=row_axis(
            {first * tall + lane: name for first in range(len(halves)) for lane, name in enumerate(names)},
            -1,
            len(halves) * tall - 0.9,
        ),
        shapes=[shape for first, half in enumerate(halves) for shape in _bands(half, first * tall, len(shown))],
        annotations=[_heading(half, first * tall) for first, half in enumerate(halves)],
    )
    return figure


def _operator_bars(type_of: Callable[[str], str], style: Style, rows: Sequence[tuple[int, str, Placement]]) -> go.Bar:
    """All operators of one style in one trace: plotly draws few large traces faster than many small ones."""
    marker: Properties = {
        "color": style.colour,
        "line": {"color": "rgba(36, 41, 47, 0.45)", "width": 0.5},
    }
    if style.hatched:
        marker["pattern"] = {
            "shape": "/",
            "size": 5,
            "solidity": 0.25,
            "fgcolor": INK,
            "bgcolor": style.colour,
            "fgopacity": 0.6,
        }
    return go.Bar(
        name=style.name,
        orientation="h",
        y=[lane for lane, _, _ in rows],
        base=[short(row.start_ms) for _, _, row in rows],
        x=[short(row.finish_ms - row.start_ms) for _, _, row in rows],
        width=0.84,
        marker=marker,
        customdata=[
            [
                row.operator,
                type_of(row.operator),
                kind,
                short(row.start_ms),
                short(row.finish_ms),
                "none" if row.stage is None else row.stage,
            ]
            for _, kind, row in rows
        ],
        hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]}<br>%{customdata[2]}: "
        "%{customdata[3]:.3f} to %{customdata[4]:.3f} ms<br>stage %{customdata[5]}<extra></extra>",
    )


def _bands(half: _Half, first: int, count: int) -> list[Properties]:
    """A tint behind the lanes, and a dotted line where the half ends."""
    span = {"y0": first - 0.5, "y1": first + count - 0.5, "layer": "below"}
    return [
        {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "fillcolor": _TINT, "line": {"width": 0}, **span},
        {"type": "line", "x0": half.end_ms, "x1": half.end_ms, "line": {"dash": "dot", "width": 1.2}, **span},
    ]


def _stage_bands(rows: Sequence[Placement], shown: Sequence[Lane]) -> list[Properties]:
    """A darker tint behind every other stage of a device, over all its lanes."""
    spans: dict[tuple[int, int], list[Placement]] = defaultdict(list)
    for row in rows:
        if row.stage is not None and row.stage % 2:
            spans[row.device, row.stage].append(row)
    places: dict[int, list[int]] = defaultdict(list)
    for place, (device, _) in enumerate(shown):
        places[device].append(place)
    return [
        {
            "type": "rect",
            "x0": short(min(row.start_ms for row in stage)),
            "x1": short(max(row.finish_ms for row in stage)),
            "y0": min(places[device]) - 0.5,
            "y1": max(places[device]) + 0.5,
            "fillcolor": _STAGE_TINT,
            "line": {"width": 0},
            "layer": "below",
        }
        for (device, _), stage in spans.items()
    ]


def _heading(half: _Half, first: int) -> Properties:
    place = {"xref": "paper", "x": 0, "xanchor": "left", "y": first - 0.5, "yanchor": "bottom"}
    return {"text": half.heading, **place, "showarrow": False}
