"""Predictions for the papers' GPUs, which figures show in a panel of their own beside measurements."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from hios.charts import marks
from hios.formats.prediction_file import GpuPrediction
from hios.formats.schedule_file import ScheduleFile
from hios.study import network_runs as runs
from hios.study.figure_data import FigureData, PredictedNetwork
from hios.study.gpu_targets import TARGETS
from hios.study.model_validation import error_in_words

if TYPE_CHECKING:
    import altair as alt

    from hios.study.registry import Figure, Row, Rows

#: In the column of platforms.
_PLATFORM = "model"
_Maker = Callable[[str, PredictedNetwork, GpuPrediction], "Rows"]
_Chart = Callable[["Rows"], "alt.TopLevelMixin"]


def beside(
    figure: Figure,
    targets: Collection[str],
    sessions: Collection[str] = ("networks",),
    *,
    rows: _Maker | None = None,
    chart: _Chart | None = None,
    words: Callable[[Rows], str] | None = None,
) -> Figure:
    """The figure with predictions for the GPUs of the paper beside what was measured.

    They have rows and a panel of their own, a sentence on the result and one on the error of such predictions where
    latencies were published. No published number is compared with them.

    Args:
        figure: of what is measured.
        targets: keys of `hios.study.gpu_targets.TARGETS`.
        sessions: of networks that are predicted: networks, images, batches or transformers.
        rows: makes the rows of a network on a target; latencies and speedups of all schedules if None.
        chart: makes the panel of a GPU; bars of latencies if None.
        words: makes the sentences on what is predicted; the speedups of all schedules or blocks if None.
    """
    predicted_finding = words or _speedups
    made, drawn, measured_chart = rows or latency_rows, chart or runs.bar_chart("schedule"), figure.chart

    def all_rows(data: FigureData) -> Rows:
        return figure.rows(data) + _predicted(data, targets, sessions, made)

    def all_charts(rows: Rows) -> alt.TopLevelMixin:
        own = _measured(rows)
        if measured_chart is None or len(own) == len(rows):
            return (measured_chart or drawn)(rows)
        return _panels(measured_chart, own, drawn, rows)

    def finding(rows: Rows) -> str:
        own = _measured(rows)
        return " ".join(filter(None, [figure.finding(own) if own else "", predicted_finding(_on_gpus(rows))]))

    def reason(rows: Rows) -> str:
        own = _measured(rows)
        return " ".join(filter(None, [figure.reason(own) if own else "", *_validations(rows, targets)]))

    return dataclasses.replace(
        figure,
        optional=(*figure.optional, *(f"predictions/{session}" for session in sessions)),
        rows=all_rows,
        chart=None if measured_chart is None else all_charts,
        compare=lambda rows: figure.compare(_measured(rows)),
        finding=finding,
        reason=reason,
    )


def _measured(rows: Rows) -> Rows:
    """The rows of the machine that the figure is about."""
    return [row for row in rows if row["platform"] != _PLATFORM]


def _on_gpus(rows: Rows) -> Rows:
    return [row for row in rows if row["platform"] == _PLATFORM]


def _predicted(data: FigureData, targets: Collection[str], sessions: Collection[str], made: _Maker) -> Rows:
    return [
        {**row, "hardware": hardware(prediction)}
        for session in sessions
        for label, network in data.predictions.get(session, {}).items()
        for prediction in network.file.predictions
        if prediction.target in targets
        for row in made(label, network, prediction)
    ]


def hardware(prediction: GpuPrediction) -> str:
    """The GPUs of a prediction in words."""
    gpus, link = prediction.platform.gpus or (), prediction.platform.link
    return f"{len(gpus)} x {gpus[0]}, {link}" if len(gpus) > 1 else gpus[0] if gpus else "GPU"


def latency_rows(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """A row for every schedule, with its speedup over the sequential one on one device."""
    baseline = prediction.schedules["sequential-1"].latency_ms
    return [
        {
            **prediction_row(label, name, schedule.algorithm, schedule.devices),
            "ms": schedule.latency_ms,
            "speedup": baseline / schedule.latency_ms if schedule.latency_ms else None,
        }
        for name, schedule in prediction.schedules.items()
    ]


def prediction_row(label: str, schedule: str, algorithm: str, devices: int) -> Row:
    """The columns that tell a prediction from others."""
    return {
        "network": label,
        "schedule": schedule,
        "algorithm": algorithm,
        "devices": devices,
        "platform": _PLATFORM,
        "mark": marks.PREDICTED.name,
    }


def first_of(prediction: GpuPrediction, algorithm: str) -> ScheduleFile | None:
    """The schedule by an algorithm; None where there is none."""
    return next((made for made in prediction.schedules.values() if made.algorithm == algorithm), None)


def _panels(measured: _Chart, own: Rows, drawn: _Chart, rows: Rows) -> alt.TopLevelMixin:
    import altair as alt

    panels: list[Any] = [_titled(measured(own), "This machine", "")] if own else []
    for name in dict.fromkeys(row["hardware"] for row in _on_gpus(rows)):
        there = _ordered([row for row in _on_gpus(rows) if row["hardware"] == name], own)
        panels.append(_titled(drawn(there), name, "predicted from its data sheet; nothing ran on it"))
    stacked: alt.VConcatChart = alt.vconcat(*panels).resolve_scale(
        y="independent",
        stroke="independent",
        fill="independent",
        shape="independent",
        strokeDash="independent",
        fillOpacity="independent",
    )
    return stacked


def _ordered(rows: Rows, own: Rows) -> Rows:
    """Rows with the schedules of each network in the order of those measured, so that colors are the same in panels."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    places = {name: place for place, name in enumerate(dict.fromkeys(row.get("schedule") for row in own))}
    return sorted(rows, key=lambda row: (networks.index(row["network"]), places.get(row.get("schedule"), len(places))))


def _titled(chart: Any, title: str, below: str) -> Any:
    import altair as alt

    text = alt.TitleParams(title, anchor="start", subtitle=below or alt.Undefined)
    return chart.properties(title=text)


def _speedups(rows: Rows) -> str:
    """Predicted speedups by hardware, in sentences."""
    sentences = []
    for name in dict.fromkeys(row["hardware"] for row in _on_gpus(rows)):
        own = [row for row in _on_gpus(rows) if row["hardware"] == name and row["speedup"]]
        texts = [
            f"{row['schedule']} {row['speedup']:.2f} on {row['network']}"
            for row in own
            if row.get("algorithm", "sequential") != "sequential"
        ]
        if blocks := [row for row in own if "block" in row]:
            best = max(blocks, key=lambda row: float(row["speedup"]))
            place = f"block {best['block']} of {best['network']}"
            sentences.append(f"Predicted for {name}: at most {best['speedup']:.2f}, of {place}.")
        if texts:
            sentences.append(f"Predicted for {name}, as a speedup over the sequential schedule: {'; '.join(texts)}.")
    return " ".join(sentences)


def _validations(rows: Rows, targets: Collection[str]) -> list[str]:
    """How far predictions are from what was published, for every GPU that rows are of."""
    shown = {row["hardware"] for row in _on_gpus(rows)}
    gpus = {TARGETS[name].gpu: name for name in targets}
    from hios.platforms.model import descriptions

    words = {gpu: descriptions.gpu(gpu).name for gpu in gpus}
    return [error_in_words(gpu, name) for gpu, name in words.items() if any(name in text for text in shown)]
