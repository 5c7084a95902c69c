"""Schedules of every registered algorithm, executed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hios import ALGORITHMS, Costs, Graph, Problem, Schedule, schedule
from hios.files import artifacts
from tests.frontends.small_networks import Files
from tests.problems import briefly
from tests.runtime.conftest import DEVICES
from tests.runtime.schedules import run_schedules

#: Algorithms among them that place operators on streams.
STREAMS = {"lios", "lios-rand1", "lios-rand2", "lios-rand", "nimble", "opara"}


@pytest.mark.slow
def test_every_algorithm_can_be_executed(files: Files, graph: Graph, tmp_path: Path) -> None:
    """On random costs, as wide as it may: outputs are those of eager PyTorch, and rows run where they are placed."""
    draw = random.Random(2)
    costs = Costs(
        {operator.id: draw.uniform(0.1, 4) for operator in graph.operators},
        {(edge.source, edge.target): 0.1 for edge in graph.edges},
        {operator.id: draw.uniform(0.2, 0.6) for operator in graph.operators},
    )
    paths = []
    for name, algorithm in ALGORITHMS.items():
        devices = DEVICES if algorithm.several_devices else 1
        paths.append(tmp_path / f"{name}.json")
        schedule(Problem(graph, costs), name, devices, briefly(name)).write(paths[-1])
    run_schedules(files, paths, program=True, devices=DEVICES, runs=2)
    run = artifacts.read(tmp_path / "run.json", "run")
    assert run["checked_against"] == "eager"
    assert [result["algorithm"] for result in run["results"]] == list(ALGORITHMS)
    on_streams = set()
    for result, path in zip(run["results"], paths, strict=True):
        assert result["largest_difference"] < 1e-3
        placed = {row.operator: (row.device, row.stream, row.stage) for row in Schedule.read(path).placements}
        positions = {row["operator"]: (row["device"], row["stream"], row["stage"]) for row in result["measured"]}
        assert positions == placed
        if all(stage is None for _, _, stage in positions.values()):
            on_streams.add(result["algorithm"])
            # hios-wide has one stream a device, whose order alone matters.
            several = len({stream for _, stream, _ in positions.values()}) > 1
            assert several == (result["algorithm"] != "hios-wide")
    assert on_streams >= STREAMS
