"""Rows of figures of measured networks, from run.json, with the charts and sentences that these figures share.

Figures over batch sizes also have the batch size that each schedule was made for, and the one that it ran with.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from hios.charts import marks
from hios.core.graph import IMAGE_DIMENSIONS, Graph
from hios.core.schedule import Placement
from hios.formats.run import Latency, ReferenceKind, Run, ScheduleResult
from hios.study.figure_data import ExecutedNetwork, FigureData, PredictedNetwork
from hios.study.published import Comparison, comparisons, published
from hios.study.rows import Row, Rows, grouped, measured

if TYPE_CHECKING:
    import altair as alt

_WIDTH, _STEP = 330, 24
_MS_PER_S = 1000.0
#: Labels of networks of the session batches, and of schedules that were made for another batch size.
_LABEL = re.compile(r"(?P<network>.+)-b(?P<batch>[0-9]+)")
_MADE_FOR = re.compile(r".+-for-b(?P<batch>[0-9]+)")
#: What a device is, by platform.
_DEVICES = {"cpu": "cores", "cuda": "GPUs"}
#: Share of a latency up to which schedules of a core differ by little.
_LITTLE = 0.05
#: Values of the column `algorithm` for references; empty in older runs, which do not state the kind.
_REFERENCES = ("", *get_args(ReferenceKind))


def schedule_rows(data: FigureData, algorithms: Collection[str], *, devices: int | None = None) -> Rows:
    """A row for the measured and one for the predicted latency of every schedule of some algorithms.

    The baseline stands for the sequential schedule where no other does. They are those of a number of devices, or all.
    """
    rows: Rows = []
    for label, network in data.networks.items():
        run = network.run
        for result in run.results:
            if result.algorithm in algorithms and devices in (None, result.devices):
                rows += _of_schedule(label, run, result)
        if "sequential" in algorithms and not any(r.algorithm == "sequential" and r.devices == 1 for r in run.results):
            rows.append(_measured(label, run, "sequential", "sequential", 1, run.baseline.latency_ms, 1.0))
    return rows


def reference_rows(data: FigureData, kinds: Collection[str] = ()) -> Rows:
    """A row for every other way in which the networks ran, of some kinds or of all: PyTorch, TensorRT, ..."""
    return [
        _measured(label, run, reference.name, reference.kind or "", reference.threads, reference.latency_ms, speedup)
        for label, run in ((label, network.run) for label, network in data.networks.items())
        for reference in run.references
        if not kinds or reference.kind in kinds
        if (speedup := run.baseline.latency_ms.median / reference.latency_ms.median)
    ]


def rows_beside_references(data: FigureData, algorithms: Collection[str]) -> Rows:
    """Schedules of some algorithms on one device, and every other way in which the networks ran."""
    return schedule_rows(data, algorithms, devices=1) + reference_rows(data)


def with_throughput(rows: Rows) -> Rows:
    """Rows with their throughput over that of the network's best row with the same mark."""
    own = grouped(rows, lambda row: (row["network"], row["mark"]))
    best = {key: min(row["ms"] for row in timed) for key, timed in own.items()}
    return [{**row, "normalized throughput": best[row["network"], row["mark"]] / row["ms"]} for row in rows]


def _of_schedule(network: str, run: Run, result: ScheduleResult) -> Rows:
    name, devices = result.label, result.devices
    timed = _measured(network, run, name, result.algorithm, devices, result.latency_ms, result.speedup)
    predicted = {
        **timed,
        "mark": marks.PREDICTED.name,
        "ms": result.predicted_ms,
        **dict.fromkeys(("p20 ms", "p80 ms", "least ms", "q1 ms", "q3 ms", "most ms", "speedup")),
        "runs": 0,
    }
    return [timed, predicted]


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
    own = grouped([row for row in measured(rows) if row["algorithm"] == algorithm], "network")
    return {network: min(timed, key=lambda row: float(row["ms"]))[column] for network, timed in own.items()}


def over_fastest(rows: Rows, algorithm: str, others: Collection[str]) -> dict[str, float]:
    """Latency of the fastest of other algorithms over that of one, by network of IOS's benchmark that ran by all."""
    own, theirs = latencies(rows, algorithm), [latencies(rows, other) for other in others]
    ran = BENCHMARK.intersection(own, *theirs)
    return {name: min(times[name] for times in theirs) / own[name] for name in ran}


#: The networks of IOS's benchmark, which LIOS uses too.
BENCHMARK = frozenset({"inception_v3", "nasnet_large", "squeezenet", "randwire"})


def of_benchmark(values: Mapping[str, float]) -> dict[str, float]:
    """The values of the networks of IOS's benchmark."""
    return {network: value for network, value in values.items() if network in BENCHMARK}


