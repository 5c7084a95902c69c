"""Whether a results folder is consistent: every artifact against its schema, and all against each other.

schema_check       a file against its schema, with all violations
consistency        costs against their graph; schedules against graph and costs; what measurements say of the machine
                   and the software; tables/latency.csv against the files that it is made from; run.json against its
                   own runs, and against graph and schedules
study_and_serving  figures of the papers against the data that they are drawn from; results of serving against
                   themselves
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hios.core.costs import CostsFile
from hios.core.graph import Graph, GraphFile
from hios.core.problem import Problem
from hios.core.schedule import Schedule, ScheduleFile
from hios.errors import ArtifactError
from hios.files import artifacts
from hios.files.base import Record
from hios.formats.partition import PartitionFile
from hios.formats.run import Run
from hios.verify.consistency import (
    CheckedNetwork,
    bound_problems,
    costs_description_problems,
    is_measured,
    partition_problems,
    problem_of,
    run_description_problems,
    run_problems,
    schedule_problems,
    table_problems,
    versions_problems,
)
from hios.verify.schema_check import config_problems, contents, files_in, matches, schedules_asked_for
from hios.verify.study_and_serving import SERVING_FILES, STUDY_FILES, scenario_problems

#: Files by name; schedules have any name in a folder of schedules, or in that of a graph.
_KINDS = {f"{kind}.json": kind for kind in ("graph", "costs", "run", "schedule", "partition")}
#: Schedule that the pipeline writes next to the folder of schedules.
_CHOSEN = "auto.json"
_SCHEDULES = "schedules"
#: Folder of a network's run over the ranks of a launcher.
_DISTRIBUTED = "distributed"
#: What is said of schedules of earlier configurations, which fit their own graph and costs.
_LEFT = "made with another graph or other costs, and config.yaml does not ask for it any more: delete the file"
_TABLE = "tables/latency.csv"
#: Files that are not JSON objects of a class: which files of a folder, their kind, and their problems.
_OTHERS: tuple[tuple[str, str, Callable[[Path], Iterable[str]]], ...] = (
    ("config.yaml", "config", config_problems),
    ("versions.json", "versions", versions_problems),
    ("**/serving/*/scenario.yaml", "scenario", scenario_problems),
)


_Record = TypeVar("_Record", bound=Record)


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file and its problems, one line each."""

    path: str
    kind: str
    problems: tuple[str, ...]


def verify(folder: str | Path) -> list[CheckedFile]:
    """Check all artifacts in a folder and the folders in it.

    Artifacts are graph.json, partition.json, costs.json, run.json, config.yaml, versions.json and schedules, which lie
    in a folder named schedules or in that of a graph. Those of one network lie in one folder, as the pipeline has them;
    its run over the ranks of a launcher lies in the folder distributed in it.
    Measurements have to state the machine and the software that they were made with. The table of latencies,
    tables/latency.csv, is compared with the networks whose folders are next to its own.

    Raises:
        ArtifactError: the folder is not there, or holds no artifact.
    """
    root = Path(folder)
    _kind.cache_clear()  # files change between calls
    if not root.is_dir():
        raise ArtifactError(f"{root}: found no folder of this name; allowed: a folder of results")
    networks: dict[Path, list[Path]] = {}
    files = files_in(root)
    for path in files:
        if path.suffix == ".json" and _kind(path, root) != "":
            networks.setdefault(_network_of(path, root), []).append(path)
    asked = {root / label: names for label, names in schedules_asked_for(root / "config.yaml").items()}
    opened = {own: _NetworkFolder(own, paths, root, asked.get(own)) for own, paths in networks.items()}
    checked = [entry for network in opened.values() for entry in network.checked()]
    for path in (path for path in files if matches(path, f"**/{_TABLE}", root)):
        neighbors = [network.inputs for own, network in opened.items() if path.parents[1] in (own, own.parent)]
        problems = table_problems(path, [inputs for inputs in neighbors if inputs is not None])
        checked.append(_checked(path, "table", problems, root))
    for pattern, kind, problems_of in _OTHERS:
        # A folder of the same name beside the networks may be a network.
        found = (path for path in files if matches(path, pattern, root) and (path.is_file() or path.parent != root))
        checked += (_checked(path, kind, problems_of(path), root) for path in found)
    for rule in (*STUDY_FILES, *SERVING_FILES):
        checked += (_checked(path, kind, problems, root) for path, kind, problems in rule.checked(files, root))
    if not checked:
        names = ", ".join((*_KINDS, _CHOSEN, f"{_SCHEDULES}/*.json", "config.yaml", "result.json"))
        raise ArtifactError(f"{root}: found no artifact; allowed: a folder with some of {names}")
    return sorted(checked, key=lambda entry: entry.path)


def _checked(path: Path, kind: str, problems: Iterable[str], root: Path) -> CheckedFile:
    return CheckedFile(str(path.relative_to(root)), kind, tuple(problems))


