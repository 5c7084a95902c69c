"""Algorithms from other packages, imported on demand: by entry point, or as ``package.module:function``.

A distribution names each of its algorithms in its pyproject.toml::

    [project.entry-points."hios.algorithms"]
    mine = "my_package.module:function"

where ``function`` is registered with ``@hios.register("mine", ...)``. The same function is found without any
distribution as ``package.module:function``, in the working folder or in the environment.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hios.errors import HiosError, first_line, shown, suggestion
from hios.schedulers.registry import ALGORITHMS, AUTO, Algorithm

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "hios.algorithms"

#: Suffixes of the folders in which distributions keep their entry points.
_METADATA = (".dist-info", ".egg-info", "EGG-INFO")


def find(name: str) -> Algorithm:
    """The algorithm with a name of the registry, or ``package.module:function``; from another package it is imported.

    Raises:
        HiosError: there is none (the message lists the names), several share the name, or it cannot be imported.
    """
    if ":" in name:
        return _of_function(name)
    if name == AUTO:
        raise HiosError(
            f"{AUTO} is chosen by measurement: hios execute --auto FILE, or {AUTO}: {{}} among the algorithms of "
            "config.yaml; name another algorithm here"
        )
    load(name)
    if name not in ALGORITHMS:
        known = sorted({*ALGORITHMS, *entry_points()})
        raise HiosError(
            f"unknown algorithm {shown(name, quoted=False)}{suggestion(name, known)}; allowed: {', '.join(known)}, or "
            "package.module:function"
        )
    return ALGORITHMS[name]


def find_unless_foreign(name: str) -> Algorithm | None:
    """Like `find`, but no code is imported: None for the algorithms of other packages."""
    if ":" in name:
        _module_and_function(name)
        return None
    return None if name in entry_points() else find(name)


@functools.cache
def entry_points() -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of all installed distributions by name; read once per process, nothing is imported."""
    if not any(map(_names_group, sys.path)):
        return {}
    from importlib import metadata

    entries: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in metadata.entry_points(group=GROUP):
        entries[entry.name] = (*entries.get(entry.name, ()), entry)
    return entries


def _names_group(folder: str) -> bool:
    """Whether a distribution in a folder of the search path has entry points of the group.

    That takes a millisecond for 150 distributions, importlib.metadata ten; mostly there are none.
    """
    try:
        metadata = [entry.path for entry in os.scandir(folder or ".") if entry.name.endswith(_METADATA)]
    except OSError:  # not a folder, such as the zip file of the standard library
        return False
    for path in metadata:
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


def _of_function(text: str) -> Algorithm:
    """The algorithm ``package.module:function``; the working folder is searched before the environment, as for models.

    Raises:
        HiosError: there is no such module or function, importing fails, or the function is not registered.
    """
    place = shown(text, quoted=False)
    module_name, function_name = _module_and_function(text)
    before, searched = dict(ALGORITHMS), sys.path[:]
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever a third-party module raises on import
        _restore(before)
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise HiosError(
                f"algorithm {place}: no module {error.name} in the working folder, {Path.cwd()}, or in the environment"
            ) from error
        raise HiosError(
            f"algorithm {place}: {module_name} cannot be imported: {type(error).__name__}: {first_line(error)}"
        ) from error
    finally:
        sys.path[:] = searched
    function = getattr(module, function_name, None)
    if function is None:
        raise HiosError(f"algorithm {place}: {module_name} has no {function_name}")
    registered = next((algorithm for algorithm in ALGORITHMS.values() if algorithm.run is function), None)
    if registered is None:
        raise HiosError(f"algorithm {place}: {function_name} is not registered; put @hios.register(...) above it")
    return registered


def _module_and_function(text: str) -> tuple[str, str]:
    module, _, function = text.partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise HiosError(f"algorithm {shown(text, quoted=False)}: found this name; allowed: package.module:function")
    return module, function


def _register(name: str, entry: EntryPoint) -> None:
    before = dict(ALGORITHMS)
    try:
        function = entry.load()
    except (Exception, SystemExit) as error:  # whatever a third-party module raises on import
        _restore(before)
        raise HiosError(
            f"algorithm {name}: {_described(entry)} cannot be imported: {type(error).__name__}: {first_line(error)}"
        ) from error
    registered = ALGORITHMS.get(name)
    if registered is None or registered.run is not function:
        _restore(before)
        if registered is not None and name in before:
            raise HiosError(_shared(name, [registered.origin, _described(entry)]))
        raise HiosError(
            f'algorithm {name}: {_described(entry)} is no function under @hios.register("{name}", ...); an entry '
            "point has the name of the algorithm and the place of its function, package.module:function"
        )
    for added in {*ALGORITHMS} - {*before} | {name}:
        ALGORITHMS[added] = replace(ALGORITHMS[added], distribution=_distribution(entry))


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
