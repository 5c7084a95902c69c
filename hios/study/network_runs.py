"""Shared by figures of measured networks: latencies of schedules from run.json, and box plots of all runs.

Figures over batch sizes also have the batch size that each schedule was made for, and the one that it ran with.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hios.charts import marks
from hios.formats.run_file import Latency, Run, ScheduleResult
from hios.formats.schedule_file import Placement
from hios.study.figure_data import FigureData, Network, PredictedNetwork
from hios.study.published import published
from hios.study.verdicts import Comparison

if TYPE_CHECKING:
    import altair as alt

    from hios.study.registry import Row, Rows

_WIDTH, _STEP = 330, 24
_MS_PER_S = 1000.0
#: Labels of networks of the session batches, and of schedules that were made for another batch size.
_LABEL = re.compile(r"(?P<network>.+)-b(?P<batch>[0-9]+)")
_MADE_FOR = re.compile(r".+-for-b(?P<batch>[0-9]+)")


def schedule_rows(data: FigureData, algorithms: Collection[str], *, devices: int | None = None) -> Rows:
    """A row for the measured and one for the predicted latency of every schedule of some algorithms.

    Args:
        data: with networks.
        algorithms: names in the registry; the baseline stands for the sequential schedule where no other does.
        devices: number of devices; all if None.
    """
    rows: Rows = []
    for network, run in _runs(data):
        for result in run.results:
            if result.algorithm in algorithms and devices in (None, result.devices):
                rows += _of_schedule(network, run, result)
        if "sequential" in algorithms and not any(r.algorithm == "sequential" and r.devices == 1 for r in run.results):
            rows.append(_measured(network, run, "sequential", "sequential", 1, run.baseline.latency_ms, 1.0))
    return rows


def reference_rows(data: FigureData, kinds: Collection[str] = ()) -> Rows:
    """A row for every other way in which the networks ran: PyTorch, torch.compile, ONNX Runtime, TensorRT.

    Args:
        data: with networks.
        kinds: what may have run them, as run.json names it; anything if empty.
    """
    return [
        _measured(network, run, reference.name, reference.kind or "", reference.threads, reference.latency_ms, speedup)
        for network, run in _runs(data)
        for reference in run.references
        if not kinds or reference.kind in kinds
        if (speedup := run.baseline.latency_ms.median / reference.latency_ms.median)
    ]


def with_throughput(rows: Rows) -> Rows:
    """Rows with their throughput over that of the network's best row with the same mark."""
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        key = (row["network"], row["mark"])
        best[key] = min(best.get(key, row["ms"]), row["ms"])
    return [{**row, "normalized throughput": best[row["network"], row["mark"]] / row["ms"]} for row in rows]


def _runs(data: FigureData) -> Iterable[tuple[str, Run]]:
    return ((label, network.run) for label, network in data.networks.items())


def _of_schedule(network: str, run: Run, result: ScheduleResult) -> Rows:
    name, devices = result.label, result.devices
    measured = _measured(network, run, name, result.algorithm, devices, result.latency_ms, result.speedup)
    predicted = {
        **measured,
        "mark": marks.PREDICTED.name,
        "ms": result.predicted_ms,
        **dict.fromkeys(("p20 ms", "p80 ms", "least ms", "q1 ms", "q3 ms", "most ms", "speedup")),
        "runs": 0,
    }
    return [measured, predicted]


def _measured(
    network: str, run: Run, label: str, algorithm: str, devices: int, latency: Latency, speedup: float
) -> Row:
    q1, _, q3 = (
        statistics.quantiles(latency.runs, n=4, method="inclusive") if len(latency.runs) > 1 else latency.runs * 3
    )
    return {
        "network": network,
        "schedule": label,
        "algorithm": algorithm,
        "devices": devices,
        "platform": run.platform.name,
        "mark": marks.MEASURED.name,
        "ms": latency.median,
        "p20 ms": latency.p20,
        "p80 ms": latency.p80,
        "least ms": min(latency.runs),
        "q1 ms": q1,
        "q3 ms": q3,
        "most ms": max(latency.runs),
        "runs": len(latency.runs),
        "speedup": speedup,
    }


def latencies(rows: Rows, algorithm: str, column: str = "ms") -> dict[str, float]:
    """A column of the measured rows of an algorithm by network; of several schedules the fastest."""
    best: dict[str, Row] = {}
    for row in rows:
        if row["algorithm"] == algorithm and row["mark"] == marks.MEASURED.name:
            known = best.setdefault(row["network"], row)
            best[row["network"]] = min(known, row, key=lambda candidate: float(candidate["ms"]))
    return {network: row[column] for network, row in best.items()}


def with_images(data: FigureData) -> Mapping[str, Network]:
    """The networks of the configuration, and those on images of other sizes."""
    return {**data.networks, **data.variants.get("images", {})}


def image_size(network: Network | PredictedNetwork) -> int | None:
    """Width of the images of a network in pixels; None where it takes none."""
    return network.graph.inputs[0].shape[-1] if network.graph.inputs else None


def span(placements: Iterable[Placement], block: Iterable[str]) -> float:
    """Milliseconds from the first start to the last finish of a block's operators."""
    own = set(block)
    times = [(row.start_ms, row.finish_ms) for row in placements if row.operator in own]
    return max(finish for _, finish in times) - min(start for start, _ in times)


def on_gpu(rows: Rows) -> bool:
    """Whether rows were measured on GPUs, as the published numbers are."""
    return bool(rows) and all(row["platform"] == "cuda" for row in rows)


