"""Devices of several cores: measured, scheduled, executed and refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hios import Costs, Graph, Problem, Schedule
from hios import schedule as solve
from hios.cli.files import profile
from hios.core.schedule import Plan
from hios.errors import PlatformError, ScheduleError
from hios.files import artifacts
from hios.machine.description import usable_cores
from hios.platforms.cpu import devices as cpu
from hios.platforms.cpu.environment import settings as environment
from tests.frontends.small_networks import Files
from tests.runtime.schedules import random_plan, random_streams, run_schedules, schedule_of, write_schedules

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


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
