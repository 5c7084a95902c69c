"""SqueezeNet on small images, and one session that runs many schedules of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hios import Graph, Schedule
from hios.core.drift import Estimate, ProfiledSpeed, Speed
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.files import artifacts
from hios.platforms.cpu import core_probe
from tests.frontends import small_networks
from tests.frontends.small_networks import Files
from tests.runtime.schedules import (
    merged_plan,
    one_by_one,
    random_plan,
    random_streams,
    run_schedules,
    write_schedules,
)

#: Devices of the session: two, or one on a machine with a single core.
DEVICES = min(2, len(os.sched_getaffinity(0)))
RUNS, WARMUP = 3, 1
#: Speed of the machine when costs were measured, of schedules that know it: of another probe, and of this one.
PROBES = {
    label: ProfiledSpeed(version, Speed(Estimate(2.0, 1.9, 2.1), Estimate(1.0, 1.0, 1.0)), 0.25)
    for label, version in (("sequential", core_probe.VERSION), ("alternating", core_probe.VERSION), ("streams", "old"))
}


@dataclass(frozen=True)
class Session:
    """What a session left: run.json and the folder of traces."""

    run: dict[str, Any]
    traces: Path


files, graph = small_networks.files, small_networks.graph


@pytest.fixture(scope="session")
def plans(graph: Graph) -> dict[str, Plan]:
    """Plans that the session runs, by label."""
    sequential = one_by_one(graph)
    alternating: list[list[Any]] = [[] for _ in range(DEVICES)]
    for position, operator in enumerate(graph.order):
        alternating[position % DEVICES].append(((operator,),))
    made: dict[str, Plan] = {
        "sequential": sequential,
        "one-group": StagedPlan((((tuple(graph.order),),),)),
        "alternating": StagedPlan(tuple(tuple(row) for row in alternating)),
        "idle-device": StagedPlan(((),) * (DEVICES - 1) + sequential.devices),
        "streams": random_plan(graph, 1, seed=36),
        "merged": merged_plan(graph, 1),
        "merged-alternating": merged_plan(graph, DEVICES),
    }
    made |= {f"random-{seed}": random_plan(graph, DEVICES, seed) for seed in range(1, 6)}
    made |= {f"streams-{count}": random_streams(graph, DEVICES, count, seed=count) for count in range(1, 6)}
    return made | {
        "one-device-streams": random_streams(graph, 1, 4, seed=4),
        "stream-each": StreamPlan((tuple((operator,) for operator in graph.order),), tuple(graph.order)),
    }


@pytest.fixture(scope="session")
def session(files: Files, graph: Graph, plans: dict[str, Plan], tmp_path_factory: pytest.TempPathFactory) -> Session:
    """All plans executed in one session, checked against eager PyTorch."""
    folder = tmp_path_factory.mktemp("session")
    paths = write_schedules(folder, graph, plans)
    for path in paths:
        replace(Schedule.read(path), probe=PROBES.get(path.stem)).write(path)
    traces = folder / "traces"
    run_schedules(files, paths, program=True, traces=traces, devices=DEVICES, runs=RUNS, warmup=WARMUP, seed=3)
    return Session(artifacts.read(folder / "run.json", "run"), traces)


@pytest.fixture
def alternating(graph: Graph, tmp_path: Path) -> Path:
    """Operators in turn on two ranks."""
    stages = tuple(((operator,),) for operator in graph.order)
    return write_schedules(tmp_path, graph, {"random": StagedPlan((stages[::2], stages[1::2]))})[0]
