"""Dividing the cores of a machine into devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from safetensors.torch import save_file

from hios import Edge, Graph, Operator
from hios.cli import main
from hios.errors import PlatformError
from hios.files import artifacts
from hios.formats.settings import PartitionSettings
from hios.machine.description import usable_cores
from hios.optimizing import partition as partitioning
from hios.optimizing import schedules
from hios.optimizing.partition import partition
from tests.runtime.small import branches


@pytest.mark.slow
def test_partitions_of_two_cores(tmp_path: Path) -> None:
    """Both ways to divide two cores are predicted; the file names one of those that were measured, and why."""
    network = branches()
    network.graph.write(tmp_path / "graph.json")
    save_file(network.tensors, tmp_path / "weights.safetensors")
    virtual = ["--virtual"] if len(usable_cores()) < 2 else []
    result = CliRunner().invoke(
        main,
        [
            *(
                "partition",
                str(tmp_path / "graph.json"),
                str(tmp_path / "weights.safetensors"),
                "--cores",
                "2",
                *virtual,
            ),
            *("--output", str(tmp_path / "partition.json"), "--repeats", "2", "--budget", "0", "--no-cache"),
            *("--runs", "6", "--warmup", "1"),
        ],
    )
    assert result.exit_code == 0, result.output
    written = artifacts.read(tmp_path / "partition.json", "partition")
    ways = [(entry["devices"], entry["cores_per_device"], entry["algorithm"]) for entry in written["partitions"]]
    assert ways == [(1, 2, "sequential"), (2, 1, "hios-lp")]
    assert all(entry["predicted_ms"] > 0 for entry in written["partitions"])
    measured = {
        (entry["devices"], entry["cores_per_device"]): entry["latency_ms"]["runs"]
        for entry in written["partitions"]
        if "latency_ms" in entry
    }
    assert (1, 2) in measured
    assert all(len(runs) == 6 for runs in measured.values())
    assert (written["devices"], written["cores_per_device"]) in measured
    assert (
        f"devices: {written['devices']}, cores_per_device: {written['cores_per_device']}: the fastest of "
        in result.output
    )


def test_only_promising_partitions_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition whose prediction is far above the best does not run; one device of all cores does in any case."""
    network, cores = branches(), 8
    predicted = {1: 10.0, 2: 4.0, 4: 5.0, 8: 9.0}
    tried: list[int] = []

    class Made:
        def __init__(self, devices: int) -> None:
            self.latency_ms, self.algorithm = predicted[devices], f"for {devices}"

    def measured(
        _: object, __: object, ways: dict[int, tuple[Made, tuple[int, int]]], ___: object
    ) -> dict[int, list[float]]:
        tried.extend(devices for _, (devices, _) in ways.values())
        return {place: [float(1 + place)] * 12 for place in ways}

    monkeypatch.setattr(partitioning, "_predicted", lambda _, devices, __, ___: Made(devices))
    monkeypatch.setattr(partitioning, "_measured", measured)
    monkeypatch.setattr(partitioning, "widest", lambda _: 4)
    chosen = partition(network.graph, network.tensors, PartitionSettings(cores=cores, virtual=True))
    assert [(entry.devices, entry.cores_per_device) for entry in chosen.partitions] == [(1, 8), (2, 4), (4, 2)]
    assert tried == [1, 2, 4]
    assert (chosen.devices, chosen.cores_per_device) == (1, 8)
    predicted[4], tried[:] = 6.0, []
    chosen = partition(network.graph, network.tensors, PartitionSettings(cores=cores, virtual=True))
    assert tried == [1, 2]
    assert chosen.partitions[2].latency_ms is None
    assert "1 of 3 were ruled out by predictions above 1.3 times the best" in chosen.reason


def test_more_cores_than_there_are() -> None:
    """More cores than the machine has are refused unless devices are virtual."""
    network, cores = branches(), len(usable_cores())
    with pytest.raises(PlatformError, match=rf"cores_per_device: found {cores + 1}; allowed: 1 to {cores}, as"):
        partition(network.graph, network.tensors, PartitionSettings(cores=cores + 1))


def test_operators_beside_each_other() -> None:
    """The widest level of the graph bounds the number of devices that are tried."""
    chain = Graph("chain", tuple(Operator(name, "task") for name in "abc"), (Edge("a", "b"), Edge("b", "c")))
    fork = Graph(
        "fork", tuple(Operator(name, "task") for name in "abcd"), (Edge("a", "b"), Edge("a", "c"), Edge("a", "d"))
    )
    assert [schedules.widest(graph) for graph in (chain, fork)] == [1, 3]
