"""Demands and overheads, measured on cores with ``contention`` resources."""

from __future__ import annotations

from pathlib import Path

import hios
from hios.core.costs import ContentionModel
from tests.profiling.conftest import DEVICES


def test_demands_and_overheads_are_measured(graph_file: Path) -> None:
    """Every operator asks for shares, what has FLOPs for arithmetic; schedules are timed by them."""
    graph = hios.Graph.read(graph_file)
    options = {"contention": "resources"}
    costs = hios.profile(graph, devices=DEVICES, repeats=2, budget_s=0.0, stages_of=(), cache=False, options=options)
    assert costs.contention == ContentionModel("resources")
    assert costs.platform is not None
    assert costs.platform.contention == "resources"
    assert costs.overheads is not None
    assert min(costs.overheads.launch_ms, costs.overheads.sync_ms, costs.overheads.stage_ms) > 0
    least = min(cost.demand.compute for cost in costs.operators.values() if cost.demand)
    for operator in graph.operators:
        demand = costs.operators[operator.id].demand
        assert demand is not None
        assert demand.slots == 1.0
        assert (demand.compute > least) == bool(operator.flops)
    problem = hios.Problem(graph, costs)
    for algorithm, devices in (("opara", 1), ("ios", 1), ("hios-lp", DEVICES)):
        assert hios.violations(problem, hios.schedule(problem, algorithm, devices=devices)) == []
