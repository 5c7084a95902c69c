"""What the report is made from: the measured run of a model with its graph and costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hios import artifacts
from hios.errors import ArtifactError, shown
from hios.formats.costs_file import CostsFile
from hios.formats.run_file import Run
from hios.graph import Graph

_DECIMALS_FROM_MS = ((1000.0, 0), (100.0, 1), (10.0, 2))


@dataclass(frozen=True)
class ModelResults:
    """One model's results.

    Attributes:
        name: name of the graph, with its folder where several folders hold the same graph.
        run: what run.json holds.
        graph: the graph.
        costs: what costs.json holds.
    """

    name: str
    run: Run
    graph: Graph
    costs: CostsFile

    @property
    def fastest(self) -> int | None:
        """Position of the result with the smallest measured median; None without results."""
        medians = [result.latency_ms.median for result in self.run.results]
        return medians.index(min(medians)) if medians else None

    @property
    def has_sequential(self) -> bool:
        """Whether the baseline, the sequential schedule on one device, is among the schedules."""
        return any(result.algorithm == "sequential" and result.devices == 1 for result in self.run.results)

    @property
    def decimals(self) -> int:
        """Decimals of the model's times in milliseconds: four digits of its shortest measured latency."""
        run = self.run
        latencies = [run.baseline.latency_ms]
        latencies += [entry.latency_ms for entry in run.results] + [entry.latency_ms for entry in run.references]
        shortest = min(latency.median for latency in latencies)
        return next((decimals for least, decimals in _DECIMALS_FROM_MS if shortest >= least), 3)

    def type_of(self, operator: str) -> str:
        """Type of an operator."""
        return self.graph.operators[self.graph.index[operator]].type


def read_results(directories: Sequence[Path]) -> list[ModelResults]:
    """Read the results folders of a report, in the order given.

    Raises:
        ArtifactError: no folder is given, or a file is missing, damaged or does not fit the others.
    """
    if not directories:
        raise ArtifactError("report: no results folder is given; required: at least one")
    read = [(Path(directory), read_model(Path(directory))) for directory in directories]
    count = Counter(model.name for _, model in read)
    return [
        model
        if count[model.name] == 1
        else ModelResults(f"{model.name} ({directory.name})", model.run, model.graph, model.costs)
        for directory, model in read
    ]


def read_model(directory: Path) -> ModelResults:
    """Read the results folder of one network.

    Raises:
        ArtifactError: a file is missing, damaged or does not fit the others.
    """
    run = artifacts.load(directory / "run.json", Run)
    graph = Graph.read(directory / "graph.json")
    costs = artifacts.load(directory / "costs.json", CostsFile)
    return model_results(graph, costs, run, str(directory / "costs.json"), str(directory / "run.json"))


def model_results(
    graph: Graph, costs: CostsFile, run: Run, costs_source: str = "costs", run_source: str = "run"
) -> ModelResults:
    """The results of one network.

    Args:
        graph: the graph.
        costs: of its operators.
        run: of its schedules.
        costs_source: file of the costs, for messages.
        run_source: file of the run, for messages.

    Raises:
        ArtifactError: they are not of the same graph.
    """
    require_costs(graph, costs, costs_source)
    for position, result in enumerate(run.results):
        for kind, placements in (("predicted", result.predicted), ("measured", result.measured)):
            for row, placement in enumerate(placements):
                if placement.operator not in graph.index:
                    raise ArtifactError(
                        f"{run_source}: results[{position}].{kind}[{row}].operator: found "
                        f"{shown(placement.operator, quoted=False)}, which is not an operator of {graph.source}"
                    )
    return ModelResults(run.graph, run, graph, costs)


def require_costs(graph: Graph, costs: CostsFile, source: str) -> None:
    """Refuse costs of another graph.

    Raises:
        ArtifactError: an operator has no entry.
    """
    for operator in graph.index:
        if operator not in costs.operators:
            raise ArtifactError(
                f"{source}: operators: no entry for operator {shown(operator, quoted=False)} of {graph.source}; the "
                "two must be of the same graph"
            )
