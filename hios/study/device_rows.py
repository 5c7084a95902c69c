"""Schedules of one machine under the costs of another (IOS, table 3): specialization for devices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from hios.charts import marks
from hios.costs import Costs
from hios.errors import HiosError
from hios.evaluate import evaluate, latency_ms
from hios.formats.run_file import ScheduleResult
from hios.graph import Graph
from hios.problem import Problem
from hios.schedule import Schedule
from hios.study.figure_data import FigureData, Network
from hios.study.machine_rows import HERE
from hios.study.registry import Row, Rows

#: Relative difference between times that rounding explains.
_ROUNDING = 1e-6
_ALGORITHM = "ios"


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


def _having(machines: Mapping[str, Mapping[str, Network]], label: str) -> list[tuple[str, Network]]:
    """The machines that have this machine's network, by name."""
    own = Graph.of(machines[HERE][label].graph).fingerprint
    return [
        (name, networks[label])
        for name, networks in machines.items()
        if label in networks and Graph.of(networks[label].graph).fingerprint == own and _result(networks[label])
    ]


def _result(network: Network) -> ScheduleResult | None:
    """The schedule by IOS of a network, if its times follow from its placements."""
    result = next((row for row in network.run.results if (row.algorithm, row.devices) == (_ALGORITHM, 1)), None)
    if result is None:
        return None
    time = _time_ms(result, network)
    return result if time is not None and math.isclose(time, result.predicted_ms, rel_tol=_ROUNDING) else None


def _time_ms(result: ScheduleResult, network: Network) -> float | None:
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


def _row(label: str, runs_on: str, made_on: str, there: Network, other: Network) -> Iterator[Row]:
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


def finding(rows: Rows) -> str:
    """By how much the schedules of other machines are longer than the own ones, under the measured costs."""
    texts = [
        f"{row['network']} on {row['machine']} by the schedule of {row['made on']} {row['over own %']:+.1f} %"
        for row in rows
        if row["machine"] != row["made on"] and row["over own %"] is not None
    ]
    if not texts:
        return ""
    return f"Predicted from the costs that were measured there, over the schedule made there: {', '.join(texts)}."
