"""A cache of parsed Python sources, shared by processes: parsing all of hios takes seconds.

Snakemake asks for the hashes of the code at every start, and once more in every job of a cluster.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hios import artifacts
from hios.json_cache import cache_folder

#: Maximum number of entries, enough for several versions of hios; beyond it only those this process used are kept.
_MOST = 4000


class Code(NamedTuple):
    """What hashes need of a module: the names that it imports, and a digest of its syntax tree."""

    imports: tuple[str, ...]
    digest: str


class CodeCache:
    """Entries by the text of a file and whatever else they depend on, in one JSON file of the cache folder.

    A file that is missing or damaged counts as empty. One that cannot be written is left alone: then every process
    parses anew.

    Args:
        parsers: files whose code makes the entries; an edit of them begins a new cache.
    """

    def __init__(self, parsers: list[Path]) -> None:
        version = hashlib.sha256(sys.version.encode())
        for file in parsers:
            version.update(file.read_bytes())
        self.file = cache_folder() / "code" / f"{version.hexdigest()[:16]}.json"
        self._kept = self._read()
        self._used: dict[str, Code] = {}

    def get(self, text: bytes, depends: str, make: Callable[[], Code]) -> Code:
        """The entry of a text, made and kept if there is none.

        Args:
            text: contents of the file.
            depends: what else the entry depends on.
            make: makes the entry.
        """
        key = hashlib.sha256(depends.encode() + b"\n" + text).hexdigest()[:32]
        code = self._used.get(key) or self._kept.get(key) or make()
        self._used[key] = code
        return code

    def save(self) -> None:
        """Write what is new, if anything is."""
        if self._used.keys() <= self._kept.keys():
            return
        self._kept = {**self._read(), **self._used}
        if len(self._kept) > _MOST:
            self._kept = dict(self._used)
        # A folder that is not writable is no error: parsing again is only slower.
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with artifacts.replacing(self.file) as temporary:
                temporary.write_text(json.dumps(self._kept), encoding="utf-8")

    def _read(self) -> dict[str, Code]:
        try:
            entries = json.loads(self.file.read_text(encoding="utf-8"))
            return {key: Code(tuple(map(str, imports)), str(digest)) for key, (imports, digest) in entries.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}
