"""Devices that share cores, that have several, and that are other hardware than the costs were measured on."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hios import Costs, Graph, Problem, Schedule, schedule
from hios import schedule as solve
from hios.cli.files import profile
from hios.core.costs import CostsFile, OperatorCost, TransferCost
from hios.core.schedule import Plan
from hios.errors import PlatformError, ScheduleError
from hios.files import artifacts
from hios.files.base import Platform
from hios.machine.description import usable_cores
from hios.platforms.cpu import devices as cpu
from hios.platforms.cpu.environment import settings as environment
from hios.runtime.competitors import other_hardware
from hios.runtime.run_table import latency_table
from tests.cores_marker import two_cores
from tests.frontends.small_networks import Files
from tests.runtime.schedules import random_plan, random_streams, run_schedules, schedule_of, write_schedules
from tests.scripts import python

#: The command line on some cores only, as taskset has it.
_ON_CORES = "import os; os.sched_setaffinity(0, {cores}); from hios.cli import main; main()"


def _hios(cores: list[int], *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command on these cores."""
    return python("-c", _ON_CORES.format(cores=set(cores)), *arguments, OMP_NUM_THREADS="1")


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "most_cores"), [(3, 2), (2, 1)])
def test_devices_share_cores(files: Files, graph: Graph, tmp_path: Path, devices: int, most_cores: int) -> None:
    """Stages and streams of more devices than there are cores run, with right outputs, and are marked as virtual."""
    cores = usable_cores()[:most_cores]
    plans: dict[str, Plan] = {
        "stages": random_plan(graph, devices, seed=1),
        "streams": random_streams(graph, devices, 2, seed=2),
    }
    paths = [files.graph, files.weights, *write_schedules(tmp_path, graph, plans)]
    outputs = ["--output", tmp_path / "run.json", "--traces", tmp_path / "traces"]
    settings = ["--virtual", "--program", files.program, "--runs", 2, "--warmup", 0]
    done = _hios(cores, "execute", *paths, *settings, *outputs)
    assert done.returncode == 0, done.stderr
    run: dict[str, Any] = json.loads((tmp_path / "run.json").read_text())
    assert run["platform"]["virtual"] is True
    assert run["platform"]["cores"] == [[cores[device % len(cores)]] for device in range(devices)]
    assert [result["devices"] for result in run["results"]] == [devices, devices]
    assert {row["device"] for result in run["results"] for row in result["measured"]} == set(range(devices))
    assert max(result["largest_difference"] for result in run["results"]) <= run["tolerance"]
    threads = {reference["threads"] for reference in run["references"]}
    assert threads == {1, len(cores)}
    assert "virtual devices: times say little" in done.stdout
    trace = json.loads((tmp_path / "traces" / "stages.json").read_text())
    assert trace["otherData"]["title"].endswith("stages, virtual devices: times say little")


def test_virtual_devices_are_described() -> None:
    """Devices beyond the cores take them in turn; devices that have cores of their own are not virtual."""
    cores = usable_cores()
    many = cpu.describe(2 * len(cores) + 1, virtual=True)
    assert many.cores == tuple((core,) for core in [*cores, *cores, cores[0]])
    assert many.virtual is True
    assert cpu.describe(len(cores), virtual=True).virtual is None
    for devices in (0, 16 * len(cores) + 1):
        with pytest.raises(PlatformError, match=f"devices: found {devices}; allowed: 1 to {16 * len(cores)}, as "):
            cpu.device_cores(devices, virtual=True)


@pytest.mark.slow
@two_cores
def test_one_device_of_two_cores(files: Files, graph: Graph, tmp_path: Path) -> None:
    """Costs, schedule and run say how many cores a device has; the model itself gets the same cores."""
    paths = {name: tmp_path / f"{name}.json" for name in ("costs", "sequential")}
    profile(files.graph, paths["costs"], devices=1, cores_per_device=2, repeats=2, stages_of=["greedy"], budget_s=0)
    described = artifacts.read(paths["costs"], "costs")["platform"]
    assert (described["cores"], described["cores_per_device"]) == ([usable_cores()[:2]], 2)
    solve(Problem(graph, Costs.read(paths["costs"])), "sequential").write(paths["sequential"])
    assert Schedule.read(paths["sequential"]).cores_per_device == 2
    plans: dict[str, Plan] = {"stages": random_plan(graph, 1, seed=1), "streams": random_streams(graph, 1, 3, seed=1)}
    schedules = [paths["sequential"], *write_schedules(tmp_path, graph, plans)]
    run = run_schedules(files, schedules, program=True, devices=1, runs=2)
    assert run.platform.cores_per_device == 2
    assert run.platform.virtual is None
    assert [(reference.name, reference.threads) for reference in run.references] == [("eager PyTorch, 2 threads", 2)]
    assert max(result.largest_difference for result in run.results) <= run.tolerance


@pytest.mark.slow
def test_virtual_devices_of_several_cores(files: Files, graph: Graph, tmp_path: Path) -> None:
    """Devices of more cores than there are run with right outputs where they are virtual, and are marked so."""
    cores = len(usable_cores())
    paths = write_schedules(tmp_path, graph, {"stages": random_plan(graph, 2, seed=2)})
    run = run_schedules(files, paths, devices=2, runs=2, virtual=True, cores_per_device=cores)
    assert run.platform.virtual is True
    assert run.platform.cores_per_device == cores
    assert run.platform.cores == (tuple(usable_cores()),) * 2
    assert run.results[0].largest_difference <= run.tolerance


def test_costs_of_other_devices_are_refused(files: Files, graph: Graph, tmp_path: Path) -> None:
    """A schedule whose costs were measured on devices of other cores does not run."""
    path = tmp_path / "other.json"
    replace(schedule_of(graph, random_plan(graph, 1, seed=3)), cores_per_device=3).write(path)
    message = (
        r"other\.json: cores_per_device: found 3, the cores of a device in its costs; allowed: 1, those of this run"
    )
    with pytest.raises(ScheduleError, match=message):
        run_schedules(files, [path], devices=1, cores_per_device=1)
    assert not (tmp_path / "run.json").exists()


def test_too_many_cores_are_refused() -> None:
    """More cores than the machine has are refused with what is allowed, unless devices are virtual."""
    cores = len(usable_cores())
    with pytest.raises(PlatformError, match=rf"cores_per_device: found {cores + 1}; allowed: 1 to {cores}, as"):
        cpu.device_cores(1, cores + 1)
    with pytest.raises(
        PlatformError, match=rf"devices: found 2 of {cores} cores each; allowed: 1 to 1, as .*--virtual"
    ):
        cpu.device_cores(2, cores)
    with pytest.raises(PlatformError, match="cores_per_device: found 0; allowed: 1 to"):
        cpu.device_cores(1, 0)
    assert [len(own) for own in cpu.device_cores(1, cores + 1, virtual=True)] == [cores + 1]


@two_cores
def test_measurements_of_other_devices_are_not_used() -> None:
    """The keys of the cache hold how many cores a device has."""
    one, two = usable_cores()[:2]
    assert environment([[one]]) != environment([[one, two]])
    assert environment([[one]]) == environment([[one], [two]])


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
    paths = [files.graph, files.weights, tmp_path / "two.json", "--output", tmp_path / "run.json"]
    done = _hios(usable_cores()[:1], "execute", *paths)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: platform cpu: --devices: found 2; allowed: 1 to 1")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run.json").exists()
