"""A cache of JSON files, each identified by a key.

The name of a file is a hash of its key, and the key is in the file too. A file appears whole, by rename, so several
processes can share a folder. A file that is damaged, or of another key, counts as absent and is replaced by the next
entry of its key.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hios.errors import ArtifactError, HiosError
from hios.files import artifacts, read_limits

_Entry = TypeVar("_Entry")


def cache_folder() -> Path:
    """Folder of all caches of hios: ``$HIOS_CACHE``, else the one in the user's cache folder (XDG)."""
    given = os.environ.get("HIOS_CACHE")
    if given:
        return Path(given)
    # According to the XDG specification, relative paths are ignored.
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "hios"


class JsonCache:
    """Entries in a folder, which is created with the first one and refused if entries could not be written there.

    ``advice`` is what to do if an entry cannot be written, for the message.
    """

    def __init__(self, folder: Path, advice: str) -> None:
        artifacts.require_writable(folder / "entry.json")
        self._folder = folder
        self._advice = advice

    def get(self, key: Mapping[str, Any], convert: Callable[[Any], _Entry | None]) -> _Entry | None:
        """The entry of a key, which is all that it depends on; None if there is no usable one.

        ``convert`` builds the entry from the saved members; if they are invalid, it returns None or raises ValueError,
        TypeError, KeyError or HiosError.
        """
        key = _as_read(key)
        try:
            entry = json.loads(read_limits.read_text(self._file(key)))
            return convert(entry) if entry["key"] == key else None
        except (OSError, ValueError, TypeError, KeyError, RecursionError, HiosError, msgspec.MsgspecError):
            return None

    def put(self, key: Mapping[str, Any], members: Mapping[str, Any]) -> None:
        """Store the members of an entry, without a member "key", replacing an older one."""
        key = _as_read(key)
        file = self._file(key)
        text = json.dumps({"key": key, **members})
        try:
            artifacts.write_whole(file, text + "\n")
        except ArtifactError as error:
            raise ArtifactError(f"{error}; {self._advice}") from error

    def _file(self, key: Any) -> Path:
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return self._folder / name[:2] / f"{name[2:34]}.json"


def _as_read(key: Mapping[str, Any]) -> Any:
    """A key as it is read back from a file: tuples become lists."""
    return json.loads(json.dumps(key))
