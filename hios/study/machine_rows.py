"""Rows of figures that compare hardware: several machines by the same networks, or one by convolutions of all sizes.

Figures of several machines have the rows of every machine, and a panel for each. Specialization for devices (IOS,
table 3) has rows of its own: the schedules of one machine under the costs of another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hios.charts import marks
from hios.core.costs import Costs
from hios.core.evaluate import evaluate, latency_ms
from hios.core.graph import Graph
from hios.core.problem import Problem
from hios.core.schedule import Schedule
from hios.errors import HiosError
from hios.formats.run import ScheduleResult
from hios.formats.study import ConvolutionSize
from hios.platforms.model.descriptions import Gpu, GpuLink
from hios.platforms.model.kernel_work import MatrixProduct
from hios.platforms.model.roofline import DEFAULT_EFFICIENCY, STREAM_LAUNCH_US, predict
from hios.study import run_rows as runs
from hios.study.figure_data import ExecutedNetwork, FigureData
from hios.study.published import Comparison, published
from hios.study.rows import Row, Rows, grouped, measured

if TYPE_CHECKING:
    import altair as alt

#: The name of this machine in the column `machine`.
HERE = "this machine"
_UNKNOWN = "unknown hardware"
#: The algorithm whose schedules are compared across machines (IOS, table 3).
_ALGORITHM = "ios"
#: Relative difference between times that rounding explains.
_ROUNDING = 1e-6
#: Height and width of HIOS's convolution, and bytes of a number.
_KERNEL, _BYTES = 5, 4


def machine_rows(data: FigureData, rows: Callable[[FigureData], Rows]) -> Rows:
    """The measured rows of this machine and of every archive, made by ``rows`` for each; none without an archive."""
    if not data.machines:
        return []
    own = _of_machine(HERE, _UNKNOWN, data.networks, rows)
    others = [
        row
        for name, machine in data.machines.items()
        for row in _of_machine(name, machine.processor, machine.networks, rows)
    ]
    return own + others


def _of_machine(
    name: str, processor: str, networks: dict[str, ExecutedNetwork], rows: Callable[[FigureData], Rows]
) -> Rows:
    """Rows with machine and hardware: what run.json says that it ran on, else the processor."""
    return [
        {"machine": name, "hardware": networks[row["network"]].run.platform.hardware or processor, **row}
        for row in measured(rows(FigureData(networks=networks)))
    ]


def comparisons(
    figure: str, statement: str, rows: Rows, values: Callable[[Rows], Mapping[str, float]]
) -> list[Comparison]:
    """A published range beside what each machine with GPUs reached, by network; other machines are named."""
    entry = published(figure)[statement]
    compared = []
    for name, own in grouped(rows, "machine").items():
        if runs.on_gpu(own) and (numbers := values(own).values()):
            ends = (min(numbers), max(numbers))
            compared.append(Comparison(entry, ends) if name == HERE else Comparison(entry, ends, f"archive {name}"))
    return compared or [Comparison(entry)]


def findings(finding: Callable[[Rows], str]) -> Callable[[Rows], str]:
    """Makes the sentences of a finding for every machine, with its name before each."""
    return lambda rows: " ".join(f"On {name}: {finding(own)}" for name, own in grouped(rows, "machine").items())


def hardware(rows: Rows) -> str:
    """One sentence: the hardware of every machine, and where the rows of others are from."""
    texts = [f"{name} ({_hardware_of(own)})" for name, own in grouped(rows, "machine").items()]
    return f"Each machine has a panel; other machines are from the archives of their runs: {', '.join(texts)}."


def panels(rows: Rows, column: str, title: str) -> alt.TopLevelMixin:
    """Bars of a column by network and schedule, a panel for every machine."""
    bars = runs.bar_chart("schedule", column, title)
    return marks.panels([(name, _hardware_of(own), bars(own)) for name, own in grouped(rows, "machine").items()])


def _hardware_of(rows: Rows) -> str:
    return ", ".join(dict.fromkeys(row["hardware"] for row in rows))


def device_rows(data: FigureData) -> Rows:
    """A row for every network, machine, and machine that its schedule by IOS was found on; none without an archive.

    Times are those of the schedule under the costs that were measured on the machine. Only networks that both have
    count, in the same form, and schedules whose times follow from run.json: those with merged operators do not.
    """
    if not data.machines:
        return []
    machines = {HERE: data.networks, **{name: machine.networks for name, machine in data.machines.items()}}
    return [
        row
        for label in data.networks
        for (runs_on, there), (made_on, other) in itertools.product(_having(machines, label), repeat=2)
        for row in _row(label, runs_on, made_on, there, other)
    ]


def _having(machines: Mapping[str, Mapping[str, ExecutedNetwork]], label: str) -> list[tuple[str, ExecutedNetwork]]:
    """The machines that have this machine's network, by name."""
    own = Graph.of(machines[HERE][label].graph).fingerprint
    return [
        (name, networks[label])
        for name, networks in machines.items()
        if label in networks and Graph.of(networks[label].graph).fingerprint == own and _result(networks[label])
    ]


