"""Gantt charts, with a row a stream of a device and a bar an operator, and the chart of a model's latencies, in ms."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hios.charts.marks import BOUND as BOUND_MARK
from hios.charts.marks import MEASURED, PREDICTED, inline
from hios.charts.rendering import fill_of, to_svg
from hios.charts.theme import BOUND, GROUND, INK, ON_TYPE, OUTLINE, SERIES, STAGE_TINT, TINT, UNKNOWN, style_of
from hios.core.graph import Graph
from hios.core.schedule import Placement, Schedule, merged_rows
from hios.formats.run import ScheduleResult
from hios.report.graph_layout import Lane, lane_names, lanes, lanes_of, short_names, text_width
from hios.report.results import ModelPredictions, ModelResults
from hios.report.tables import Row, auto_rows, reference_rows, schedule_rows

if TYPE_CHECKING:
    import altair as alt

#: Pixels: the plot, a row, and a row where there are many.
_WIDTH, _ROW, _DENSE_ROW, _MANY_ROWS = 980, 30, 20, 8
#: Height of a bar as a share of its row; length of the time axis as a multiple of the last finish.
_BAR, _ROOM = 0.84, 1.01
#: Pixels that a name needs beside itself to be shown in its bar.
_NAME_MARGIN = 6.0
_UNKNOWN_TYPE = "type unknown"
#: Of milliseconds: 0.1 microseconds, finer than any clock here.
_DECIMALS = 4


@dataclass(frozen=True, slots=True)
class GanttChart:
    """A drawn chart, where its time axis ends, and what it shows, in words."""

    svg: str
    end_ms: float
    description: str


@dataclass(frozen=True, slots=True)
class _Pass:
    """One pass of a schedule: whether predicted or measured, its placements, and a heading above the rows."""

    kind: str
    placements: Sequence[Placement]
    heading: str

    @property
    def end_ms(self) -> float:
        return max((row.finish_ms for row in self.placements), default=0.0)


@dataclass(frozen=True, slots=True)
class _Content:
    """What a chart needs in addition to placements: names, types and inputs of operators, and the bound."""

    devices: int
    type_of: Callable[[str], str]
    inputs_of: Callable[[str], Sequence[str]]
    names: Mapping[str, str]
    bound_ms: float = 0.0


def gantt_chart(model: ModelResults, result: ScheduleResult, identity: str) -> GanttChart:
    """A schedule as predicted above the same schedule as it ran."""
    predicted, measured = result.predicted_ms, result.latency_ms.median
    passes = [
        _Pass("predicted", result.predicted, f"predicted, {predicted:.{model.decimals}f} ms"),
        _Pass("measured", result.measured, f"measured, the run of median latency ({measured:.{model.decimals}f} ms)"),
    ]
    description = (
        f"Gantt chart of {result.label} for {model.name} on {result.devices} device(s): predicted, "
        f"{predicted:.{model.decimals}f} ms, above measured, {measured:.{model.decimals}f} ms"
    )
    content = _Content(result.devices, model.type_of, _inputs(model.graph), {})
    return _drawn(passes, content, identity, description)


def predicted_chart(model: ModelPredictions, label: str, identity: str) -> GanttChart:
    """A schedule that was not run, as predicted."""
    schedule = model.schedules[label]
    part = _Pass("predicted", schedule.placements, f"predicted, {schedule.latency_ms:.3f} ms")
    content = _Content(schedule.devices, model.type_of, _inputs(model.graph), {})
    description = f"Gantt chart of {label} for {model.graph.name}, predicted, {schedule.latency_ms:.3f} ms"
    return _drawn([part], content, identity, description)


def schedule_chart(schedule: Schedule, types: Mapping[str, str], identity: str) -> GanttChart:
    """One schedule under the cost model, with operators named, stages tinted in turn, and the lower bound.

    ``types`` is empty if they are unknown.
    """
    rows = schedule.placements
    content = _Content(
        schedule.devices,
        lambda operator: types.get(operator, _UNKNOWN_TYPE),
        lambda operator: (),
        short_names([row.operator for row in rows]),
        schedule.lower_bound_ms,
    )
    description = f"Gantt chart of the schedule by {schedule.algorithm}, predicted, {schedule.latency_ms:.3f} ms"
    return _drawn(
        [_Pass("predicted", rows, f"predicted, {schedule.latency_ms:.3f} ms")], content, identity, description
    )


def _inputs(graph: Graph) -> Callable[[str], Sequence[str]]:
    sources: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        sources[edge.target].append(edge.source)
    return lambda operator: sources[operator]


def _drawn(passes: Sequence[_Pass], content: _Content, identity: str, description: str) -> GanttChart:
    """The passes one above the other on the same time axis."""
    import altair as alt

    rows = lanes((lane for part in passes for row in part.placements for lane in lanes_of(row)), content.devices)
    end_ms = _ROOM * (max(part.end_ms for part in passes) or 1.0)
    charts = [_pass_chart(part, content, rows, end_ms) for part in passes]
    chart = alt.vconcat(*charts, spacing=14).properties(description=description).configure_concat()
    return GanttChart(to_svg(chart, identity), end_ms, description)


def _pass_chart(part: _Pass, content: _Content, rows: Sequence[Lane], end_ms: float) -> alt.LayerChart:
    import altair as alt

    names = dict(zip(rows, lane_names(rows), strict=True))
    x = alt.X(
        "start:Q",
        title="time since the inference began, ms",
        scale=alt.Scale(domain=[0, end_ms], nice=False),
        axis=alt.Axis(grid=True, tickCount=10),
    )
    y = alt.Y(
        "row:N",
        title=None,
        sort=None,
        scale=alt.Scale(domain=list(names.values()), padding=0),
        axis=alt.Axis(ticks=False, domain=False, labelPadding=6, labelLimit=0),
    )
    bars = [
        {"row": names[lane], **_bar(group, part.kind, content, end_ms)}
        for group in merged_rows(part.placements)
        for lane in lanes_of(group[0])
    ]
    dash = [3, 2] if part.kind == "predicted" else alt.Undefined
    layers: list[Any] = []
    if content.names:
        layers.append(inline(_stage_bands(part.placements, rows, names)).mark_bar(color=STAGE_TINT, aria=False))
    layers += [
        inline(bars)
        .mark_bar(stroke=OUTLINE, strokeWidth=0.7, strokeDash=dash, height=alt.RelativeBandSize(_BAR))
        .encode(fill=alt.Fill("fill:N", scale=None), description="description:N")
    ]
    layers = [layer.encode(x=x, x2="finish:Q", y=y) for layer in layers]
    layers.append(_rule(part.end_ms, INK, [2, 2]))
    if content.names:
        layers.append(_name_layer(bars, y))
    if content.bound_ms > 0:
        layers += [_rule(content.bound_ms, BOUND, list(BOUND_MARK.dash)), _bound_label(content.bound_ms)]
    height = (_ROW if len(rows) <= _MANY_ROWS else _DENSE_ROW) * len(rows)
    title = alt.TitleParams(part.heading, fontSize=12, fontWeight="normal", dy=-12 if content.bound_ms > 0 else 0)
    drawn: alt.LayerChart = (
        alt.layer(*layers)
        .resolve_scale(x="shared", y="shared")
        .properties(width=_WIDTH, height=height, title=title, view=alt.ViewBackground(fill=TINT, stroke=GROUND))
    )
    return drawn


def _bar(group: Sequence[Placement], kind: str, content: _Content, end_ms: float) -> Row:
    """What a bar shows of a placement, or of those of operators merged into one."""
    row = group[0]
    kind_of = content.type_of(row.operator)
    name = " + ".join(content.names.get(member.operator, "") for member in group).strip(" +")
    pixels = _WIDTH * (row.finish_ms - row.start_ms) / end_ms
    lines = [
        " + ".join(member.operator for member in group),
        kind_of,
        f"{kind}: {row.start_ms:.3f} to {row.finish_ms:.3f} ms",
        f"stage {'none' if row.stage is None else row.stage}",
    ]
    if row.devices:
        lines.append(f"devices {', '.join(map(str, row.devices))} at once")
    if inputs := content.inputs_of(row.operator):
        lines.append(f"inputs: {', '.join(inputs)}")
    return {
        "start": round(row.start_ms, _DECIMALS),
        "finish": round(row.finish_ms, _DECIMALS),
        "fill": fill_of(UNKNOWN if kind_of == _UNKNOWN_TYPE else style_of(kind_of)),
        "name": name,
        "fits": text_width(name) + _NAME_MARGIN <= pixels,
        "description": "\n".join(lines),
    }


def _rule(time_ms: float, color: str, dash: Sequence[int]) -> alt.Chart:
    """A line at a time over all rows."""
    drawn: alt.Chart = (
        inline([{"start": time_ms}])
        .mark_rule(color=color, strokeDash=list(dash), strokeWidth=1.2, aria=False)
        .encode(x="start:Q")
    )
    return drawn


def _bound_label(time_ms: float) -> alt.Chart:
    drawn: alt.Chart = (
        inline([{"start": time_ms, "text": "lower bound"}])
        .mark_text(color=BOUND, align="right", baseline="bottom", dx=-4, dy=-3, aria=False)
        .encode(x="start:Q", y={"value": 0}, text="text:N")
    )
    return drawn


def _name_layer(bars: Sequence[Mapping[str, Any]], y: alt.Y) -> alt.Chart:
    """Names in the middle of their bars; the script shows those that do not fit when zooming makes room."""
    import altair as alt

    drawn: alt.Chart = (
        inline([{**bar, "start": (bar["start"] + bar["finish"]) / 2} for bar in bars])
        .mark_text(color=ON_TYPE, fontSize=11, aria=False)
        .encode(
            x="start:Q", y=y, text="name:N", opacity=alt.when("datum.fits").then(alt.value(1)).otherwise(alt.value(0))
        )
    )
    return drawn


def _stage_bands(placements: Sequence[Placement], rows: Sequence[Lane], names: Mapping[Lane, str]) -> list[Row]:
    """A darker tint behind every other stage of a device, over all its rows."""
    spans: dict[tuple[int, int], list[Placement]] = defaultdict(list)
    for row in placements:
        if row.stage is not None and row.stage % 2:
            spans[row.device, row.stage].append(row)
    return [
        {
            "row": names[lane],
            "start": round(min(row.start_ms for row in stage), _DECIMALS),
            "finish": round(max(row.finish_ms for row in stage), _DECIMALS),
        }
        for (device, _), stage in spans.items()
        for lane in rows
        if lane[0] == device
    ]


#: Pixels: the plot, and a row.
_LATENCY_WIDTH, _LATENCY_ROW = 800, 30
#: What the chart shows of a row, with its name.
_SHOWN = {"measured_median_ms": "median", "measured_p80_ms": "p80", "predicted_ms": "predicted"}
#: Values above this multiple of the median row are cut off; the axis ends at this multiple of the largest other value.
_OUTLIER = 3.0
_LATENCY_ROOM = 1.08
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
    last = end or _LATENCY_ROOM * max(
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
    chart = alt.layer(*layers).properties(
        width=_LATENCY_WIDTH, height=_LATENCY_ROW * len(rows), description=description
    )
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
    return None if len(within) == len(values) else _LATENCY_ROOM * max(within, default=0.0) or None


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


def _cut_off(rows: Sequence[Row], end: float, decimals: int, y: alt.Y) -> alt.LayerChart | alt.FacetChart:
    """Values beyond the end of the axis, as numbers at the right end of their rows.

    An outline in the background's color keeps them apart from the bar or the line that may be behind them.
    """
    import altair as alt

    beyond = {
        row["label"]: [
            f"{name} {row[column]:.{decimals}f}" for column, name in _SHOWN.items() if (row.get(column) or 0) > end
        ]
        for row in rows
    }
    values = [{"label": label, "text": f"{', '.join(texts)} ms ▸"} for label, texts in beyond.items() if texts]
    base = inline(values).encode(y=y, x=alt.value(_LATENCY_WIDTH), text="text:N")
    return alt.layer(
        *(
            base.mark_text(align="right", dx=-6, fontWeight="bold", aria=False, **color)
            for color in ({"color": GROUND, "stroke": GROUND, "strokeWidth": 8}, {"color": INK})
        )
    )