def _network_of(path: Path, root: Path) -> Path:
    """The folder of the network that an artifact belongs to."""
    folder = path.parent
    return folder.parent if any(_is_part(folder, name, root) for name in (_SCHEDULES, _DISTRIBUTED)) else folder


def _is_part(folder: Path, name: str, root: Path) -> bool:
    """Whether it is a network's folder of this name; networks, which have a graph, and results may be called so too."""
    return folder.name == name and folder != root and not (folder / "graph.json").exists()


@functools.cache
def _kind(path: Path, root: Path) -> str:
    """Which artifact a file is; empty if none."""
    if path.name in _KINDS:
        return _KINDS[path.name]
    if _is_part(path.parent, _SCHEDULES, root) or path.name == _CHOSEN:
        return "schedule"
    if not (path.parent / "graph.json").exists():
        return ""
    try:
        data = artifacts.read_json(path, report=lambda message: None)
    except ArtifactError:  # it may be a schedule that was cut off: these begin alike
        with contextlib.suppress(OSError), path.open("rb") as file:
            return "schedule" if b'"format_version"' in file.read(100) else ""
        return ""
    return "schedule" if isinstance(data, dict) and "placements" in data else ""


class _NetworkFolder:
    """The artifacts of one network; ``asked`` names the schedules that config.yaml asks for, if it is known."""

    def __init__(self, own: Path, paths: list[Path], root: Path, asked: Container[str] | None) -> None:
        self._own, self._paths, self._root, self._asked = own, paths, root, asked
        self._problems: dict[Path, list[str]] = {path: [] for path in paths}
        #: What rows of tables follow from; None until the files are checked, and where one is missing or not valid.
        self.inputs: CheckedNetwork | None = None

    def checked(self) -> list[CheckedFile]:
        """All files, with what is wrong with them."""
        graph_file, costs_file = self._read("graph.json", GraphFile), self._read("costs.json", CostsFile)
        runs = self._valid("run", Run)  # on one node, and over the ranks of a launcher
        run = runs.get(self._own / "run.json")
        partition = self._read("partition.json", PartitionFile)
        files = self._valid("schedule", ScheduleFile)
        schedules = {path: Schedule.of(file, path.name) for path, file in files.items()}
        graph: Graph | None = None
        problem: Problem | None = None
        if graph_file is not None:
            with contextlib.suppress(ArtifactError):  # contents has said where its parts do not fit together
                graph = Graph.of(graph_file, "graph.json")
        if costs_file is not None and graph is not None:
            problem, defects = problem_of(graph, costs_file)
            self._problems[self._own / "costs.json"] += defects
        if partition is not None:
            self._problems[self._own / "partition.json"] += partition_problems(partition, graph, costs_file)
        for path, schedule in schedules.items():
            problems = schedule_problems(schedule, graph, problem)
            self._problems[path] += [_LEFT] if problems and self._is_left(path) else problems
        if problem is not None:
            self._check_bounds(schedules, problem)
        labeled = {path.stem: schedule for path, schedule in schedules.items()}
        for path, measured in runs.items():
            self._problems[path] += run_problems(measured, graph, labeled)
            self._problems[path] += run_description_problems(measured)
        if costs_file is not None:
            self._problems[self._own / "costs.json"] += costs_description_problems(costs_file)
        has_run = self._own / "run.json" in self._problems
        if graph is not None and costs_file is not None and (run is not None or not has_run):
            self.inputs = CheckedNetwork(self._own.name, graph, costs_file, run, labeled)
        return [
            _checked(path, _kind(path, self._root), problems, self._root) for path, problems in self._problems.items()
        ]

    def _check_bounds(self, schedules: Mapping[Path, Schedule], problem: Problem) -> None:
        predicted = {path: schedule for path, schedule in schedules.items() if not is_measured(schedule)}
        valid = [schedule for path, schedule in predicted.items() if not self._problems[path]]
        for path, schedule in predicted.items():
            if schedule in valid:
                self._problems[path] += bound_problems(schedule, problem, valid)

    def _is_left(self, path: Path) -> bool:
        """Whether a schedule is one of the pipeline's that the configuration no longer asks for."""
        return self._asked is not None and path.parent == self._own / _SCHEDULES and path.stem not in self._asked

    def _read(self, name: str, cls: type[_Record]) -> _Record | None:
        """A file of the network's own folder; None if it is not there or not valid."""
        path = self._own / name
        return contents(path, cls, self._problems[path]) if path in self._problems else None

    def _valid(self, kind: str, cls: type[_Record]) -> dict[Path, _Record]:
        """The valid files of a kind."""
        paths = [path for path in self._paths if _kind(path, self._root) == kind]
        files = {path: contents(path, cls, self._problems[path]) for path in paths}
        return {path: file for path, file in files.items() if file is not None}
