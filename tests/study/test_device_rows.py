"""IOS, table 3: schedules of one machine under the costs of another."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hios import Costs, Graph, Problem, schedule
from hios.evaluate import evaluate, latency_ms
from hios.formats.costs_file import OperatorCost
from hios.schedule import Schedule
from hios.study import registry
from hios.study.device_rows import device_rows
from hios.study.figure_data import FigureData, Network, OtherMachine
from tests.verify.results import write_network

_LABELED = {"sequential-1": ("sequential", 1), "ios-1": ("ios", 1)}


def _with_costs(network: Network, factor: float) -> tuple[Network, Schedule]:
    """The same network on a machine whose even operators take longer, with the schedule that IOS finds there."""
    operators = {
        name: OperatorCost(time_ms=cost.time_ms * (factor if number % 2 else 1), utilization=0.2)
        for number, (name, cost) in enumerate(network.costs.operators.items())
    }
    costs = msgspec.structs.replace(network.costs, operators=operators, stages=())
    made = schedule(Problem(Graph.of(network.graph), Costs.of(costs)), "ios", 1)
    results = tuple(
        msgspec.structs.replace(result, predicted=made.placements, predicted_ms=made.latency_ms)
        if result.algorithm == "ios"
        else result
        for result in network.run.results
    )
    return Network(network.graph, costs, msgspec.structs.replace(network.run, results=results)), made


@pytest.fixture
def data(tmp_path: Path) -> FigureData:
    """A network here and on another machine with other costs."""
    here = FigureData.read([write_network(tmp_path / "squeezenet", 3, _LABELED) / "run.json"]).networks
    there, _ = _with_costs(here["squeezenet"], 3.0)
    return FigureData(networks=here, machines={"k80": OtherMachine("a processor", {"squeezenet": there})})


def test_every_schedule_on_every_machine(data: FigureData) -> None:
    """Times are those of the evaluator under the costs of the machine; the own schedule is what others are over."""
    rows = {(row["machine"], row["made on"]): row for row in device_rows(data)}
    assert set(rows) == {(one, two) for one in ("this machine", "k80") for two in ("this machine", "k80")}
    here, there = data.networks["squeezenet"], data.machines["k80"].networks["squeezenet"]
    graph = Graph.of(here.graph)
    result = next(result for result in there.run.results if result.algorithm == "ios")
    moved = Schedule("ios", {}, 1, 0.0, 0.0, 0.0, result.predicted).plan(graph)
    problem = Problem(graph, Costs.of(here.costs)).on(1)
    assert rows["this machine", "k80"]["ms"] == pytest.approx(latency_ms(evaluate(problem, moved)))
    for machine in ("this machine", "k80"):
        assert rows[machine, machine]["over own %"] == pytest.approx(0)
    assert {row["mark"] for row in rows.values()} == {"predicted"}


def test_in_the_table(data: FigureData) -> None:
    """IOS table 3 has them, says so, and compares none of them with what was published."""
    figure = registry.figure("ios_tab3")
    rows = figure.rows(data)
    other = next(row for row in rows if (row["machine"], row["made on"]) == ("this machine", "k80"))
    assert f"squeezenet on this machine by the schedule of k80 {other['over own %']:+.1f} %" in figure.finding(rows)
    assert figure.compare(rows) == []
    assert "did not run here" in figure.reason(rows)


def test_other_graphs_and_schedules_that_cannot_be_timed_are_left_out(data: FigureData, tmp_path: Path) -> None:
    """A network of another form, and a schedule whose times its placements do not give, such as a merged one."""
    other = FigureData.read([write_network(tmp_path / "squeezenet", 5, _LABELED) / "run.json"]).networks
    alone = FigureData(networks=data.networks, machines={"k80": OtherMachine("a processor", other)})
    assert {(row["machine"], row["made on"]) for row in device_rows(alone)} == {("this machine", "this machine")}
    network = data.networks["squeezenet"]
    results = tuple(msgspec.structs.replace(row, predicted_ms=2 * row.predicted_ms) for row in network.run.results)
    merged = Network(network.graph, network.costs, msgspec.structs.replace(network.run, results=results))
    left = device_rows(FigureData(networks={"squeezenet": merged}, machines=data.machines))
    assert {(row["machine"], row["made on"]) for row in left} == {("k80", "k80")}
    assert device_rows(FigureData(networks=data.networks)) == []
