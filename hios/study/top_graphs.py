"""A folder of graphs as a scenario, with costs predicted for a GPU."""

from __future__ import annotations

from pathlib import Path

from hios.costs import Costs
from hios.errors import HiosError
from hios.formats.scenario_file import ModelOfScenario, ScenarioFile
from hios.graph import Graph
from hios.platforms.model import descriptions
from hios.platforms.model.model_predicting import predicted_costs
from hios.problem import Problem
from hios.serving.scenario import Scenario, ServedModel, pipeline_blocks


def scenario_of_graphs(folder: Path, gpu: str) -> Scenario:
    """The models of all ``folder/MODEL/graph.json`` on one GPU, one task of each per second.

    Args:
        folder: of the graphs.
        gpu: GPU that costs are predicted for, one of `hios profile --gpu`.

    Raises:
        HiosError: no such GPU, no graph in the folder, or a graph whose costs cannot be predicted.
    """
    described = descriptions.gpu(gpu)
    models = []
    for path in sorted(folder.glob("*/graph.json")):
        graph = Graph.read(path)
        file = predicted_costs(graph, described, descriptions.link(None, described), 1)
        costs = Costs.of(file, f"{path}, {described.name}")
        label = path.parent.name
        entry = ModelOfScenario(graph=f"{label}/graph.json", costs=f"{label}/costs.json", rate=1.0)
        models.append(ServedModel(label, entry, Problem(graph, costs), costs, pipeline_blocks(graph), 1.0))
    if not models:
        raise HiosError(f"{folder}: found no graph; required: MODEL/graph.json, as hios extract writes it")
    entries = {model.label: model.settings for model in models}
    return Scenario(ScenarioFile(models=entries, lanes=1), tuple(models), True, source=str(folder), folder=folder)
