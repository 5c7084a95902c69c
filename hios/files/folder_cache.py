"""A cache of folders with the files that something needs, by a key; the least recently used are deleted."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Maximum size of all folders of a cache; the least recently used are deleted first.
_MOST_BYTES = 10 * 10**9
#: How workspaces are named, and seconds after which one belongs to a process that was cut off.
_PARTIAL, _ABANDONED_S = "partial-", 24 * 3600.0


class FolderCache:
    """Folders by all that their files depend on: a key, and a digest of weights; without a folder, temporary ones."""

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
        """A new folder for files; deleted afterwards unless it is kept."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self._folder))
        if self._folder is not None:
            _remove_abandoned(self._folder, path.stat().st_mtime)
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
            self._folder.mkdir(parents=True, exist_ok=True)
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


def _remove_abandoned(folder: Path, now_s: float) -> None:
    """Remove workspaces that nothing has been written to for a day, as a killed process leaves its own.

    ``now_s`` is by the clock of the file system, which may be another machine's.
    """
    for path in folder.glob(f"{_PARTIAL}*"):
        with contextlib.suppress(OSError):  # another process was quicker
            if path.stat().st_mtime < now_s - _ABANDONED_S:
                shutil.rmtree(path, ignore_errors=True)


def _digest(key: Mapping[str, Any], state: str) -> str:
    text = json.dumps([key, state], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
