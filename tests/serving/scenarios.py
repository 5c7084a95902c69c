"""Scenarios of small models by hand, random pipelines, and servers of queueing theory."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hios import Costs, Edge, Graph, Operator, Problem
from hios.formats.scenario import ModelOfScenario, Overheads, ScenarioFile, TopSettings
from hios.formats.serving_result import CalibrationFile, ServedResult
from hios.serving.pipeline import Pipeline, QueueRules
from hios.serving.scenario import Scenario, ServedModel, Trace, pipeline_blocks


def network(name: str, blocks: Sequence[Sequence[float]]) -> tuple[Graph, dict[str, float]]:
    """A graph with times by operator: each block is operators side by side, which all feed the next block's."""
    names = [[f"b{number}v{place}" for place in range(len(times))] for number, times in enumerate(blocks)]
    edges = [
        Edge(source, target) for before, after in itertools.pairwise(names) for source in before for target in after
    ]
    operators = tuple(Operator(v, "task") for block in names for v in block)
    graph = Graph(name, operators, tuple(edges), blocks=tuple(map(tuple, names)))
    return graph, {
        v: time for block, times in zip(names, blocks, strict=True) for v, time in zip(block, times, strict=True)
    }


def served(
    label: str,
    blocks: Sequence[Sequence[float]],
    rate: float,
    *,
    corun: Mapping[int, float] | None = None,
    wide: Mapping[str, Mapping[int, float]] | None = None,
    **settings: Any,
) -> ServedModel:
    """A model of blocks whose operators run side by side; times in milliseconds."""
    graph, times = network(label, blocks)
    transfers = {(edge.source, edge.target): 0.0 for edge in graph.edges}
    costs = Costs(times, transfers, corun=corun or {}, wide_ms=wide or {}, alpha=1.0)
    entry = ModelOfScenario(graph=f"{label}/graph.json", costs=f"{label}/costs.json", rate=rate, **settings)
    return ServedModel(label, entry, Problem(graph, costs), costs, pipeline_blocks(graph), rate)


def scenario(
    *models: ServedModel,
    overheads: Mapping[str, float] | None = None,
    top: Mapping[str, Any] | None = None,
    rows: Sequence[tuple[float, int]] | None = None,
    gpu: bool = False,
    **settings: Any,
) -> Scenario:
    """A scenario of such models."""
    file = ScenarioFile(
        models={model.label: model.settings for model in models},
        overheads=Overheads(**(overheads or {})),
        top=TopSettings(**(top or {})),
        **settings,
    )
    return Scenario(file, models, gpu, None if rows is None else tuple(rows))


def constants(**changes: Any) -> CalibrationFile:
    """Calibration constants of two models, left and right; with the defaults they have no effect."""
    given: dict[str, Any] = {
        "lanes": 2,
        "models": {"left": 1.0, "right": 1.0},
        "overheads": Overheads(),
        "jitter": (1.0, 1.0),
        "seconds": 1.0,
        **changes,
    }
    return CalibrationFile(**given)


def unaccounted(served: ServedResult) -> int:
    """Tasks of which a result does not say what became of them."""
    ended = served.completed + served.dropped + served.expired + served.failed
    return served.offered - ended - served.waiting - served.in_flight


def written(folder: Path, **changes: Any) -> Path:
    """A scenario.yaml of two models with the files that it names; ``changes`` replace keys of the scenario."""
    for label, blocks in (("left", [[2.0, 2.0], [3.0]]), ("right", [[1.0], [1.0], [1.0]])):
        graph, times = network(label, blocks)
        own = folder / label
        own.mkdir(parents=True, exist_ok=True)
        graph.write(own / "graph.json")
        costs = {
            "operators": {v: {"time_ms": time} for v, time in times.items()},
            "transfers": [{"source": edge.source, "target": edge.target, "time_ms": 0.0} for edge in graph.edges],
        }
        (own / "costs.json").write_text(json.dumps(costs), encoding="utf-8")
    models = {
        label: {"graph": f"{label}/graph.json", "costs": f"{label}/costs.json", "rate": rate, "slo_ms": 50}
        for label, rate in (("left", 40), ("right", 80))
    }
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump({"models": models, "duration_s": 5, **changes}), encoding="utf-8")
    return path


