"""A whole profile on simulated GPUs, whose clock only advances by what is launched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hios import Graph, HiosWarning, Problem, schedule, violations
from hios.cli.files import profile
from hios.core.costs import BlockResources
from hios.files import artifacts
from hios.files.base import Platform
from hios.platforms.cuda import devices as cuda_platform
from hios.platforms.cuda import gpu_probe, graph_pool
from hios.platforms.cuda import measuring as gpus
from hios.platforms.cuda import timed_graphs as graphs
from hios.platforms.cuda import timing as cuda
from tests.platforms.cuda.simulated_timing import FLOPS_PER_MS, InProcess, Machine, merged, workload

_RESOURCES = BlockResources(shared_memory_bytes=64, registers=5120, threads=128, blocks=12, occupancy=0.25)


def _describe(devices: int, *, virtual: bool = False) -> Platform:
    """Two GPUs."""
    return Platform(
        name="cuda",
        devices=devices,
        gpus=("NVIDIA Simulated",) * devices,
        gpu_indices=tuple(device % 2 for device in range(devices)),
        compute_capability=("9.0",) * devices,
        memory_gb=(80.0,) * devices,
        driver="580.1",
        cuda="13.0",
        cudnn="91000",
        peer_access=True,
        processor="simulated",
        load_average=0.0,
        busy_share=0.0,
        virtual=virtual or None,
    )


@pytest.fixture
def costs_ms(graph_file: Path) -> dict[str, float]:
    """What operators take: each something else, though some are alike."""
    return {operator.id: 0.005 + 0.001 * place for place, operator in enumerate(Graph.read(graph_file).operators)}


@pytest.fixture(autouse=True)
def machine(costs_ms: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> Machine:
    """GPUs in place of real ones."""
    simulated = Machine()
    for module in (graphs, cuda):
        monkeypatch.setattr(module, "torch", simulated.torch())
        monkeypatch.setattr(module, "Merged", merged(simulated, costs_ms, 1 << 8))
    for other in (gpu_probe, graph_pool):
        monkeypatch.setattr(other, "torch", simulated.torch())
    monkeypatch.setattr(graphs, "Workload", workload(simulated, costs_ms, 1 << 8))
    monkeypatch.setattr(cuda, "resources", lambda worker, operators: dict.fromkeys(operators, _RESOURCES))
    monkeypatch.setattr(gpus, "WorkerPool", InProcess)
    monkeypatch.setattr(cuda_platform, "describe", _describe)
    monkeypatch.setattr(cuda_platform, "uuids", list)
    return simulated


def _profile(graph: Path, output: Path, **more: Any) -> dict[str, Any]:
    options = {"devices": 2, "repeats": 6, "stages_of": ["greedy", "ios"], **more}
    profile(graph, output, platform="cuda", **options)
    return artifacts.read(output, "costs")


def test_costs_are_what_was_launched(graph_file: Path, tmp_path: Path, costs_ms: dict[str, float]) -> None:
    """costs.json has the time of every operator, of stages as long as their longest group, and of copies."""
    costs = _profile(graph_file, tmp_path / "costs.json")
    measured = {name: entry["time_ms"] for name, entry in costs["operators"].items()}
    assert set(measured) == set(costs_ms)
    assert all(any(abs(time - own) < 1e-6 for own in costs_ms.values()) for time in measured.values())
    assert costs["stages"]
    for stage in costs["stages"]:
        longest = max(sum(measured[name] for name in group) for group in stage["groups"])
        assert stage["time_ms"] == pytest.approx(longest)
    for merge in costs["merges"]:
        assert merge["time_ms"] == pytest.approx(max(measured[name] for name in merge["operators"]))
    sizes = {(edge.source, edge.target): edge.bytes or 0 for edge in Graph.read(graph_file).edges}
    for entry in costs["transfers"]:
        assert entry["time_ms"] == pytest.approx(sizes[entry["source"], entry["target"]] / 1e6, abs=2e-6)
    assert costs["link"]["bandwidth_gbps"] == pytest.approx(8.0)
    assert [(entry["devices"], entry["factor"]) for entry in costs["corun"]] == [(2, 1.0)]
    assert all(entry["resources"] == msgspec.to_builtins(_RESOURCES) for entry in costs["operators"].values())


def test_demands_are_those_of_the_kernels(graph_file: Path, tmp_path: Path, machine: Machine) -> None:
    """Slots are blocks over what the GPU holds; arithmetic and bandwidth are shares of what the probe reaches."""
    machine.sync_ms = 0.002
    costs = _profile(graph_file, tmp_path / "costs.json", stages_of=[], options={"contention": "resources"})
    assert costs["contention"]["kind"] == costs["platform"]["contention"] == "resources"
    assert costs["overheads"]["launch_ms"] == 0.0
    # A hand-over takes at least a synchronization, and the smallest one is shorter here.
    assert costs["overheads"]["stage_ms"] == pytest.approx(0.004)
    assert costs["overheads"]["sync_ms"] <= 0.002
    held = 4 * (65536 // 5120)  # blocks on all SMs; registers are what runs out
    for operator in Graph.read(graph_file).operators:
        own, time_ms = costs["operators"][operator.id]["demand"], costs["operators"][operator.id]["time_ms"]
        assert own["slots"] == pytest.approx(12 / held)
        for resource, rate, needed in (("compute", FLOPS_PER_MS, operator.flops), ("memory", 2e6, operator.bytes)):
            assert own[resource] == pytest.approx(min(1.0, max(1e-6, (needed or 0) / rate / time_ms)))
    problem = Problem.read(graph_file, tmp_path / "costs.json")
    for algorithm in ("opara", "ios"):
        assert violations(problem, schedule(problem, algorithm)) == []


def test_probe_is_what_was_launched(graph_file: Path, tmp_path: Path) -> None:
    """The probe takes the time of its work on every device, throughout the session; small operators move memory."""
    probe = _profile(graph_file, tmp_path / "costs.json")["probe"]
    compute, copies = gpu_probe.FLOPS / FLOPS_PER_MS, gpu_probe.NBYTES / 2 / 1e6
    assert probe["version"] == gpu_probe.VERSION
    assert probe["speed"]["compute_ms"] == pytest.approx(dict.fromkeys(("value", "low", "high"), compute))
    assert probe["speed"]["copy_ms"] == pytest.approx(dict.fromkeys(("value", "low", "high"), copies))
    assert {sample["device"] for sample in probe["samples"]} == {0, 1}
    for sample in probe["samples"]:
        assert sample["compute_ms"] == pytest.approx(compute)
        assert sample["copy_ms"] == pytest.approx(copies)


@pytest.mark.parametrize("slower", [1.0, 1e3, 1e4])
def test_share_of_copies_is_that_of_the_roofline(
    graph_file: Path, tmp_path: Path, machine: Machine, slower: float
) -> None:
    """Memory limits operators that do fewer operations a byte than the probe in the time of copying one."""
    machine.slower = slower
    costs = _profile(graph_file, tmp_path / "costs.json", stages_of=[])
    least = (FLOPS_PER_MS / slower) / 2e6  # a copy reads and writes
    limited = total = 0.0
    for operator in Graph.read(graph_file).operators:
        time_ms = costs["operators"][operator.id]["time_ms"]
        total += time_ms
        limited += time_ms if (operator.flops or 0) < least * (operator.bytes or 0) else 0.0
    assert costs["probe"]["copy_share"] == pytest.approx(limited / total)
    assert (limited == total) == (slower == 1.0)


def test_operators_of_the_cache_keep_the_speed_of_their_session(
    graph_file: Path, tmp_path: Path, machine: Machine
) -> None:
    """On a machine that became slower by little, predictions refer to the speed when operators were measured."""
    cache = tmp_path / "cache"
    first = _profile(graph_file, tmp_path / "first.json", stages_of=[], cache=cache)
    machine.slower = 1.04
    second = _profile(graph_file, tmp_path / "second.json", stages_of=[], cache=cache)
    assert second["profile"]["measured"] == 0
    compute, again = (costs["probe"]["speed"]["compute_ms"] for costs in (first, second))
    assert again == pytest.approx(compute)
    for sample in second["probe"]["samples"]:
        assert sample["compute_ms"] == pytest.approx(1.04 * compute["value"])
    for file in cache.rglob("*.json"):
        if '"kind": "operator"' in file.read_text():
            file.unlink()
            break
    third = _profile(graph_file, tmp_path / "third.json", stages_of=[], cache=cache)
    assert third["profile"]["measured"] == 1
    assert 1.0001 * compute["value"] < third["probe"]["speed"]["compute_ms"]["value"] < 1.03 * compute["value"]


def test_virtual_gpus_are_marked(graph_file: Path, tmp_path: Path) -> None:
    """Three devices on two GPUs are measured, and the artifact says that they are virtual."""
    costs = _profile(graph_file, tmp_path / "costs.json", devices=3, stages_of=[], virtual=True)
    assert costs["platform"]["virtual"] is True
    assert [entry["devices"] for entry in costs["corun"]] == [2, 3]


def test_gpus_have_a_cache_of_their_own(graph_file: Path, tmp_path: Path) -> None:
    """A second profile on the same GPUs takes all from the cache, resources apart; another driver takes nothing."""
    first = _profile(graph_file, tmp_path / "first.json", cache=tmp_path / "kept")
    again = _profile(graph_file, tmp_path / "again.json", cache=tmp_path / "kept")
    assert again["profile"]["measured"] == 0
    assert again["profile"]["drift"] == pytest.approx(1.0)
    kept = {name: again[name] for name in ("operators", "transfers", "stages", "merges", "corun")}
    assert kept == {name: first[name] for name in kept}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            cuda_platform, "describe", lambda *given, **more: replace(_describe(*given, **more), driver="590.1")
        )
        other = _profile(graph_file, tmp_path / "other.json", cache=tmp_path / "kept")
    assert other["profile"]["cached"] == 0


def test_a_worker_that_dies_is_said_to_be_at_an_operator(graph_file: Path) -> None:
    """What the worker marks is an operator's name in the controller's messages; nothing where it has begun none."""
    graph = Graph.read(graph_file)
    with gpus.CudaTimer(graph, str(graph_file), _describe(1)) as timer:
        assert [timer.pool.describe(number) for number in (0, 1)] == ["", f"operator {graph.operators[0].id}"]


def test_without_leave_to_trace_kernels(graph_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch.profiler records no kernel, costs say nothing of resources, and a warning says so."""
    monkeypatch.setattr(cuda, "resources", lambda worker, operators: {})
    with pytest.warns(HiosWarning, match="recorded no kernel"):
        costs = _profile(graph_file, tmp_path / "costs.json", stages_of=[])
    assert not any("resources" in entry for entry in costs["operators"].values())


def test_what_is_launched_anew_is_said(
    graph_file: Path, tmp_path: Path, machine: Machine, costs_ms: dict[str, float]
) -> None:
    """Operators that no CUDA graph can hold are timed, and a warning names the first and counts the others."""
    machine.refused |= set(list(costs_ms)[:2])
    with pytest.warns(HiosWarning, match=r"cannot run in a CUDA graph \(operation not permitted.*\), nor can \d+ more"):
        costs = _profile(graph_file, tmp_path / "costs.json", stages_of=[])
    assert set(costs["operators"]) == set(costs_ms)