def comparisons(figure: str, rows: Rows, numbers: Mapping[str, Mapping[str, float]]) -> list[Comparison]:
    """Published statements beside what was measured on GPUs; nothing measured on cores is compared with them.

    Args:
        figure: id in published.yaml.
        rows: of the figure.
        numbers: measured, by name of the statement, by network.
    """
    if not on_gpu(rows):
        return []
    return [
        Comparison(entry, dict(own) if entry.cases else (min(own.values()), max(own.values())))
        for name, entry in published(figure).items()
        if (own := numbers.get(name))
    ]


def bar_chart(what: str, column: str = "ms", title: str = "latency, ms") -> Callable[[Rows], alt.TopLevelMixin]:
    """Makes bars of a column by network and schedule, filled where measured and outlined where predicted.

    Args:
        what: the column that names the bars.
        column: their length.
        title: of the axis.
    """

    def draw(rows: Rows) -> alt.TopLevelMixin:
        import altair as alt

        shown = [
            {**row, "place": f"{row['network']}, {row[what]}", "description": _words(row, what, column)}
            for row in rows
            if row[column] is not None
        ]
        x = alt.X(f"{column}:Q", title=title)
        y = alt.Y("place:N", sort=_places(shown), title=None, axis=alt.Axis(labelLimit=260))
        drawn: alt.Chart = marks.bars(shown, x=x, y=y, series=what, beside=alt.YOffset("mark:N"))
        return drawn.properties(width=_WIDTH, height=alt.Step(_STEP))

    return draw


def box_plot(rows: Rows) -> alt.TopLevelMixin:
    """All measured runs by schedule: box from the first to the third quartile, whiskers to the shortest and longest."""
    import altair as alt

    shown = [
        {**row, "place": f"{row['network']}, {row['schedule']}", "description": _box_words(row)}
        for row in rows
        if row["mark"] == marks.MEASURED.name
    ]
    base = alt.Chart(alt.InlineData(values=shown))
    looks = marks.colors(list(dict.fromkeys(row["schedule"] for row in shown)), "schedule")
    y = alt.Y("place:N", sort=_places(shown), title=None, axis=alt.Axis(labelLimit=260))
    domain = alt.Scale(zero=False)
    whiskers = base.mark_rule(aria=False).encode(
        alt.X("least ms:Q", title="latency, ms", scale=domain), alt.X2("most ms:Q"), y, looks["stroke"]
    )
    box = base.mark_bar(size=12, fillOpacity=0.35).encode(
        alt.X("q1 ms:Q", scale=domain), alt.X2("q3 ms:Q"), y, *looks.values(), alt.Description("description:N")
    )
    median = base.mark_tick(size=12, thickness=2, aria=False).encode(alt.X("ms:Q", scale=domain), y, looks["stroke"])
    layered: alt.TopLevelMixin = alt.layer(whiskers, box, median).properties(width=_WIDTH, height=alt.Step(_STEP))
    return layered


def _places(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(row["place"]) for row in rows))


def _words(row: Mapping[str, Any], what: str, column: str) -> str:
    return f"{row['network']}, {row[what]}: {column} {row[column]:.4g}, {row['mark']}"


def _box_words(row: Mapping[str, Any]) -> str:
    quartiles = f"quartiles {row['q1 ms']:.3g} and {row['q3 ms']:.3g}"
    return f"{row['network']}, {row['schedule']}: median {row['ms']:.3g} ms, {quartiles}, {row['runs']} runs"


def batch_rows(data: FigureData, algorithms: Collection[str], references: Collection[str] = ()) -> Rows:
    """A row for every network, batch size, schedule and mark.

    Args:
        data: with the session batches.
        algorithms: names in the registry.
        references: other ways to run the networks, as run.json names them.
    """
    session = FigureData(networks=data.variants.get("batches", {}))
    rows = schedule_rows(session, algorithms, devices=1)
    if references:
        rows += reference_rows(session, references)
    return [with_batch(row) for row in rows]


def with_batch(row: Row) -> Row:
    """A row of a network of the session, whose label names the batch size, with columns for it and the throughput."""
    network, batch, made_for = batches_of(row["network"], row["schedule"])
    more = {
        "batch": batch,
        "made for batch": made_for,
        "images a s": _MS_PER_S * batch / row["ms"] if row["ms"] else None,
    }
    return {**row, "network": network, **more}


def batches_of(label: str, schedule: str) -> tuple[str, int, int]:
    """A network, the batch size that it runs with, and the one that a schedule was made for.

    Args:
        label: of the network in the session, such as ``inception_v3-b4``.
        schedule: its label, such as ``ios-1``, or ``ios-for-b1``.
    """
    own, other = _LABEL.fullmatch(label), _MADE_FOR.fullmatch(schedule)
    network, batch = (own["network"], int(own["batch"])) if own else (label, 1)
    return network, batch, int(other["batch"]) if other else batch


def throughput_chart(rows: Rows) -> alt.TopLevelMixin:
    """Images a second over the batch size, a line for every network and algorithm."""
    import altair as alt

    shown = [
        {
            **row,
            "series": f"{row['network']}, {row['algorithm']}",
            "description": f"{row['algorithm']}, batch {row['batch']}: {row['images a s']:.3g} a second, {row['mark']}",
        }
        for row in rows
        if row["images a s"] is not None
    ]
    x = alt.X("batch:Q", axis=alt.Axis(values=sorted({row["batch"] for row in rows})))
    drawn: alt.TopLevelMixin = marks.lines(
        shown, x=x, y=alt.Y("images a s:Q", title="images a second"), series="series"
    )
    return drawn
