"""The data that figures are drawn from: sessions of the pipeline, kept as files and read again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar, get_args

import msgspec

from hios.core.costs import CostsFile
from hios.core.graph import GraphFile
from hios.core.schedule import ScheduleFile
from hios.errors import ArtifactError, HiosError
from hios.files import artifacts
from hios.formats.archive import unpacked
from hios.formats.config import SERIES, SimulationDefaults, SimulationStudy
from hios.formats.partition import PredictionFile
from hios.formats.run import Run
from hios.formats.serving_result import ResultFile
from hios.formats.study import AblationFile, ConvolutionsFile, Experiment, Setting, SimulationFile, TopStudyFile
from hios.study.published import has_published_inputs

VARIANTS = ("images", "batches", "transformers")
#: Sessions that figures may read: a series of the simulation, the ablation, the networks of the configuration,
#: convolutions alone, the networks scheduled by IOS with other pruning, networks of other sizes and others, predictions
#: of all these networks for the papers' GPUs, networks profiled for one algorithm alone, scenarios of several models,
#: experiments of TOP on them, and runs of other machines from their archives.
AVAILABLE = (
    *(f"simulation/{name}" for name in SERIES),
    "ablation",
    "networks",
    "convolutions",
    "pruning",
    *VARIANTS,
    *(f"predictions/{of}" for of in ("networks", *VARIANTS)),
    "profiles",
    "serving",
    *(f"top/{name}" for name in get_args(Experiment)),
    "archives",
)

#: How long sessions take on two idle cores, by the first part of their name.
SESSION_TIMES = {
    "simulation": "all series, a minute at most with scale quick, minutes with scale full",
    "ablation": "ten seconds with scale quick, a minute with scale full",
    "networks": "profiling and executing, some minutes a network",
    "convolutions": "half a minute with scale quick, some minutes with scale full",
    "serving": "some seconds a policy and load once networks are profiled",
    "top": "seconds to minutes an experiment, once networks are profiled; training takes longest",
    "pruning": "profiling, and some minutes a network for the search and the runs",
    "images": "some minutes a network and size",
    "batches": "some minutes a network and size",
    "transformers": "some minutes a network",
    "predictions": "some seconds a network: nothing runs",
    "archives": "nothing: they are copied from where `study: archives:` says",
    "profiles": "some minutes with scale quick; with scale full there is no limit: all that an algorithm asks for is "
    "measured, for every network, size and algorithm, which takes hours for IOS",
}

_MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class ExecutedNetwork:
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
class PredictedNetwork:
    """A network whose schedules are predicted for the papers' GPUs."""

    graph: GraphFile
    file: PredictionFile


_Network = TypeVar("_Network", ExecutedNetwork, PredictedNetwork)


@dataclass(frozen=True, slots=True)
class OtherMachine:
    """What an archive of another machine holds."""

    processor: str
    networks: dict[str, ExecutedNetwork]

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


