"""Choices on disk: which way to run a network was the fastest here, with its numbers and its schedule.

A choice is known by all that it rests on: graph, devices, algorithm, and what the measurements of a profile depend on
(`hios.platforms.cpu.environment`). Weights are no part of it and are never kept. Files appear by rename, so several
processes can share a folder; one that is damaged means that the choice is made anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hios import artifacts
from hios.errors import HiosError
from hios.graph import Graph
from hios.optimizing.report import Report
from hios.optimizing.ways import Way


class Choices:
    """The choice of one key.

    Args:
        folder: where choices lie, made when the first is written; None keeps nothing.
        key: all that the choice rests on, as JSON.
    """

    def __init__(self, folder: Path | None, key: Mapping[str, Any]) -> None:
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        self._file = None if folder is None else folder / f"{name}.json"

    def get(self, model: str, graph: Graph) -> tuple[Report, Way] | None:
        """The report for a model of this class, and the way; None where there is none that can be used."""
        if self._file is None:
            return None
        try:
            data = json.loads(self._file.read_text(encoding="utf-8"))
            return Report.from_json(data["report"], model), Way.from_json(data["way"], graph)
        except (OSError, ValueError, TypeError, KeyError, RecursionError, HiosError):
            return None  # none, or damaged: it is measured, and written anew

    def put(self, report: Report, way: Way) -> None:
        """Keep a choice.

        Raises:
            ArtifactError: the folder cannot be written.
        """
        if self._file is None:
            return
        text = json.dumps({"report": report.to_json(), "way": way.to_json()}, indent=1)
        with artifacts.replacing(self._file) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
