"""Choices on disk: which way to run a network was the fastest here, with its numbers and its schedule.

A choice is known by all that it rests on: graph, devices, algorithm, and what the measurements of a profile depend on
(`hios.platforms.cpu.environment`). Weights are no part of it and are never kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hios.graph import Graph
from hios.json_cache import JsonCache
from hios.optimizing.report import Report
from hios.optimizing.ways import Way

_ADVICE = "give another folder (cache=FOLDER), or keep nothing (cache=False)"


class Choices:
    """The choice of one key.

    Args:
        folder: where choices lie, made when the first is written; None keeps nothing.
        key: all that the choice rests on, as JSON.

    Raises:
        ArtifactError: choices could not be written there.
    """

    def __init__(self, folder: Path | None, key: Mapping[str, Any]) -> None:
        self._entries = None if folder is None else JsonCache(folder, _ADVICE)
        self._key = key

    def get(self, model: str, graph: Graph) -> tuple[Report, Way] | None:
        """The report for a model of this class, and the way; None where there is none that can be used."""
        if self._entries is None:
            return None

        def chosen(entry: Any) -> tuple[Report, Way]:
            return Report.from_json(entry["report"], model), Way.from_json(entry["way"], graph)

        return self._entries.get(self._key, chosen)

    def put(self, report: Report, way: Way) -> None:
        """Keep a choice.

        Raises:
            ArtifactError: the folder cannot be written.
        """
        if self._entries is not None:
            self._entries.put(self._key, {"report": report.to_json(), "way": way.to_json()})