def chains(*models: Sequence[float], in_flight: int | None = None) -> Pipeline:
    """Models of blocks with constant times, in seconds; every block alone on the one lane."""
    combined = tuple(((model, block),) for model, own in enumerate(models) for block in range(len(own)))
    times = tuple(((0.0,), (seconds,)) for own in models for seconds in own)
    return Pipeline(1, tuple(map(len, models)), combined, times, times, "all", in_flight=in_flight)


def server(service_s: float) -> Pipeline:
    """A single server with a constant service time."""
    return chains([service_s])


def trace(*arrivals: tuple[float, int]) -> Trace:
    """Tasks from time and model."""
    return Trace(array("d", (time for time, _ in arrivals)), array("q", (model for _, model in arrivals)))


#: A queue that takes all and lets all out.
OPEN = QueueRules(1_000_000_000)


def random_case(seed: int, tasks: int = 60) -> tuple[Pipeline, list[QueueRules], Trace, float]:
    """A pipeline with queues, tasks and an end: anything goes, and many things happen at the same moment."""
    draw = random.Random(seed)
    whole = draw.random() < 0.3
    models = draw.randint(1, 3)
    blocks = tuple(1 if whole else draw.randint(1, 4) for _ in range(models))
    combined = random_partition(draw, [(model, block) for model in range(models) for block in range(blocks[model])])
    lanes = draw.randint(1, 3)
    several = whole and all(len(members) == 1 for members in combined) and draw.random() < 0.5
    take = draw.choice(["all", "one", "shared"])
    times = tuple(
        tuple(tuple(draw.choice([0.5, 1.0, draw.random()]) for _ in range(lanes)) for _ in range(1 << len(members)))
        for members in combined
    )
    pipeline = Pipeline(
        lanes,
        blocks,
        tuple(combined),
        times,
        times,
        take,  # type: ignore[arg-type]
        strict=whole and draw.random() < 0.3,
        several=several,
        slots=draw.randint(1, 2),
        max_wait_s=draw.choice([math.inf, 1.0, 0.25]),
    )
    queues = [
        QueueRules(
            draw.choice([1, 3, 1000]),
            draw.random() < 0.5,
            draw.choice([math.inf, 2.0, 0.5, 3.3]),
            draw.choice([0.0, 0.0, 0.5, 0.3]),
        )
        for _ in range(models)
    ]
    step, duration_s = draw.choice([0.5, 0.25]), draw.choice([20.0, 12.5])
    times_of_tasks = [
        draw.choice([round(draw.uniform(0, 15) / step) * step, draw.uniform(0, 15)]) for _ in range(tasks)
    ]
    rows = [(time, draw.randrange(models)) for time in sorted(times_of_tasks) if time < duration_s]
    if draw.random() < 0.4:
        pipeline = dataclasses.replace(pipeline, in_flight=draw.choice([1, 2, pipeline.at_once]))
        queues = [dataclasses.replace(rules, due_s=draw.choice([0.0, 0.5, 2.0])) for rules in queues]
    if draw.random() < 0.5:
        widest = tuple(tuple(draw.randint(1, lanes) for _ in rows) for rows in times)
        pipeline = dataclasses.replace(pipeline, widest=widest)
    if draw.random() < 0.5:
        left_s = tuple(tuple(draw.choice([0.5, 1.0, draw.random()]) for _ in range(count)) for count in blocks)
        pipeline = dataclasses.replace(pipeline, left_s=left_s, crowd=draw.randint(1, 4))
    return pipeline, queues, trace(*rows), duration_s


def random_partition(draw: random.Random, members: list[tuple[int, int]]) -> list[tuple[tuple[int, int], ...]]:
    """Blocks in combined blocks of at most four."""
    draw.shuffle(members)
    parts: list[list[tuple[int, int]]] = []
    for member in members:
        open_ones = [own for own in parts if len(own) < 4]
        if open_ones and draw.random() < 0.6:
            draw.choice(open_ones).append(member)
        else:
            parts.append([member])
    return [tuple(sorted(own)) for own in parts]
