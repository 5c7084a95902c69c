"""Algorithms of other distributions: entry points of the group ``hios.algorithms``, imported when they are asked for.

A distribution names each of its algorithms in its pyproject.toml::

    [project.entry-points."hios.algorithms"]
    mine = "my_package.module:function"

where ``function`` is registered with ``@hios.register("mine", ...)``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hios.errors import HiosError, first_line
from hios.schedulers.registry import ALGORITHMS, AUTO, Algorithm

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "hios.algorithms"

#: How the folders end in which distributions keep their entry points.
_METADATA = (".dist-info", ".egg-info", "EGG-INFO")


def find(name: str) -> Algorithm:
    """The algorithm of a name; one of another distribution is imported now.

    Raises:
        HiosError: there is none (the message lists the names), several share the name, or it cannot be imported.
    """
    if name == AUTO:
        raise HiosError(
            f"{AUTO} is chosen by measurement: hios execute --auto FILE, or {AUTO}: {{}} among the algorithms of "
            "config.yaml; name another algorithm here"
        )
    load(name)
    if name not in ALGORITHMS:
        raise HiosError(f"unknown algorithm {name}; allowed: {', '.join(sorted({*ALGORITHMS, *entry_points()}))}")
    return ALGORITHMS[name]


@functools.cache
def entry_points() -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of all installed distributions by name; read once per process, nothing is imported."""
    if not any(map(_names_group, sys.path)):
        return {}
    from importlib import metadata

    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in metadata.entry_points(group=GROUP):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def _names_group(folder: str) -> bool:
    """Whether a distribution in a folder of the search path has entry points of the group.

    That takes a millisecond for 150 distributions, importlib.metadata ten; mostly there are none.
    """
    try:
        found = [entry.path for entry in os.scandir(folder or ".") if entry.name.endswith(_METADATA)]
    except OSError:  # no folder, such as the zip file of the standard library
        return False
    for path in found:
        with contextlib.suppress(OSError):
            if GROUP.encode() in Path(path, "entry_points.txt").read_bytes():
                return True
    return False


def load(name: str) -> None:
    """Register the algorithm that another distribution has under a name, unless it is registered or there is none.

    Raises:
        HiosError: several algorithms share the name, the import fails, or it registers something else; the message
            names the distributions and entry points.
    """
    entries = entry_points().get(name, ())
    known = ALGORITHMS.get(name)
    if not entries:
        return
    if len(entries) > 1 or (known is not None and known.origin.startswith("hios.")):
        own = [f"hios ({known.origin})"] if known is not None and not known.distribution else []
        raise HiosError(_shared(name, [*own, *map(_described, entries)]))
    if known is None or not known.distribution:
        _register(name, entries[0])


def load_all() -> list[str]:
    """Register the algorithms of all other distributions; one line for each name that cannot be used."""
    problems = []
    for name in entry_points():
        try:
            load(name)
        except HiosError as error:
            problems.append(str(error))
    return problems


def _register(name: str, entry: EntryPoint) -> None:
    before = dict(ALGORITHMS)
    try:
        function = entry.load()
    except (Exception, SystemExit) as error:  # whatever a module of someone else's does when it is imported
        _restore(before)
        raise HiosError(
            f"algorithm {name}: {_described(entry)} cannot be imported: {type(error).__name__}: {first_line(error)}"
        ) from error
    found = ALGORITHMS.get(name)
    if found is None or found.run is not function:
        _restore(before)
        if found is not None and name in before:
            raise HiosError(_shared(name, [found.origin, _described(entry)]))
        raise HiosError(
            f'algorithm {name}: {_described(entry)} is no function under @hios.register("{name}", ...); an entry '
            "point has the name of the algorithm and the place of its function, package.module:function"
        )
    for added in {*ALGORITHMS} - {*before} | {name}:
        ALGORITHMS[added] = ALGORITHMS[added].of(_distribution(entry))


def _restore(algorithms: Mapping[str, Algorithm]) -> None:
    ALGORITHMS.clear()
    ALGORITHMS.update(algorithms)


def _shared(name: str, origins: list[str]) -> str:
    return f"algorithm {name}: {' and '.join(origins)} have this name; allowed: one; rename or uninstall the others"


def _distribution(entry: EntryPoint) -> str:
    """Name and version of the distribution of an entry point."""
    if entry.dist is None:
        return "a distribution without metadata"
    return f"{entry.dist.name} {entry.dist.version}"


def _described(entry: EntryPoint) -> str:
    return f"{_distribution(entry)} (entry point {entry.name} = {entry.value})"
