"""Profiling virtual devices, which share cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from hios import Graph
from hios.cli.files import profile
from hios.files import artifacts
from hios.files.base import Platform
from hios.machine.description import usable_cores
from hios.platforms.cpu import measuring as cores
from hios.platforms.timer import whose_turn


@pytest.mark.slow
def test_more_devices_than_cores(graph_file: Path, tmp_path: Path) -> None:
    """One device more than there are cores is profiled, and marked as virtual."""
    usable = usable_cores()
    if len(usable) > 4:
        pytest.skip(f"{len(usable)} cores: as many workers would be started")
    devices, path = len(usable) + 1, tmp_path / "costs.json"
    profile(graph_file, path, devices=devices, repeats=3, stages_of=["hios-lp"], budget_s=10.0, virtual=True)
    costs = artifacts.read(path, "costs")
    assert costs["platform"]["virtual"] is True
    assert costs["platform"]["cores"] == [[core] for core in [*usable, usable[0]]]
    assert all(entry["time_ms"] > 0 for entry in [*costs["operators"].values(), *costs["transfers"]])
    assert [entry["devices"] for entry in costs["corun"]] == list(range(2, devices + 1))


@pytest.mark.parametrize(("virtual", "factor"), [(True, 2.0), (False, 1.0)])
def test_a_shared_core_shows_in_the_mean(graph_file: Path, virtual: bool, factor: float) -> None:
    """Devices that take turns on a core are delayed in some inferences only, so there the mean counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cores, "WorkerPool", lambda *_, **__: None)
        timer = cores.CpuTimer(Graph.read(graph_file), "", Platform("cpu", cores=((0,), (0,)), virtual=virtual or None))
        samples = {1: [1.0, 1.0, 1.0], 2: [1.0, 1.0, 4.0]}
        patch.setattr(timer, "_inferences", lambda devices, __: dict.fromkeys(devices, samples[len(devices)]))
        assert timer.corun(0, 2, ["a"], 3.0) == factor


def test_virtual_devices_have_keys_of_their_own(graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What two devices measure is not taken for what they would measure with a virtual one beside them."""
    monkeypatch.setattr(cores, "WorkerPool", lambda *_, **__: None)
    described = [Platform("cpu", cores=((0,), (1,))), Platform("cpu", cores=((0,), (1,), (0,)), virtual=True)]
    real, virtual = (cores.CpuTimer(Graph.read(graph_file), "", platform).ends(2) for platform in described)
    assert real == {"cores": [[0], [1]]}
    assert virtual == {**real, "virtual": True}


@pytest.mark.parametrize(
    ("hardware", "timed"),
    [("a", [0, 0, 0]), ("abc", [0, 1, 2]), ("aba", [0, 2, 0]), ("abab", [0, 1, 2]), ("abcaba", [0, 3, 5])],
)
def test_whose_turn(hardware: str, timed: list[int]) -> None:
    """Devices are timed in turn; where some share hardware, those that share it with most."""
    assert [whose_turn(turn, hardware) for turn in range(3)] == timed