@dataclass(slots=True)
class FigureData:
    """The data of a figure's sessions.

    Attributes:
        simulations: settings of a series of the simulation.
        ablations: one for each generator of graphs.
        networks: by label.
        convolutions: alone; one file at most.
        pruning: networks by label, whose runs are those of schedules by pruning.
        variants: networks of other sizes and others by name, by session.
        profiles: what was profiled for one algorithm alone, by algorithm, by name of the network.
        serving: results of scenarios by label.
        files: that everything was read from.
        machines: other machines by name, that of their archive.
        top: experiments of TOP by name.
        predictions: networks predicted for the papers' GPUs by name, by session: networks, or one of ``VARIANTS``.
    """

    simulations: tuple[SimulationFile, ...] = ()
    ablations: tuple[AblationFile, ...] = ()
    networks: dict[str, ExecutedNetwork] = field(default_factory=dict)
    convolutions: tuple[ConvolutionsFile, ...] = ()
    pruning: dict[str, ExecutedNetwork] = field(default_factory=dict)
    variants: dict[str, dict[str, ExecutedNetwork]] = field(default_factory=dict)
    profiles: dict[str, dict[str, ProfiledAlone]] = field(default_factory=dict)
    serving: dict[str, tuple[ResultFile, ...]] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    machines: dict[str, OtherMachine] = field(default_factory=dict)
    top: dict[str, TopStudyFile] = field(default_factory=dict)
    predictions: dict[str, dict[str, PredictedNetwork]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Time of the sessions: processor time of simulations, and profiling and timed runs of networks."""
        simulated = [file.cpu_s for file in self.simulations] + [file.cpu_s for file in self.ablations]
        simulated += [file.cpu_s for file in self.top.values()]
        measured = [
            network.seconds
            for part in (self.networks, self.pruning, *self.variants.values())
            for network in part.values()
        ]
        alone = [entry.seconds for entries in self.profiles.values() for entry in entries.values()]
        predicted = [entry.file.seconds for entries in self.predictions.values() for entry in entries.values()]
        return sum([*simulated, *measured, *alone, *predicted, *(file.seconds for file in self.convolutions)])

    def as_published(self, *, varied: Collection[str], larger: bool) -> FigureData:
        """What can be compared with published numbers: simulations with HIOS's settings, and the papers' networks.

        Args:
            varied: parameters of the simulation that may have other values than HIOS's.
            larger: whether networks with larger images count too, beside those that take what the papers give them.
                Graphs that do not state their inputs count in any case.
        """
        usual = SimulationStudy()

        def keep(networks: Mapping[str, _Network]) -> dict[str, _Network]:
            return {
                label: network
                for label, network in networks.items()
                if all(has_published_inputs(label, tensor.shape, larger=larger) for tensor in network.graph.inputs)
            }

        return replace(
            self,
            simulations=tuple(
                file
                for file in self.simulations
                if _is_of_hios(file.setting, varied) and (file.window, file.alpha) == (usual.window, usual.alpha)
            ),
            ablations=tuple(
                file for file in self.ablations if _is_of_hios(file.setting, ()) and file.alpha == usual.alpha
            ),
            networks=keep(self.networks),
            pruning=keep(self.pruning),
            profiles={
                label: entries
                for label, entries in self.profiles.items()
                if has_published_inputs(*_image_of(label), larger=larger)
            },
            variants={session: keep(networks) for session, networks in self.variants.items()},
            predictions={session: keep(networks) for session, networks in self.predictions.items()},
            machines={
                name: OtherMachine(machine.processor, keep(machine.networks)) for name, machine in self.machines.items()
            },
        )

    @classmethod
    def read(cls, paths: Iterable[Path]) -> FigureData:
        """Read files of sessions, identified by their folders; a network is named by its run.json or schedule.json.

        Zip files are archives of other machines.

        Raises:
            HiosError: a file of another kind, or one that breaks its format.
        """
        data = cls()
        for path in paths:
            data.files += (str(path),)
            data._take(path)
        return data

    def _take(self, path: Path) -> None:
        """Read one file."""
        if path.parent.name == "simulation":
            self.simulations += (artifacts.load(path, SimulationFile),)
        elif path.parent.name == "ablation":
            self.ablations += (artifacts.load(path, AblationFile),)
        elif path.parts[-3:-1] == ("study", "top"):
            self.top[path.stem] = artifacts.load(path, TopStudyFile)
        elif path.name == "convolutions.json":
            self.convolutions += (artifacts.load(path, ConvolutionsFile),)
        elif path.parent.name in ("simulated", "measured"):
            label = path.parents[1].name
            self.serving[label] = (*self.serving.get(label, ()), artifacts.load(path, ResultFile))
        elif path.suffix == ".zip":
            self.machines[path.stem] = OtherMachine.read(path)
        elif not self._take_network(path):
            raise HiosError(
                f"{path}: found this file; allowed: simulation/*.json, ablation/*.json, study/top/*.json, "
                "convolutions.json, */run.json, */predicted.json, study/profiles/*/*/schedule.json, "
                "serving/*/simulated/*.json, serving/*/measured/*.json and archives *.zip"
            )

    def _take_network(self, path: Path) -> bool:
        """Read a file of a network; returns whether it is one."""
        label = path.parent.name
        variant = path.parts[-3] if path.parts[-4:-2] in [("study", name) for name in VARIANTS] else None
        if path.name == "predicted.json":
            self.predictions.setdefault(variant or "networks", {})[label] = PredictedNetwork(
                artifacts.load(path.with_name("graph.json"), GraphFile), artifacts.load(path, PredictionFile)
            )
        elif path.name == "schedule.json" and path.parts[-5:-3] == ("study", "profiles"):
            costs = artifacts.load(path.with_name("costs.json"), CostsFile)
            alone = ProfiledAlone(costs, artifacts.load(path, ScheduleFile))
            self.profiles.setdefault(path.parts[-3], {})[label] = alone
        elif path.name != "run.json":
            return False
        elif path.parent.parent.name == "pruning":
            self.pruning[label] = _network(path, path.parents[3] / label)
        elif variant is not None:
            self.variants.setdefault(variant, {})[label] = _network(path, path.parent)
        else:
            self.networks[label] = _network(path, path.parent)
        return True


def _image_of(label: str) -> tuple[str, tuple[int, ...]]:
    """A network and the shape of its images, by the label of what was profiled for an algorithm alone."""
    name, _, size = label.rpartition("-")
    return name, (1, 3, int(size), int(size))


def _is_of_hios(setting: Setting, varied: Collection[str]) -> bool:
    """Whether all parameters but those that vary are HIOS's; edges vary with operators."""
    usual = msgspec.structs.asdict(SimulationDefaults())
    if "operators" in varied:
        usual["edges"] = round(setting.operators * usual["edges"] / usual["operators"])
    return all(getattr(setting, name) == value for name, value in usual.items() if name not in varied)


def located(file: str, root: Path) -> Path:
    """The current place of a file that a figure names: as named, or in a folder of results that was moved."""
    path = Path(file)
    tails = [root.joinpath(*path.parts[start:]) for start in range(1, len(path.parts))]
    return next((place for place in tails if place.is_file()), path)


def _network(run: Path, folder: Path) -> ExecutedNetwork:
    """A run with the graph and the costs of a folder."""
    graph = artifacts.load(folder / "graph.json", GraphFile)
    costs = artifacts.load(folder / "costs.json", CostsFile)
    return ExecutedNetwork(graph, costs, artifacts.load(run, Run))