def _result(network: ExecutedNetwork) -> ScheduleResult | None:
    """The schedule by IOS of a network, if its times follow from its placements."""
    result = next((row for row in network.run.results if (row.algorithm, row.devices) == (_ALGORITHM, 1)), None)
    if result is None:
        return None
    time = _time_ms(result, network)
    return result if time is not None and math.isclose(time, result.predicted_ms, rel_tol=_ROUNDING) else None


def _time_ms(result: ScheduleResult, network: ExecutedNetwork) -> float | None:
    """Latency of a schedule under the costs of a network; None where these do not fit."""
    schedule = Schedule(
        result.algorithm,
        result.parameters,
        result.devices,
        result.predicted_ms,
        result.lower_bound_ms,
        result.scheduling_time_s,
        result.predicted,
    )
    graph = Graph.of(network.graph)
    try:
        problem = Problem(graph, Costs.of(network.costs)).on(result.devices)
        return latency_ms(evaluate(problem, schedule.plan(graph)))
    except HiosError:
        return None


def _row(label: str, runs_on: str, made_on: str, there: ExecutedNetwork, other: ExecutedNetwork) -> Iterator[Row]:
    own, made = _result(there), _result(other)
    if own is None or made is None or (time := _time_ms(made, there)) is None:
        return
    yield {
        "network": label,
        "schedule": f"{made.label} on {runs_on}, made on {made_on}",
        "algorithm": made.algorithm,
        "platform": there.run.platform.name,
        "mark": marks.PREDICTED.name,
        "ms": time,
        "machine": runs_on,
        "made on": made_on,
        "over own %": 100 * (time / own.predicted_ms - 1) if own.predicted_ms else None,
    }


def specialization(rows: Rows) -> str:
    """By how much the schedules of other machines are longer than the own ones, under the measured costs."""
    texts = [
        f"{row['network']} on {row['machine']} by the schedule of {row['made on']} {row['over own %']:+.1f} %"
        for row in rows
        if row["machine"] != row["made on"] and row["over own %"] is not None
    ]
    if not texts:
        return ""
    return (
        f"Predicted from the costs measured on each machine, relative to the schedule made there: {', '.join(texts)}."
    )


def size_rows(data: FigureData, values: Callable[[ConvolutionSize], Row]) -> Rows:
    """A row for every image size, with some values of it."""
    return [
        {
            "image size": size.image_size,
            "channels": file.channels,
            "platform": file.platform.name,
            "mark": marks.MEASURED.name,
            **values(size),
        }
        for file in data.convolutions
        for size in file.sizes
    ]


def chart_over_sizes(column: str, title: str, series: str) -> Callable[[Rows], alt.TopLevelMixin]:
    """Makes lines over the image size, both axes logarithmic; ``series`` names one, or is the column that does."""
    return marks.line_chart(
        "image size",
        column,
        series=lambda row: str(row.get(series, series)),
        words=lambda row: f"{row['image size']} px: {title} {row[column]:.3g}, {row['mark']}",
        x_axis=lambda rows: {
            "title": "image size, px",
            "scale": {"type": "log", "base": 2},
            "axis": {"values": list(dict.fromkeys(row["image size"] for row in rows))},
        },
        y_axis={"title": title, "scale": {"type": "log", "nice": False, "padding": 12}},
        size={"width": 420, "height": 260},
    )


def listed(rows: Rows, column: str) -> str:
    """A column by image size, in words."""
    return ", ".join(f"{row[column]:.2f} at {row['image size']} px" for row in rows)


@dataclass(frozen=True, slots=True)
class PredictedConvolution:
    """A convolution on a GPU, and moving its output to another one.

    ``alone_ms`` includes the pause before the next kernel.
    """

    alone_ms: float
    transfer_ms: float
    output_bytes: int
    utilization: float


def predicted_convolution(pixels: int, channels: int, gpu: Gpu, link: GpuLink) -> PredictedConvolution:
    """A convolution 5x5 of stride 1 in float32 on a GPU, with as many channels before and after it, and a link.

    The host launches it on a stream, as HIOS does.
    """
    size = _BYTES * channels * pixels**2
    terms = channels * _KERNEL**2
    kernels = predict(
        MatrixProduct(1, pixels**2, channels, terms, 2 * size, (_KERNEL, _KERNEL), True, "float32"),
        gpu,
        DEFAULT_EFFICIENCY,
    )
    return PredictedConvolution((kernels.us + STREAM_LAUNCH_US) / 1e3, link.time_ms(size), size, kernels.utilization)
