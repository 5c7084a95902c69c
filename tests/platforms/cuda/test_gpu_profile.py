"""Profiling on GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hios import Graph, Problem, schedule, violations
from hios.cli.files import profile
from hios.files import artifacts
from tests.gpu_marker import GPUS, needs_two_gpus, requires_gpu

pytestmark = pytest.mark.filterwarnings("error::hios.errors.HiosWarning")


@pytest.fixture(scope="module", autouse=True)
def _busy() -> Iterator[None]:
    """A GPU that other processes use too, such as those of other tests, is not warned of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hios.profiling.measurements.MOST_DRIFT", math.inf)
        patch.setattr("hios.profiling.profile.BUSY", 1.0)
        patch.setattr("hios.core.drift.MOST_CHANGE", math.inf)
        yield


def _profile(graph: Path, output: Path, **more: Any) -> dict[str, Any]:
    options = {"devices": 1, "repeats": 7, "stages_of": ["greedy", "ios", "hios-lp"], **more}
    profile(graph, output, platform="cuda", **options)
    return artifacts.read(output, "costs")


@pytest.fixture(scope="module")
def costs_file(graph_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """costs.json of one GPU."""
    path = tmp_path_factory.mktemp("gpu") / "costs.json"
    _profile(graph_file, path)
    return path


@requires_gpu
def test_everything_is_measured(costs_file: Path, graph_file: Path) -> None:
    """Operators, stages, merges and copies have times, and costs say on which GPU."""
    costs, graph = artifacts.read(costs_file, "costs"), Graph.read(graph_file)
    assert list(costs["operators"]) == [operator.id for operator in graph.operators]
    for entry in [*costs["operators"].values(), *costs["transfers"], *costs["stages"], *costs["merges"]]:
        assert 0 < entry["p20_ms"] <= entry["p80_ms"] < math.inf
    assert costs["stages"]
    assert costs["merges"]
    assert costs["platform"]["gpus"] == [torch.cuda.get_device_name(0)]
    assert "virtual" not in costs["platform"]


@requires_gpu
def test_resources_are_found(costs_file: Path, graph_file: Path) -> None:
    """Every operator of the network launches kernels, whose resources Opara compares."""
    costs = artifacts.read(costs_file, "costs")
    for entry in costs["operators"].values():
        assert entry["resources"]["registers"] >= entry["resources"]["threads"]
        assert entry["resources"]["blocks"] >= 1
    problem = Problem.read(graph_file, costs_file)
    planned = schedule(problem, "opara")
    assert violations(problem, planned) == []
    assert planned.notes["resource demands"] == "GPU profile"


@requires_gpu
def test_demands_and_overheads_are_measured(graph_file: Path, tmp_path: Path) -> None:
    """Small convolutions leave room on the GPU for others; groups cost something, events next to nothing."""
    costs = _profile(graph_file, tmp_path / "costs.json", stages_of=["greedy"], options={"contention": "resources"})
    assert costs["overheads"]["sync_ms"] >= 0
    assert costs["overheads"]["stage_ms"] > 0
    assert min(entry["demand"]["slots"] for entry in costs["operators"].values()) < 1
    problem = Problem.read(graph_file, tmp_path / "costs.json")
    assert violations(problem, schedule(problem, "opara")) == []


@requires_gpu
def test_virtual_devices(graph_file: Path, tmp_path: Path) -> None:
    """One device more than there are GPUs is profiled, and marked."""
    devices = GPUS + 1
    costs = _profile(graph_file, tmp_path / "costs.json", devices=devices, stages_of=["hios-lp"], virtual=True)
    assert costs["platform"]["virtual"] is True
    assert [entry["devices"] for entry in costs["corun"]] == list(range(2, devices + 1))


@requires_gpu
@needs_two_gpus
def test_two_gpus(graph_file: Path, tmp_path: Path) -> None:
    """Copies between two GPUs, there and back, are captured in one graph and timed."""
    costs = _profile(graph_file, tmp_path / "costs.json", devices=2, stages_of=["hios-lp"])
    assert len(costs["platform"]["gpus"]) == 2
    assert all(entry["time_ms"] > 0 for entry in costs["transfers"])


@requires_gpu
def test_a_second_run_measures_nothing(graph_file: Path, tmp_path: Path) -> None:
    """What the cache holds is not measured again, where operators take as long as they did."""
    first = _profile(graph_file, tmp_path / "first.json", cache=tmp_path / "kept", stages_of=["greedy"])
    second = _profile(graph_file, tmp_path / "second.json", cache=tmp_path / "kept", stages_of=["greedy"])
    assert second["profile"]["measured"] == 0
    for name, entry in first["operators"].items():
        assert second["operators"][name]["time_ms"] == entry["time_ms"]
