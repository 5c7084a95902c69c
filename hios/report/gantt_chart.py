"""Gantt charts: a row a stream of a device, a bar an operator. All times in milliseconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hios.charts.marks import BOUND as BOUND_MARK
from hios.charts.marks import inline
from hios.charts.rendering import fill_of, to_svg
from hios.charts.theme import BOUND, GROUND, INK, ON_TYPE, OUTLINE, STAGE_TINT, TINT, UNKNOWN, style_of
from hios.formats.run_file import ScheduleResult
from hios.graph import Graph
from hios.report.graph_layout import text_width
from hios.report.model_results import ModelResults
from hios.report.short_names import Lane, lane_names, lanes, lanes_of, short_names
from hios.report.tables import Row
from hios.schedule import Placement, Schedule, merged_rows

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


def predicted_chart(schedule: Schedule, label: str, graph: Graph, identity: str) -> GanttChart:
    """A schedule that was not run, as predicted."""
    part = _Pass("predicted", schedule.placements, f"predicted, {schedule.latency_ms:.3f} ms")
    content = _Content(schedule.devices, lambda name: graph.operators[graph.index[name]].type, _inputs(graph), {})
    description = f"Gantt chart of {label} for {graph.name}, predicted, {schedule.latency_ms:.3f} ms"
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
