"""Predictions of a network on the GPUs of the papers: costs by the platform model, schedules by the algorithms."""

from __future__ import annotations

import time
from collections.abc import Iterable

from hios import platforms
from hios.core.costs import Costs
from hios.core.graph import Graph
from hios.core.problem import Problem
from hios.errors import UnsupportedError
from hios.formats.partition import GpuPrediction, PredictionFile
from hios.profiling.predict import predict
from hios.schedulers import find, schedule
from hios.study.gpu_targets import TARGETS


def predict_targets(graph: Graph, targets: Iterable[str]) -> PredictionFile:
    """Schedules of a graph on the GPUs of some papers.

    Operators state calls and shapes, or ``flops`` and ``bytes``; of other graphs the file says that nothing can be
    predicted. Targets are keys of ``TARGETS``.
    """
    began, missing = time.perf_counter(), ""
    predictions: list[GpuPrediction] = []
    try:
        predictions = [_prediction(graph, name) for name in targets]
    except UnsupportedError as error:
        missing = str(error)
    return PredictionFile(
        graph=graph.name,
        graph_fingerprint=graph.fingerprint,
        predictions=tuple(predictions),
        seconds=time.perf_counter() - began,
        missing=missing,
    )


def predicted_problem(graph: Graph, name: str) -> Problem:
    """A graph with the costs predicted for a target; an `UnsupportedError` if its work or bytes are not known."""
    target = TARGETS[name]
    costs = predict(graph, "model", target.devices, target.options)
    return Problem(graph, Costs.of(costs, f"costs predicted for {target.gpu}"))


def _prediction(graph: Graph, name: str) -> GpuPrediction:
    target, problem = TARGETS[name], predicted_problem(graph, name)
    schedules = {}
    for algorithm in target.algorithms:
        devices = target.devices if find(algorithm).several_devices else 1
        schedules[f"{algorithm}-{devices}"] = schedule(problem, algorithm, devices).to_file()
    for label, parameters in target.of_ios.items():
        schedules[label] = schedule(problem, "ios", 1, dict(parameters)).to_file()
    platform = platforms.describe("model", target.devices, options=target.options)
    return GpuPrediction(target=name, platform=platform, schedules=schedules)
