"""Schedules run on the kind of hardware that their costs were measured on, or are marked."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import hios
from hios import Costs, Graph, Problem, schedule
from hios.core.costs import CostsFile, OperatorCost, TransferCost
from hios.errors import PlatformError
from hios.files.base import Platform
from hios.runtime.competitors import other_hardware
from hios.runtime.run_table import latency_table
from tests.frontends.small_networks import Files
from tests.runtime.schedules import run_schedules

ROOT = Path(hios.__file__).resolve().parents[1]

HERE = Platform("cpu", processor="Here 1")


def _problem(graph: Graph, platform: Platform | None) -> Problem:
    edges = {(edge.source, edge.target) for edge in graph.edges}
    costs = CostsFile(
        operators={operator.id: OperatorCost(time_ms=1.0) for operator in graph.operators},
        transfers=tuple(TransferCost(source=source, target=target, time_ms=0.1) for source, target in sorted(edges)),
        platform=platform,
    )
    return Problem(graph, Costs.of(costs))


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        (None, None),
        (Platform("cpu"), None),
        (Platform("cpu", processor="There 2"), "There 2"),
        (Platform("cuda", processor="There 2", gpus=("A", "A")), "A"),
        (Platform("cuda", gpus=("A", "B", "A")), "A, B"),
        (Platform("model", predicted=True, gpus=("A",)), None),
    ],
)
def test_schedules_state_the_hardware_of_their_costs(
    graph: Graph, platform: Platform | None, expected: str | None
) -> None:
    """The GPUs, else the processor; nothing where nothing was measured."""
    made = schedule(_problem(graph, platform), "sequential")
    assert made.hardware == expected
    assert type(made).from_json(made.to_json()).hardware == expected


def test_other_hardware_is_refused(graph: Graph) -> None:
    """One schedule of another kind is enough; the message names both kinds and the way round."""
    own = schedule(_problem(graph, HERE), "sequential")
    unknown, other = replace(own, hardware=None), replace(own, hardware="There 2")
    assert other_hardware([own, unknown], HERE, forced=False) is None
    with pytest.raises(PlatformError, match=r"hardware: found costs of There 2; allowed: Here 1.*--other-hardware"):
        other_hardware([own, other], HERE, forced=False)
    assert other_hardware([own, other], HERE, forced=True) == "There 2"


@pytest.mark.slow
def test_a_forced_run_is_marked(files: Files, graph: Graph, tmp_path: Path) -> None:
    """Refused before anything runs; with --other-hardware run.json and the table say what was profiled."""
    made = replace(schedule(_problem(graph, HERE), "sequential"), hardware="There 2")
    made.write(tmp_path / "sequential.json")
    paths = [tmp_path / "sequential.json"]
    with pytest.raises(PlatformError, match="There 2"):
        run_schedules(files, paths, devices=1)
    assert not (tmp_path / "run.json").exists()
    run = run_schedules(files, paths, devices=1, other_hardware=True)
    assert run.profiled_on == "There 2"
    assert run.platform.allocation is not None
    assert "were measured on There 2, its schedules ran on" in latency_table(run)


@pytest.mark.slow
def test_a_device_that_is_gone(files: Files, graph: Graph, tmp_path: Path) -> None:
    """A schedule for two cores where one is left: how many there are, in one line, and no run.json."""
    made = schedule(_problem(graph, None), "hios-lp", 2)
    made.write(tmp_path / "two.json")
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "hios",
        "execute",
        files.graph,
        files.weights,
        "two.json",
        "--output",
        "run.json",
    ]
    done = subprocess.run(
        ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0))), *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: platform cpu: devices: found 2; allowed: 1 to 1")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run.json").exists()
