"""A file against its schema: all violations, by the reference validator."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from hios.core import costs, graph
from hios.core.costs import CostsFile
from hios.core.graph import GraphFile
from hios.errors import HiosError, first_line
from hios.files import artifacts, yaml_file
from hios.files.base import Record
from hios.files.validation import schema_errors
from hios.formats.config import AUTO_DEVICES
from hios.pipeline import config

_Record = TypeVar("_Record", bound=Record)


@dataclass(frozen=True, slots=True)
class FileRule(Generic[_Record]):
    """Which files of a folder of results have a format, and what else is checked of them.

    ``patterns`` are below the folder; ``check`` gets the contents of a valid file, its path and the folder; ``but`` is
    the name of files that match a pattern and are of another format.
    """

    cls: type[_Record]
    patterns: tuple[str, ...]
    check: Callable[[_Record, Path, Path], Iterable[str]] = lambda record, path, root: ()
    but: str = ""

    def checked(self, files: Iterable[Path], root: Path) -> Iterator[tuple[Path, str, list[str]]]:
        """File, kind and problems of those of the files in a folder."""
        for path in files:
            if path.name == self.but or not any(matches(path, pattern, root) for pattern in self.patterns):
                continue
            problems: list[str] = []
            if (record := contents(path, self.cls, problems)) is not None:
                problems += self.check(record, path, root)
            yield path, artifacts.kind_of(self.cls), problems


def files_in(root: Path) -> list[Path]:
    """Everything in a folder and those below, sorted; also in links to folders elsewhere, once each."""
    files, entered, places = list[Path](), [root.resolve()], [root]
    for place in places:  # which grows meanwhile
        for folder, folders, names in os.walk(place):
            files += (Path(folder, name) for name in (*folders, *names))
            for link in filter(Path.is_symlink, (Path(folder, name) for name in sorted(folders))):
                target, around = link.resolve(), link.parent.resolve()
                if not (around.is_relative_to(target) or any(map(target.is_relative_to, entered))):
                    entered.append(target)
                    places.append(link)
    return sorted(files)


def matches(path: Path, pattern: str, root: Path) -> bool:
    """Whether a file in a folder is one that the folder's ``glob`` would find, links entered."""
    if not fnmatchcase(path.name, pattern.rpartition("/")[2]):  # most are not, and this is quick
        return False
    own = Path("/", path.relative_to(root))
    return own.match(pattern.removeprefix("**/") if pattern.startswith("**/") else f"/{pattern}")


def contents(path: Path, cls: type[_Record], problems: list[str]) -> _Record | None:
    """The parsed contents of a file; None if they violate its schema. What is wrong is added to ``problems``."""
    try:
        data = artifacts.read_json(path, problems.append)
        record = _converted(data, cls)
        if record is None or problems:
            problems += schema_errors(data, artifacts.schema(artifacts.kind_of(cls)))
    except HiosError as error:
        problems.append(str(error).removeprefix(f"{path}: "))
        return None
    except (ValueError, RecursionError) as error:
        problems.append(f"cannot be an artifact of hios: {first_line(error)}")
        return None
    if record is None and not problems:  # schema and class are one, so this is a defect of hios
        problems.append(f"is refused by the class {cls.__name__}, but not by its schema")
    if record is None or problems:
        return None
    problems += _contradictions(record)
    return record


def _converted(data: object, cls: type[_Record]) -> _Record | None:
    """The object of a file; None if its class refuses it: then the validator, which is far slower, then says why."""
    try:
        return msgspec.convert(data, cls)
    except msgspec.ValidationError:
        return None


def _contradictions(record: Record) -> Iterator[str]:
    """Errors that a schema cannot express."""
    if isinstance(record, GraphFile):
        defects = list(graph.defects(record.operators, record.edges, record.blocks))
        yield from defects
        if not defects:
            try:
                graph.Graph.of(record, "graph")
            except HiosError as error:
                yield str(error).removeprefix("graph: ")
    elif isinstance(record, CostsFile):
        yield from costs.defects(record)


def schedules_asked_for(path: Path) -> dict[str, set[str]]:
    """Names of the schedules that a configuration may ask for, by network; none where it is missing or wrong."""
    with contextlib.suppress(HiosError):
        settings = config.without_files(yaml_file.read_yaml(path), path.name)
        numbers = (1, AUTO_DEVICES, *config.numbers_of_devices(settings))
        names = {f"{label}-{devices}" for label in settings.algorithms for devices in numbers}
        return dict.fromkeys(settings.models, names)
    return {}


def config_problems(path: Path) -> Iterator[str]:
    """Errors in a configuration: all schema violations, or else the first violation of another rule.

    Files and modules that it names are not looked up, as results may be checked on another machine, nor is code run.
    """
    try:
        settings = config.normalized(yaml_file.read_yaml(path), path.name)
        errors = schema_errors(settings, artifacts.schema("config"))
        yield from errors
        if not errors:
            config.without_files(settings, path.name)
    except HiosError as error:
        yield str(error).removeprefix(f"{path}: ").removeprefix(f"{path.name}: ")
