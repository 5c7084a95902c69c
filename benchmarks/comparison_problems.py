"""Scheduling problems to compare algorithms on: as the papers' simulations draw them, and with known optima.

Every function gives a graph and the contents of its costs.json.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

from hios import Costs, Graph, Problem
from hios.files import artifacts
from hios.study.random_graphs import RandomGraph, random_layers

#: A graph with the contents of its costs.json.
Instance = tuple[Graph, dict[str, Any]]


def problem(instance: Instance) -> Problem:
    """The scheduling problem of an instance."""
    graph, costs = instance
    return Problem(graph, Costs.from_json(costs))


def write(instance: Instance, folder: Path) -> tuple[Path, Path]:
    """Write graph.json and costs.json of an instance."""
    graph, costs = instance
    graph.write(folder / "graph.json")
    artifacts.write(folder / "costs.json", "costs", costs)
    return folder / "graph.json", folder / "costs.json"


def hios_simulation(
    *, operators: int = 200, layers: int = 14, edges: int = 400, p: float = 0.8, seed: int = 0
) -> Instance:
    """One instance of HIOS section V-A; see `hios.study.random_graphs.random_layers`."""
    drawn = random_layers(operators=operators, layers=layers, edges=edges, p=p, seed=seed)
    return drawn.graph(), drawn.costs()


def planted(devices: int, *, operators: int = 200, p: float = 0.8, seed: int = 0) -> tuple[Instance, float]:
    """An instance whose optimum is known, and that optimum in milliseconds.

    Operators are packed without gaps on the devices: each device's time is cut at random places. Every operator
    takes one to three values from among the four that the packing makes latest in time for it, a transfer between
    devices (max(0.1 ms, p * t(u))) counted. So the packing is feasible; no schedule is shorter, since every device
    is busy all the time and utilizations are 1 (stages gain nothing); and there is little slack to find it.
    """
    draw = random.Random(seed)
    optimum = 2.0 * operators / devices
    tasks = []
    for device in range(devices):
        number = operators // devices + (device < operators % devices)
        borders = [0.0, *sorted(draw.uniform(0, optimum) for _ in range(number - 1)), optimum]
        tasks += [(start, finish, device) for start, finish in pairwise(borders)]
    draw.shuffle(tasks)
    transfers = {}
    for target, (start, _, device) in enumerate(tasks):
        slack = []
        for source, (begin, finish, other) in enumerate(tasks):
            transfer = max(0.1, p * (finish - begin))
            arrival = finish + (transfer if other != device else 0.0)
            if source != target and arrival <= start:
                slack.append((start - arrival, source, transfer))
        latest = sorted(slack)[:4]
        for _, source, transfer in draw.sample(latest, min(len(latest), draw.randint(1, 3))):
            transfers[source, target] = transfer
    times = [finish - start for start, finish, _ in tasks]
    return _instance(f"planted-{devices}-{seed}", times, transfers, [1.0] * operators), optimum


def standard_task_graph(path: Path) -> Instance:
    """A graph of the Standard Task Graph set (Kasahara), without transfers and without gain from grouping.

    Args:
        path: a file: number of tasks without the two dummies, then id, time, number of predecessors, predecessors.

    Raises:
        ValueError: a row is not as described.
    """
    rows = [[int(word) for word in line.split()] for line in path.read_text().splitlines() if line[:1] != "#"]
    rows = [row for row in rows if row]
    tasks = rows[1 : rows[0][0] + 3]
    for number, row in enumerate(tasks):
        if row[0] != number or len(row) != 3 + row[2]:
            raise ValueError(f"{path}: task {number}: found {row}; allowed: id, time, number of predecessors, these")
    transfers = {(source, row[0]): 0.0 for row in tasks for source in row[3:]}
    return _instance(path.stem, [float(row[1]) for row in tasks], transfers, [1.0] * len(tasks))


def _instance(
    name: str, times: list[float], transfers: dict[tuple[int, int], float], utilizations: list[float]
) -> Instance:
    drawn = RandomGraph(name, tuple(times), tuple(utilizations), transfers)
    return drawn.graph(), drawn.costs()
