"""Results of platforms that predict: graph, costs and schedules of a model of which nothing was run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hios import artifacts
from hios.costs import Costs, predicted_for
from hios.errors import ArtifactError
from hios.evaluate import evaluate, latency_ms
from hios.formats.costs_file import CostsFile
from hios.graph import Graph
from hios.problem import Problem
from hios.report.model_results import require_costs
from hios.report.tables import sequential_ms
from hios.schedule import Schedule


@dataclass(frozen=True)
class ModelPredictions:
    """What is predicted of one model.

    Attributes:
        name: name of the graph, with its folder where several folders hold the same graph.
        graph: the graph.
        costs: what costs.json holds.
        schedules: by label, the name of the file without its ending.
    """

    name: str
    graph: Graph
    costs: CostsFile
    schedules: Mapping[str, Schedule]

    @property
    def sequential_ms(self) -> float:
        """Predicted latency of the sequential schedule on one device."""
        return sequential_ms(self.costs)

    def type_of(self, operator: str) -> str:
        """Type of an operator."""
        return self.graph.operators[self.graph.index[operator]].type

    @property
    def words(self) -> str:
        """What times are predicted for."""
        return predicted_for(self.costs.platform) or ""


def is_predicted(directory: Path) -> bool:
    """Whether the costs of a results folder are predicted; False where there are none."""
    path = directory / "costs.json"
    if not path.is_file():
        return False
    return predicted_for(artifacts.load(path, CostsFile).platform) is not None


def read_predictions(directories: Sequence[Path], labels: Sequence[str] = ()) -> list[ModelPredictions]:
    """Read the results folders of a report of predictions, in the order given.

    Args:
        directories: folders with graph.json, costs.json and schedules/LABEL.json.
        labels: the schedules to read; all if none is given.

    Raises:
        ArtifactError: a file is missing, damaged or does not fit the others.
    """
    models = [(directory, _read(directory, labels)) for directory in directories]
    count = Counter(model.name for _, model in models)
    return [
        model if count[model.name] == 1 else replace(model, name=f"{model.name} ({directory.name})")
        for directory, model in models
    ]


def _read(directory: Path, labels: Sequence[str]) -> ModelPredictions:
    graph = Graph.read(directory / "graph.json")
    costs = artifacts.load(directory / "costs.json", CostsFile)
    folder = directory / "schedules"
    files = [folder / f"{label}.json" for label in labels] or sorted(folder.glob("*.json"))
    if not files:
        raise ArtifactError(f"{folder}: found no schedule; required: at least one, by `hios schedule`")
    schedules = {path.stem: Schedule.read(path) for path in files}
    return model_predictions(graph, costs, schedules, str(directory / "costs.json"))


def model_predictions(
    graph: Graph, costs: CostsFile, schedules: Mapping[str, Schedule], costs_source: str = "costs"
) -> ModelPredictions:
    """What is predicted of one network.

    Args:
        graph: the graph.
        costs: of its operators, predicted.
        schedules: by label.
        costs_source: file of the costs, for messages.

    Raises:
        ArtifactError: they are not of the same graph, or a schedule was made with other costs.
    """
    require_costs(graph, costs, costs_source)
    problem = Problem(graph, Costs.of(costs, costs_source))
    for schedule in schedules.values():
        latency = latency_ms(evaluate(problem, schedule.plan(graph)))
        if not math.isclose(latency, schedule.latency_ms, rel_tol=1e-6):
            raise ArtifactError(
                f"{schedule.source}: latency_ms: found {schedule.latency_ms:.6g}; with {costs_source} it is "
                f"{latency:.6g}: the schedule was made with other costs, make it again"
            )
    return ModelPredictions(graph.name, graph, costs, schedules)
