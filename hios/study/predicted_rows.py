"""Predictions for the papers' GPUs, which figures show in a panel of their own beside measurements, and their errors.

How far predictions are from published latencies is read from predicted_rows.yaml, which
``python benchmarks/model_validation.py --write`` writes.
"""

from __future__ import annotations

import functools
import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hios.charts import marks
from hios.core.schedule import ScheduleFile
from hios.files.yaml_file import plain, read_yaml
from hios.formats.partition import GpuPrediction
from hios.platforms.model import descriptions
from hios.study import run_rows as runs
from hios.study.figure_data import FigureData, PredictedNetwork
from hios.study.figure_listing import chart_of_table
from hios.study.gpu_targets import TARGETS
from hios.study.published import PREDICTED, Comparison
from hios.study.registry import Figure
from hios.study.rows import Row, Rows, grouped

if TYPE_CHECKING:
    import altair as alt

VALIDATION_FILE = Path(__file__).with_suffix(".yaml")
#: What tells GPUs apart in their names, such as A100 and 2080 Ti; not their gigabytes.
_MODEL = re.compile(r"\b(?:[a-z][0-9]{2,}s?|[0-9]{4}(?: ti| super)?)\b")
#: In the column of platforms.
_PLATFORM = "model"
_Maker = Callable[[str, PredictedNetwork, GpuPrediction], Rows]
#: The same of a network among all of its session.
_Across = Callable[[str, Mapping[str, PredictedNetwork], GpuPrediction], Rows]
_Chart = Callable[[Rows], "alt.TopLevelMixin"]


def predictions(
    *,
    rows: _Maker | None = None,
    across: _Across = lambda label, networks, prediction: [],
    chart: _Chart | None = None,
    words: Callable[[Rows], str] | None = None,
    target: str = "",
) -> Callable[[Figure], Figure]:
    """Adds predictions for the GPUs of the paper to a figure, beside what was measured.

    They have rows and a panel of their own, a sentence on the result and one on the error of such predictions where
    latencies were published. Published numbers are compared with measurements and, as predicted for a GPU, with
    predictions for the GPU that they were measured on. The networks are those of the sessions
    ``predictions/...`` of the figure, the GPUs those of its paper in `hios.study.gpu_targets`: the target that has the
    paper's name, or where none has it all of the paper.

    Args:
        rows: makes the rows of a network on a target; latencies and speedups of all schedules if None.
        across: makes more rows of a network on a target, from all networks of its session.
        chart: makes the panel of a GPU; bars of latencies if None.
        words: makes the sentences on what is predicted; the speedups of all schedules or blocks if None.
        target: the only target, where it is another than the paper's.
    """
    return functools.partial(
        _beside,
        made=rows or latency_rows,
        across=across,
        drawn=chart or runs.bar_chart("schedule"),
        words=words or _speedups,
        target=target,
    )


def _beside(
    figure: Figure, *, made: _Maker, across: _Across, drawn: _Chart, words: Callable[[Rows], str], target: str
) -> Figure:
    sessions = [name.partition("/")[2] for name in figure.optional if name.startswith("predictions/")]
    paper = target or figure.id.partition("_")[0]
    targets = [paper] if paper in TARGETS else [name for name in TARGETS if name.partition("-")[0] == paper]

    def all_rows(data: FigureData) -> Rows:
        return figure.rows(data) + [
            {**row, "hardware": hardware(prediction), "launches": TARGETS[prediction.target].launches}
            for session in sessions
            for networks in [data.predictions.get(session, {})]
            for label, network in networks.items()
            for prediction in network.file.predictions
            if prediction.target in targets
            for row in made(label, network, prediction) + across(label, networks, prediction)
        ]

    def all_charts(rows: Rows) -> alt.TopLevelMixin:
        own, measured_chart = _measured(rows), figure.chart or functools.partial(chart_of_table, figure)
        if len(own) == len(rows):
            return measured_chart(rows)
        here = [("This machine", "", measured_chart(own))] if own else []
        others = [
            (name, "predicted from its data sheet; nothing ran on it", drawn(_ordered(there, own)))
            for name, there in grouped(_on_gpus(rows), "hardware").items()
        ]
        return marks.panels([*here, *others])

    def finding(rows: Rows) -> str:
        own, there = _measured(rows), _on_gpus(rows)
        return " ".join(filter(None, [figure.finding(own) if own else "", words(there)]))

    def explain(rows: Rows) -> str:
        own = _measured(rows)
        return " ".join(filter(None, [figure.why(own) if own else figure.reason, *_validations(rows, targets)]))

    return msgspec.structs.replace(
        figure,
        rows=all_rows,
        chart=all_charts,
        compare=lambda rows: [*figure.compare(_measured(rows)), *_compared(figure, _on_gpus(rows))],
        finding=finding,
        reason="",  # part of what explains
        explain=explain,
    )


