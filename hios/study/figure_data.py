"""The data that figures are drawn from: sessions of the pipeline, kept as files and read again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hios import artifacts
from hios.errors import HiosError
from hios.formats.config_file import SERIES
from hios.formats.costs_file import CostsFile
from hios.formats.graph_file import GraphFile
from hios.formats.run_file import Run
from hios.formats.simulation_file import AblationFile, SimulationFile

#: Sessions that figures may read: a series of the simulation, the ablation, or the networks of the configuration.
AVAILABLE = (*(f"simulation/{name}" for name in SERIES), "ablation", "networks")

#: How long sessions take on two idle cores, by the first part of their name.
SESSION_TIMES = {
    "simulation": "all series, a minute or two with scale quick, a quarter of an hour with scale full",
    "ablation": "ten seconds with scale quick, a minute with scale full",
    "networks": "profiling and executing, some minutes a network",
}


@dataclass(frozen=True, slots=True)
class Network:
    """A network that was profiled and executed."""

    graph: GraphFile
    costs: CostsFile
    run: Run


@dataclass(frozen=True, slots=True)
class FigureData:
    """What the sessions of a figure found.

    Attributes:
        simulations: settings of a series of the simulation.
        ablations: one for each generator of graphs.
        networks: by label.
        files: where all of it was read.
    """

    simulations: tuple[SimulationFile, ...] = ()
    ablations: tuple[AblationFile, ...] = ()
    networks: Mapping[str, Network] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    @classmethod
    def read(cls, paths: Iterable[Path]) -> FigureData:
        """Read files of sessions, each told by the folder that it lies in; a network by its run.json.

        Raises:
            HiosError: a file of another kind, or one that breaks its format.
        """
        simulations, ablations, networks = [], [], {}
        files = list(paths)
        for path in files:
            if path.parent.name == "simulation":
                simulations.append(artifacts.load(path, SimulationFile))
            elif path.parent.name == "ablation":
                ablations.append(artifacts.load(path, AblationFile))
            elif path.name == "run.json":
                folder = path.parent
                graph = artifacts.load(folder / "graph.json", GraphFile)
                costs = artifacts.load(folder / "costs.json", CostsFile)
                networks[folder.name] = Network(graph, costs, artifacts.load(path, Run))
            else:
                raise HiosError(f"{path}: found this file; allowed: simulation/*.json, ablation/*.json and */run.json")
        return cls(tuple(simulations), tuple(ablations), networks, tuple(map(str, files)))