def geometric_means(numbers: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Of the numbers by network of each schedule that has all four of the benchmark."""
    return {
        name: statistics.geometric_mean(own[network] for network in BENCHMARK)
        for name, own in numbers.items()
        if own.keys() >= BENCHMARK
    }


def size_rows(graphs: Iterable[Graph]) -> Rows:
    """A row for every network: its blocks and operators."""
    return [{"network": graph.name, "blocks": len(graph.blocks), "operators": len(graph.operators)} for graph in graphs]


def of_network(network: str, values: Mapping[str, float]) -> dict[str, float]:
    """The value of a network; none where it has none."""
    return {name: value for name, value in values.items() if name == network}


def measured_placements(run: Run, algorithm: str) -> Sequence[Placement]:
    """The measured placements of an algorithm's first schedule of one device; empty without one."""
    own = [result.measured for result in run.results if (result.algorithm, result.devices) == (algorithm, 1)]
    return own[0] if own else ()


def image_size(network: ExecutedNetwork | PredictedNetwork) -> int | None:
    """Width of the images of a network in pixels; None where it takes none."""
    shape = network.graph.inputs[0].shape if network.graph.inputs else ()
    return shape[-1] if len(shape) == IMAGE_DIMENSIONS else None


def span(placements: Iterable[Placement], block: Iterable[str]) -> float:
    """Milliseconds from the first start to the last finish of a block's operators."""
    own = set(block)
    times = [(row.start_ms, row.finish_ms) for row in placements if row.operator in own]
    return max(finish for _, finish in times) - min(start for start, _ in times)


def on_gpu(rows: Rows) -> bool:
    """Whether rows were measured on GPUs, as the published numbers are."""
    return bool(rows) and all(row.get("platform") == "cuda" for row in rows)


def measured_comparisons(figure: str, rows: Rows, numbers: Mapping[str, Mapping[str, float]]) -> list[Comparison]:
    """Published statements beside what was measured on GPUs, by name of the statement and network or case.

    Nothing measured on cores is compared with them.
    """
    return comparisons(figure, numbers if on_gpu(rows) else dict.fromkeys(numbers))


def columns_compared(figure: str, rows: Rows, wired: Collection[str] = ()) -> list[Comparison]:
    """Published statements beside the columns of their names, by network; ``wired`` ones without RandWire."""
    found = {
        name: {row["network"]: float(row[name]) for row in rows if name not in wired or row["network"] != "randwire"}
        for name in published(figure)
    }
    lacking = "its wiring here is our own" if wired else ""
    return [replace(entry, lacking=lacking) for entry in comparisons(figure, found)]


def bar_chart(what: str, column: str = "ms", title: str = "latency, ms") -> Callable[[Rows], alt.TopLevelMixin]:
    """Makes bars of a column by network and the column ``what``, filled where measured, outlined where predicted."""
    return marks.bar_chart(
        column,
        title,
        place=lambda row: f"{row['network']}, {row[what]}",
        series=what,
        words=lambda row: f"{row['network']}, {row[what]}: {column} {row[column]:.4g}, {row['mark']}",
        width=_WIDTH,
        step=_STEP,
        label_limit=260,
        ticks=None,
    )


def box_plot(rows: Rows) -> alt.TopLevelMixin:
    """All measured runs by schedule: box from the first to the third quartile, whiskers to the shortest and longest."""
    import altair as alt

    shown = [
        {**row, "place": f"{row['network']}, {row['schedule']}", "description": _box_words(row)}
        for row in measured(rows)
    ]
    base = alt.Chart(alt.InlineData(values=shown))
    looks = marks.colors(list(dict.fromkeys(row["schedule"] for row in shown)), "schedule")
    y = alt.Y(
        "place:N", sort=list(dict.fromkeys(row["place"] for row in shown)), title=None, axis=alt.Axis(labelLimit=260)
    )
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


def _box_words(row: Row) -> str:
    quartiles = f"quartiles {row['q1 ms']:.3g} and {row['q3 ms']:.3g}"
    return f"{row['network']}, {row['schedule']}: median {row['ms']:.3g} ms, {quartiles}, {row['runs']} runs"


def own_batch_rows(data: FigureData, algorithms: Collection[str], references: Collection[str]) -> Rows:
    """`batch_rows` of schedules with the batch size that they were made for."""
    return [row for row in batch_rows(data, algorithms, references) if row["made for batch"] == row["batch"]]


def batch_rows(data: FigureData, algorithms: Collection[str], references: Collection[str] = ()) -> Rows:
    """A row for every network, batch size and mark of schedules of some algorithms, and of some kinds of references."""
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


def by_batch(rows: Rows, algorithm: str) -> dict[str, float]:
    """Measured milliseconds of Inception-v3 under an algorithm, by batch size."""
    return {
        str(row["batch"]): row["ms"]
        for row in measured(rows)
        if (row["network"], row["algorithm"]) == ("inception_v3", algorithm)
    }


def batches_of(label: str, schedule: str) -> tuple[str, int, int]:
    """A network, the batch size that it runs with, and the one that a schedule was made for.

    Networks have labels such as ``inception_v3-b4``, schedules ``ios-1`` or ``ios-for-b1``.
    """
    own, other = _LABEL.fullmatch(label), _MADE_FOR.fullmatch(schedule)
    network, batch = (own["network"], int(own["batch"])) if own else (label, 1)
    return network, batch, int(other["batch"]) if other else batch


#: Images a second over the batch size, a line for every network and algorithm.
throughput_chart = marks.line_chart(
    "batch",
    "images a s",
    series=lambda row: f"{row['network']}, {row['algorithm']}",
    words=lambda row: f"{row['algorithm']}, batch {row['batch']}: {row['images a s']:.3g} a second, {row['mark']}",
    x_axis=lambda rows: {"axis": {"values": sorted({row["batch"] for row in rows})}},
    y_axis={"title": "images a second"},
)


def speedups(rows: Rows) -> str:
    """Speedup over the sequential schedule on one device of everything that was measured, by network."""
    texts = [
        f"{_name(row)} {row['speedup']:.2f} on {row['network']}"
        for row in measured(rows)
        if row["speedup"] is not None and (row["algorithm"], row["devices"]) != ("sequential", 1)
    ]
    return f"Speedup over the sequential schedule on one device, measured on {_where(rows)}: {'; '.join(texts)}."


def spreads(rows: Rows) -> str:
    """How far the quartiles of the runs are apart, as a share of their median."""
    texts = [
        f"{_name(row)} {100 * (row['q3 ms'] - row['q1 ms']) / row['ms']:.1f} % on {row['network']}"
        for row in measured(rows)
    ]
    return f"Interquartile range of the runs on {_where(rows)}, relative to the median: {'; '.join(texts)}."


def listing(lead: str, of_row: str, *, between: str = ", ", end: str = ".") -> Callable[[Rows], str]:
    """Makes a sentence that lists the rows; ``of_row`` is what it says of one, with the names of columns in braces."""
    return lambda rows: f"{lead} {between.join(map(of_row.format_map, rows))}{end}"


def on_cores(text: Callable[[Rows], str]) -> Callable[[Rows], str]:
    """A sentence that holds for cores alone: it is empty for rows of other platforms."""
    return lambda rows: text(rows) if rows and all(row.get("platform") == "cpu" for row in rows) else ""


def one_operator_fills_a_core(rows: Rows) -> str:
    """How far apart the medians of schedules of one device are, and why, where that is little.

    Where they are farther apart nothing is explained: busy cores can do that too.
    """
    shares = {
        network: max(row["ms"] for row in own) / min(row["ms"] for row in own) - 1
        for network, own in grouped([row for row in measured(rows) if row["devices"] == 1], "network").items()
        if len(own) > 1
    }
    if not shares:
        return ""
    apart = " and ".join(f"{100 * share:.1f} % on {network}" for network, share in shares.items())
    spread = f"The slowest schedule of one core is above the fastest by {apart}"
    if max(shares.values()) > _LITTLE:
        return f"{spread}; that is too much for what one operator on a core leaves to gain, and is not explained."
    return f"{spread}: one operator fills a core, so streams and stages of one device gain next to nothing."


def stand_ins(rows: Rows, instead_of: str) -> str:
    """Which runtimes stand for frameworks that did not run."""
    names = dict.fromkeys(row["schedule"] for row in measured(rows) if row["algorithm"] in _REFERENCES)
    return f"Instead of {instead_of}, this figure shows {', '.join(names)}." if names else ""


def gain_of_groups(rows: Rows, algorithm: str) -> str:
    """The change of measured latency by grouping operators on a device, relative to the inter-GPU part alone."""
    times = {(row["network"], row["devices"], row["algorithm"]): row["ms"] for row in measured(rows)}
    changes = [
        f"{100 * (time / before - 1):+.1f} % on {network} with {devices} devices"
        for (network, devices, name), time in times.items()
        if name == algorithm and devices > 1 and (before := times.get((network, devices, f"{algorithm}-inter")))
    ]
    return f"Groups change the latency of {algorithm} by {' and '.join(changes)}." if changes else ""


def _name(row: Row) -> str:
    """A schedule or reference in words; those of several devices or threads say of how many."""
    name, count = row["schedule"], row["devices"]
    unit = "threads" if row["algorithm"] in _REFERENCES else "devices"
    return name if count == 1 else f"{name} ({count} {unit})"


def _where(rows: Rows) -> str:
    platforms = dict.fromkeys(str(row["platform"]) for row in rows)
    return " and ".join(_DEVICES.get(platform, platform) for platform in platforms)