def _measured(rows: Rows) -> Rows:
    """The rows of the machine that the figure is about."""
    return [row for row in rows if row.get("platform") != _PLATFORM]


def _on_gpus(rows: Rows) -> Rows:
    return [row for row in rows if row.get("platform") == _PLATFORM]


def hardware(prediction: GpuPrediction) -> str:
    """The GPUs of a prediction in words."""
    gpus, link = prediction.platform.gpus or (), prediction.platform.link
    return f"{len(gpus)} x {gpus[0]}, {link}" if len(gpus) > 1 else gpus[0] if gpus else "GPU"


def _compared(figure: Figure, rows: Rows) -> Iterator[Comparison]:
    """Predictions for each GPU beside what was published for it, as measurements would be; then what takes all GPUs."""
    groups = grouped(rows, "hardware")
    told: set[str] = set()
    for name, there in {**groups, " and ".join(groups): rows}.items():
        as_measured: Rows = [{**row, "platform": "cuda", "mark": marks.MEASURED.name} for row in there]
        for entry in figure.compare(as_measured):
            key = entry.published.key
            if entry.found is None or not _models(name) & _models(entry.published.hardware):
                continue
            if name in groups or key not in told:
                told.add(key)
                yield replace(entry, by=f"{PREDICTED} {name}")


def _models(hardware: str) -> set[str]:
    return set(_MODEL.findall(hardware.lower()))


def latencies_of(*algorithms: str) -> _Maker:
    """Makes the rows of `latency_rows` of some algorithms."""

    def made(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
        return [row for row in latency_rows(label, network, prediction) if row["algorithm"] in algorithms]

    return made


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


def _ordered(rows: Rows, own: Rows) -> Rows:
    """Rows with the schedules of each network in the order of those measured, so that colors are the same in panels."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    places = {name: place for place, name in enumerate(dict.fromkeys(row.get("schedule") for row in own))}
    return sorted(rows, key=lambda row: (networks.index(row["network"]), places.get(row.get("schedule"), len(places))))


def _speedups(rows: Rows) -> str:
    """Predicted speedups by hardware, in sentences."""
    sentences = []
    for name, there in grouped(_on_gpus(rows), "hardware").items():
        own = [row for row in there if row["speedup"]]
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


def _validations(rows: Rows, targets: list[str]) -> list[str]:
    """How far predictions are from what was published, for every GPU that rows are of."""
    shown = grouped(_on_gpus(rows), "hardware")
    gpus = {gpu: descriptions.gpu(gpu).name for gpu in dict.fromkeys(TARGETS[name].gpu for name in targets)}
    return [error_in_words(gpu, name) for gpu, name in gpus.items() if any(name in text for text in shown)]


class ValidationRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published latency of a sequential schedule, and the predicted one.

    ``fitted``: whether the parameters of the model were fitted to it, among others.
    """

    paper: str
    gpu: str
    network: str
    batch: int
    published_ms: float
    predicted_ms: float
    fitted: bool

    @property
    def error(self) -> float:
        """Predicted over published, less 1."""
        return self.predicted_ms / self.published_ms - 1


@functools.cache
def validation_rows() -> tuple[ValidationRow, ...]:
    """All that is published."""
    return tuple(msgspec.convert(plain(read_yaml(VALIDATION_FILE), str(VALIDATION_FILE), ()), list[ValidationRow]))


def error_in_words(gpu: str, name: str) -> str:
    """How far predicted sequential latencies are from those that were published for a GPU of this description."""
    own = [row for row in validation_rows() if row.gpu == gpu]
    where = f"for the {name}"
    if not own:
        own, where = list(validation_rows()), "for other GPUs, as none are for this one,"
    count = sum(row.fitted for row in own)
    fitted = "all" if count == len(own) else count or "none"
    errors = [100 * abs(row.error) for row in own]
    return (
        f"Sequential latencies that were published {where} differ from predicted ones by "
        f"{statistics.median(errors):.0f} % in the median and {max(errors):.0f} % at most ({len(own)} "
        f"latencies, {fitted} of which the model was fitted to; python benchmarks/model_validation.py)."
    )
