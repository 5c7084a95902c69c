"""The cache on disk: which candidate was the fastest for a model here, and its files, ready to be loaded.

The key of a choice covers the model's code, attributes and shapes, and the measurement environment
(`hios.optimizing.cache_key`); models with other weights share it. The key of what runs it - graph and weights, or the
files of another runtime - also covers the contents of the weights: a model never gets what was made for other weights.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from safetensors.torch import load_file, save_file
from torch import Tensor

from hios.errors import ArtifactError, HiosError
from hios.graph import Graph
from hios.json_cache import JsonCache
from hios.optimizing import runtimes
from hios.optimizing.candidates import SCHEDULE, Candidate
from hios.optimizing.report import Report

_ADVICE = "give another folder (cache=FOLDER), or keep nothing (cache=False)"
#: Maximum size of all kept models; the least recently used are deleted first.
_MOST_BYTES = 10 * 10**9
_GRAPH, _WEIGHTS = "graph.json", "weights.safetensors"


class ChoiceCache:
    """The cached choice of one key: everything that it depends on, as JSON. Without a folder nothing is saved.

    Raises:
        ArtifactError: choices could not be written there.
    """

    def __init__(self, folder: Path | None, key: Mapping[str, Any]) -> None:
        self._entries = None if folder is None else JsonCache(folder, _ADVICE)
        self._key = key

    def get(self) -> tuple[Report, Candidate] | None:
        """The report, and the candidate; None if there is no usable entry."""
        return None if self._entries is None else self._entries.get(self._key, _choice)

    def put(self, report: Report, candidate: Candidate) -> None:
        """Store a choice.

        Raises:
            ArtifactError: the folder cannot be written.
        """
        if self._entries is not None:
            members = {"report": msgspec.to_builtins(report), "way": candidate.to_json()}
            self._entries.put(self._key, members)


def _choice(entry: Any) -> tuple[Report, Candidate]:
    report = replace(msgspec.convert(entry["report"], Report), cached=True)
    if any(way.outcome == "raced" and way.median_ms is None for way in report.ways):
        raise ArtifactError("a choice in the cache is damaged: a way that raced has no times")
    return report, Candidate.from_json(entry["way"])


class ModelStore:
    """Folders with the files that run a model with given weights; without a folder, temporary ones."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def find(self, key: Mapping[str, Any], state: str) -> Path | None:
        """The folder of a key and weights; None if there is none."""
        if self._folder is None:
            return None
        path = self._folder / _digest(key, state)
        if not path.is_dir():
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # mark it as recently used
        return path

    @contextlib.contextmanager
    def workspace(self) -> Any:
        """A new folder for files of a model; deleted afterwards unless it is kept."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix="partial-", dir=self._folder))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def keep(self, key: Mapping[str, Any], state: str, workspace: Path) -> None:
        """Keep a workspace as the folder of a key and weights; nothing is kept if there is no room."""
        if self._folder is None:
            return
        target = self._folder / _digest(key, state)
        with contextlib.suppress(OSError):
            shutil.rmtree(target, ignore_errors=True)
            workspace.rename(target)  # appears whole
            self._prune(target)

    def _prune(self, newest: Path) -> None:
        assert self._folder is not None  # noqa: S101 - where nothing is kept nothing is pruned
        folders = sorted(
            (path for path in self._folder.iterdir() if path.is_dir() and path != newest),
            key=lambda path: path.stat().st_mtime,
            reverse=True,
        )
        total = _bytes(newest)
        for path in folders:
            total += _bytes(path)
            if total > _MOST_BYTES:
                shutil.rmtree(path, ignore_errors=True)


def write_graph(folder: Path, graph: Graph, weights: Mapping[str, Tensor]) -> None:
    """Write a graph and its weights."""
    (folder / _GRAPH).write_bytes(graph.to_bytes())
    save_file(dict(weights), folder / _WEIGHTS)


def read_graph(folder: Path) -> tuple[Graph, dict[str, Tensor]]:
    """Read what `write_graph` wrote.

    Raises:
        HiosError: it is damaged.
    """
    try:
        return Graph.read(folder / _GRAPH), load_file(folder / _WEIGHTS)
    except HiosError:
        raise
    except Exception as error:  # safetensors raises types of its own
        raise ArtifactError(f"{folder}: damaged ({error})") from error


def leave_only(folder: Path, candidate: Candidate) -> None:
    """Delete the files of a workspace that a candidate does not need."""
    needed = {_GRAPH, _WEIGHTS}
    if candidate.kind != SCHEDULE:
        file = runtimes.file(candidate.kind, folder, candidate.threads)
        needed = {file.name, file.with_suffix(".bin").name}
    for path in folder.iterdir():
        if path.name not in needed:
            path.unlink()


def _digest(key: Mapping[str, Any], state: str) -> str:
    text = json.dumps([key, state], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
