"""The data that figures are drawn from: sessions of the pipeline, kept as files and read again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hios import artifacts
from hios.errors import ArtifactError, HiosError
from hios.formats.config_file import SERIES
from hios.formats.convolutions_file import ConvolutionsFile
from hios.formats.costs_file import CostsFile
from hios.formats.graph_file import GraphFile
from hios.formats.run_file import Run
from hios.formats.schedule_file import ScheduleFile
from hios.formats.serving_result_file import ResultFile
from hios.formats.simulation_file import AblationFile, SimulationFile
from hios.study.archive_reader import unpacked

#: Sessions that figures may read: a series of the simulation, the ablation, the networks of the configuration,
#: convolutions alone, the networks scheduled by IOS with other pruning, networks of other sizes and others, networks
#: profiled for one algorithm alone, scenarios of several models, and runs of other machines from their archives.
VARIANTS = ("images", "batches", "transformers")
AVAILABLE = (
    *(f"simulation/{name}" for name in SERIES),
    "ablation",
    "networks",
    "convolutions",
    "pruning",
    *VARIANTS,
    "profiles",
    "serving",
    "archives",
)

#: How long sessions take on two idle cores, by the first part of their name.
SESSION_TIMES = {
    "simulation": "all series, a minute at most with scale quick, minutes with scale full",
    "ablation": "ten seconds with scale quick, a minute with scale full",
    "networks": "profiling and executing, some minutes a network",
    "convolutions": "half a minute with scale quick, some minutes with scale full",
    "serving": "some seconds a policy and load once networks are profiled",
    "pruning": "profiling, and some minutes a network for the search and the runs",
    "images": "some minutes a network and size",
    "batches": "some minutes a network and size",
    "transformers": "some minutes a network",
    "archives": "nothing: they are copied from where `study: archives:` says",
    "profiles": "without a limit: all that an algorithm asks for is measured, for every network, size and algorithm",
}

_MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class Network:
    """A network that was profiled and executed."""

    graph: GraphFile
    costs: CostsFile
    run: Run

    @property
    def seconds(self) -> float:
        """Time of profiling, and of the timed runs of all schedules and references."""
        timed = [entry.latency_ms for entry in self.run.references] + [entry.latency_ms for entry in self.run.results]
        profiled = 0.0 if self.costs.profile is None else self.costs.profile.seconds
        return profiled + sum(sum(latency.runs) for latency in timed) / _MS_PER_S


@dataclass(frozen=True, slots=True)
class ProfiledAlone:
    """A network that was profiled for one algorithm, and scheduled by it."""

    costs: CostsFile
    schedule: ScheduleFile

    @property
    def seconds(self) -> float:
        """Time of profiling and of the algorithm."""
        profiled = 0.0 if self.costs.profile is None else self.costs.profile.seconds
        return profiled + self.schedule.scheduling_time_s


@dataclass(frozen=True, slots=True)
class OtherMachine:
    """What an archive of another machine holds.

    Attributes:
        processor: of the machine, as the archive describes it.
        networks: of its page, by label.
    """

    processor: str
    networks: Mapping[str, Network]

    @classmethod
    def read(cls, archive: Path) -> OtherMachine:
        """Read the networks of an archive.

        Raises:
            ArtifactError: the archive is damaged, is none, or is of a run that executed nothing.
        """
        with unpacked(archive) as (folder, manifest):
            folders = [folder / name for name in manifest.page.directories]
            networks = {own.name: _network(own / "run.json", own) for own in folders if (own / "run.json").is_file()}
        if not networks:
            raise ArtifactError(f"{archive}: found no run.json of a network; required: an archive of an executed run")
        return cls(manifest.machine.processor, networks)


@dataclass(frozen=True, slots=True)
class FigureData:
    """What the sessions of a figure found.

    Attributes:
        simulations: settings of a series of the simulation.
        ablations: one for each generator of graphs.
        networks: by label.
        convolutions: alone; one file at most.
        pruning: networks by label, whose runs are those of schedules by pruning.
        variants: networks of other sizes and others by name, by session.
        profiles: what was profiled for one algorithm alone, by algorithm, by name of the network.
        serving: results of scenarios by label.
        files: where all of it was read.
        machines: other machines by name, that of their archive.
    """

    simulations: tuple[SimulationFile, ...] = ()
    ablations: tuple[AblationFile, ...] = ()
    networks: Mapping[str, Network] = field(default_factory=dict)
    convolutions: tuple[ConvolutionsFile, ...] = ()
    pruning: Mapping[str, Network] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Network]] = field(default_factory=dict)
    profiles: Mapping[str, Mapping[str, ProfiledAlone]] = field(default_factory=dict)
    serving: Mapping[str, tuple[ResultFile, ...]] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    machines: Mapping[str, OtherMachine] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Time of the sessions: processor time of simulations, and profiling and timed runs of networks."""
        simulated = [file.cpu_s for file in self.simulations] + [file.cpu_s for file in self.ablations]
        measured = [
            network.seconds
            for part in (self.networks, self.pruning, *self.variants.values())
            for network in part.values()
        ]
        alone = [entry.seconds for entries in self.profiles.values() for entry in entries.values()]
        return sum([*simulated, *measured, *alone, *(file.seconds for file in self.convolutions)])

    @classmethod
    def read(cls, paths: Iterable[Path]) -> FigureData:
        """Read files of sessions, each told by the folder that it lies in; a network by its run.json or schedule.json.

        Zip files are archives of other machines.

        Raises:
            HiosError: a file of another kind, or one that breaks its format.
        """
        simulations, ablations, convolutions = [], [], []
        networks, pruning = {}, {}
        variants: dict[str, dict[str, Network]] = {}
        profiles: dict[str, dict[str, ProfiledAlone]] = {}
        serving: dict[str, list[ResultFile]] = {}
        machines: dict[str, OtherMachine] = {}
        files = list(paths)
        for path in files:
            if path.parent.name == "simulation":
                simulations.append(artifacts.load(path, SimulationFile))
            elif path.parent.name == "ablation":
                ablations.append(artifacts.load(path, AblationFile))
            elif path.name == "convolutions.json":
                convolutions.append(artifacts.load(path, ConvolutionsFile))
            elif path.name == "run.json" and path.parent.parent.name == "pruning":
                pruning[path.parent.name] = _network(path, path.parents[3] / path.parent.name)
            elif path.name == "run.json" and path.parts[-4:-2] in [("study", session) for session in VARIANTS]:
                variants.setdefault(path.parts[-3], {})[path.parent.name] = _network(path, path.parent)
            elif path.name == "schedule.json" and path.parts[-5:-3] == ("study", "profiles"):
                costs = artifacts.load(path.with_name("costs.json"), CostsFile)
                alone = ProfiledAlone(costs, artifacts.load(path, ScheduleFile))
                profiles.setdefault(path.parts[-3], {})[path.parent.name] = alone
            elif path.parent.name in ("simulated", "measured"):
                serving.setdefault(path.parents[1].name, []).append(artifacts.load(path, ResultFile))
            elif path.suffix == ".zip":
                machines[path.stem] = OtherMachine.read(path)
            elif path.name == "run.json":
                networks[path.parent.name] = _network(path, path.parent)
            else:
                allowed = (
                    "simulation/*.json, ablation/*.json, convolutions.json, */run.json, "
                    "study/profiles/*/*/schedule.json, serving/*/simulated/*.json, serving/*/measured/*.json and "
                    "archives *.zip"
                )
                raise HiosError(f"{path}: found this file; allowed: {allowed}")
        return cls(
            tuple(simulations),
            tuple(ablations),
            networks,
            tuple(convolutions),
            pruning,
            variants,
            profiles,
            {label: tuple(results) for label, results in serving.items()},
            tuple(map(str, files)),
            machines,
        )


def located(file: str, root: Path) -> Path:
    """Where a file that a figure names is now: there, or in a folder of results that was moved or renamed.

    Args:
        file: as the figure names it.
        root: the folder of results.
    """
    path = Path(file)
    tails = [root.joinpath(*path.parts[start:]) for start in range(1, len(path.parts))]
    return next((place for place in tails if place.is_file()), path)


def _network(run: Path, folder: Path) -> Network:
    """A run with the graph and the costs of a folder."""
    graph = artifacts.load(folder / "graph.json", GraphFile)
    costs = artifacts.load(folder / "costs.json", CostsFile)
    return Network(graph, costs, artifacts.load(run, Run))
