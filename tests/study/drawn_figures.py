"""Figures of the registry, drawn by tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from hios.formats.study import FigureFile
from hios.study import registry
from hios.study.figure_data import ExecutedNetwork, FigureData
from hios.study.figure_files import stated, write_figure


def draw(name: str, data: FigureData | Iterable[Path], folder: Path) -> FigureFile:
    """Write a figure into a folder, from data or the files that hold them; what its JSON file holds."""
    return write_figure(registry.figure(name), _read(data), folder)


def found(name: str, data: FigureData | Iterable[Path]) -> FigureFile:
    """The same without drawing it."""
    _, record = stated(registry.figure(name), _read(data))
    return record


def _read(data: FigureData | Iterable[Path]) -> FigureData:
    return data if isinstance(data, FigureData) else FigureData.read(data)


def of_sessions(name: str, files: Mapping[str, Iterable[Path]]) -> list[Path]:
    """The files that a figure is drawn from, of those of all sessions."""
    return [path for session in registry.figure(name).sessions for path in files[session]]


def on_gpu(network: ExecutedNetwork, **changes: object) -> ExecutedNetwork:
    """A network as if it had run on a GPU, with changes of its run."""
    run = network.run
    platform = msgspec.structs.replace(run.platform, name="cuda")
    return ExecutedNetwork(network.graph, network.costs, msgspec.structs.replace(run, platform=platform, **changes))
