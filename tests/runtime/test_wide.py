"""Operators that take several devices at once: right outputs, and failures that end the run as others do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hios import Graph, HiosError
from hios.cli.files import execute
from hios.machine import usable_cores
from hios.platforms.device_program import ArenaPlan, WideProgram
from hios.runtime.session import Settings
from tests.frontends.networks import Files
from tests.runtime.schedules import random_wide, schedule_of

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@two_cores
def test_outputs_are_those_of_the_model(files: Files, graph: Graph, tmp_path: Path) -> None:
    """Random plans with operators on both of two devices compute what the model does, beside narrow schedules."""
    plans = {f"wide-{seed}": random_wide(graph, 2, seed) for seed in range(4)}
    for name, plan in plans.items():
        schedule_of(graph, plan).write(tmp_path / f"{name}.json")
    paths = [tmp_path / f"{name}.json" for name in plans]
    settings = Settings(2, 3, 1)
    run = execute(files.graph, files.weights, paths, tmp_path / "run.json", settings, program=files.program)
    for result in run.results:
        assert result.largest_difference <= run.tolerance
        devices = {graph.operators[operator].id: held for operator, held in plans[result.label].wide.items()}
        assert {row.operator: row.devices for row in result.measured if row.devices} == devices
        assert all(row.device == row.devices[0] for row in result.measured if row.devices)
        assert len(result.measured) == len(graph.operators)


@pytest.mark.parametrize(("devices", "cores_per_device"), [(4, 1), (3, 2)])
def test_sets_of_devices_may_overlap(
    files: Files, graph: Graph, tmp_path: Path, devices: int, cores_per_device: int
) -> None:
    """Operators on one to all of several virtual devices, in any combination, leave right outputs."""
    for seed in range(2):
        schedule_of(graph, random_wide(graph, devices, seed)).write(tmp_path / f"wide-{seed}.json")
    paths = [tmp_path / f"wide-{seed}.json" for seed in range(2)]
    settings = Settings(devices, 2, 0, virtual=True, cores_per_device=cores_per_device)
    run = execute(files.graph, files.weights, paths, tmp_path / "run.json", settings)
    assert run.platform.virtual is (True if devices * cores_per_device > len(usable_cores()) else None)
    assert max(result.largest_difference for result in run.results) <= run.tolerance


def test_flags_differ(graph: Graph) -> None:
    """Every wait of a program has a flag of its own, and the first device waits for each of the others."""
    plan = random_wide(graph, 4, seed=5)
    arena = ArenaPlan(graph, 4)
    programs = [program for program in arena.program(plan) if isinstance(program, WideProgram)]
    assert len(programs) == 4
    raised: list[int] = []
    for program in programs:
        for step in program.steps:
            first = step.devices[0] == program.device
            raised += [departure.flag for departure in step.departures]
            raised += [step.done] if first and step.free else [] if first else step.free
            assert len(step.free) == (len(step.devices) - 1 if first else 1)
    assert len(set(raised)) == len(raised)
    assert max(raised) < arena.flags


def test_schedules_of_gpus_are_narrow(files: Files, graph: Graph, tmp_path: Path) -> None:
    """Where devices are no cores, an operator on several is refused in one line."""
    schedule_of(graph, random_wide(graph, 2, seed=0)).write(tmp_path / "wide.json")
    message = r"wide\.json: placements\[\d+\]\.devices: found 2 devices; allowed where devices are no cores: one; "
    with pytest.raises(HiosError, match=message):
        execute(
            files.graph,
            files.weights,
            [tmp_path / "wide.json"],
            tmp_path / "run.json",
            Settings(2, 1, 0, platform="cuda"),
        )
