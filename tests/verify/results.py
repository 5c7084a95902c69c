"""A results folder as the pipeline writes it, with made-up measurements."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from benchmarks.drawn_runs import drawn_run
from hios import Costs, Edge, Graph, Operator, Problem, Schedule, schedule
from hios.core import drift
from hios.core.costs import CostsFile, OperatorCost, StageCost, TransferCost
from hios.core.drift import ProbeTiming, ProfiledSpeed, RunProbe
from hios.files import artifacts
from hios.formats.run import Chosen, Latency, Run, ScheduleResult
from hios.machine.statistics import speedup_interval, spread

RUNS = 12
ALGORITHMS = (("sequential", 1), ("greedy", 1), ("lios", 1), ("hios-lp", 2), ("hios-mr", 2))
_LABELLED = {f"{algorithm}-{devices}": (algorithm, devices) for algorithm, devices in ALGORITHMS}


def write_network(
    folder: Path, seed: int, labeled: Mapping[str, tuple[str, int]] = _LABELLED, graph: Graph | None = None
) -> Path:
    """Write graph, costs, schedules and a run of a random network; everything in them is right.

    Args:
        folder: of the network, which has its name.
        seed: of the network.
        labeled: algorithm and number of devices of every schedule, by its label.
        graph: of the network, without costs of stages; a random one if None.
    """
    chance = random.Random(seed)
    stages = () if graph is not None else (StageCost(groups=(("op7",), ("op8",)), time_ms=2.5),)
    graph = graph or _graph(folder.name, chance)
    graph.write(folder / "graph.json")
    costs = _costs(graph, chance, stages)
    artifacts.write(folder / "costs.json", "costs", costs)
    problem = Problem(graph, Costs.of(costs))
    then = drift.speed(_probe_samples(chance))
    assert then is not None
    schedules = {}
    for label, (algorithm, devices) in labeled.items():
        made = replace(schedule(problem, algorithm, devices), probe=ProfiledSpeed("1", then, 0.25))
        schedules[label] = made
        made.write(folder / "schedules" / f"{label}.json")
    artifacts.write(folder / "run.json", "run", _run(graph, schedules, chance))
    return folder


def write_pruning(root: Path, label: str, seed: int) -> Path:
    """Write a run of the network in `root`/`label` by IOS with some pruning, as the session of IOS figure 9 does."""
    graph = Graph.read(root / label / "graph.json")
    problem = Problem(graph, Costs.of(artifacts.load(root / label / "costs.json", CostsFile)))
    chance = random.Random(seed)
    then = drift.speed(_probe_samples(chance))
    assert then is not None
    speed = ProfiledSpeed("1", then, 0.25)
    schedules = {
        "sequential-1": replace(schedule(problem, "sequential", 1), probe=speed),
        **{
            f"r{r}-s{s}": replace(schedule(problem, "ios", 1, {"r": r, "s": s}), probe=speed)
            for r, s in ((1, 3), (3, 8))
        },
    }
    path = root / "study" / "pruning" / label / "run.json"
    artifacts.write(path, "run", _run(graph, schedules, chance))
    return path


def _probe_samples(chance: random.Random) -> list[ProbeTiming]:
    return [
        ProbeTiming(float(second), device, chance.uniform(5, 6), chance.uniform(1, 2))
        for second in range(12)
        for device in (0, 1)
    ]


def _graph(name: str, chance: random.Random) -> Graph:
    operators = tuple(Operator(f"op{number}", "task") for number in range(9))
    edges = sorted({(chance.randrange(number), number) for number in range(1, 9) for _ in range(2)})
    return Graph(name, operators, tuple(Edge(f"op{source}", f"op{target}", 1000) for source, target in edges))


def _costs(graph: Graph, chance: random.Random, stages: tuple[StageCost, ...]) -> CostsFile:
    edges = dict.fromkeys((edge.source, edge.target) for edge in graph.edges)
    return CostsFile(
        operators={
            operator.id: OperatorCost(time_ms=chance.uniform(1, 2), utilization=0.6) for operator in graph.operators
        },
        transfers=tuple(
            TransferCost(source=source, target=target, time_ms=chance.uniform(0, 0.2)) for source, target in edges
        ),
        stages=stages,
        graph=graph.name,
        graph_fingerprint=graph.fingerprint,
    )


def _run(graph: Graph, schedules: dict[str, Schedule], chance: random.Random) -> Run:
    samples = _probe_samples(chance)
    now = drift.speed(samples)
    assert now is not None
    probe = RunProbe("1", now, tuple(samples))
    references = {"eager PyTorch": 1.3}
    run = drawn_run(graph, schedules, chance, runs=RUNS, devices=(2,), references=references, probe=probe)
    fastest = min(run.results, key=lambda result: result.latency_ms.median)
    return msgspec.structs.replace(run, chosen=_chosen(fastest, run.baseline.latency_ms))


def _chosen(fastest: ScheduleResult, baseline: Latency) -> Chosen:
    runs, others = fastest.latency_ms.runs[1::2], baseline.runs[1::2]
    latency = Latency(*spread(runs), runs)
    return Chosen(
        label=fastest.label,
        algorithm=fastest.algorithm,
        devices=fastest.devices,
        cores=fastest.devices,
        candidates=len(ALGORITHMS),
        latency_ms=latency,
        speedup=spread(others)[0] / latency.median,
        speedup_interval=speedup_interval(others, runs),
    )
