"""Measurements kept for later: of other runs, and of other networks that have the same operators.

An entry is known by what was measured (the signatures of its operators) and by all it was measured under (processor,
clocks, software, code: ``hios.platforms.cpu.environment``), never by names. Each is a file of its own that appears by
rename, so that several processes can share a folder; one that is damaged or of another key counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from hios import artifacts
from hios.errors import ArtifactError
from hios.formats.probe_record import Speed

#: Version of the entries' format; others are not found.
_FORMAT = 2


@dataclass(frozen=True, slots=True)
class Measured:
    """Samples of one thing, and when they were taken; ``cached`` if by an earlier run.

    Samples are milliseconds of operators and transfers, and ratios of stages, merges and devices that run at once.
    Of operators ``speed`` is that of the machine when they were measured: milliseconds mean nothing without it.
    """

    samples: Sequence[float]
    measured_at: str
    cached: bool = False
    speed: Speed | None = None


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def default_folder() -> Path:
    """Folder of measurements: in ``$HIOS_CACHE``, else in the user's cache folder (XDG)."""
    given = os.environ.get("HIOS_CACHE")
    if given:
        return Path(given) / "measurements"
    # The XDG specification has relative paths ignored.
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "hios" / "measurements"


class Cache:
    """Entries of one platform and software in a folder.

    Args:
        folder: where entries lie, made when the first is written; None keeps nothing.
        settings: all that measurements depend on beside what is measured.
        keep: whether measurements are added.

    Raises:
        ArtifactError: entries could not be written there.
    """

    def __init__(self, folder: Path | None, settings: Mapping[str, Any], *, keep: bool = True) -> None:
        self._folder = folder
        self._keep = keep
        self._settings = dict(settings)
        if folder is not None:
            artifacts.require_writable(folder / "entry.json")

    def get(self, kind: str, what: Any) -> Measured | None:
        """The entry of what is measured; None where there is none that can be used.

        Args:
            kind: operator, stage, merge, transfer or corun.
            what: as JSON, what is measured.
        """
        if self._folder is None:
            return None
        key = self._key(kind, what)
        try:
            found = json.loads(self._file(self._folder, key).read_text(encoding="utf-8"))
            samples, measured_at = found["samples"], found["measured_at"]
            whole = found["key"] == key and samples and all(_is_time(sample) for sample in samples)
            datetime.fromisoformat(measured_at)
            speed = msgspec.convert(found["speed"], Speed) if "speed" in found else None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None  # none, or damaged: it is measured, and written anew
        return Measured(samples, measured_at, cached=True, speed=speed) if whole else None

    def put(self, kind: str, what: Any, measured: Measured) -> None:
        """Keep an entry, in place of the one that was there.

        Raises:
            ArtifactError: it cannot be written.
        """
        if self._folder is None or not self._keep or measured.cached:
            return
        key = self._key(kind, what)
        entry = {"key": key, "measured_at": measured.measured_at, "samples": list(measured.samples)}
        if measured.speed is not None:
            entry["speed"] = msgspec.to_builtins(measured.speed)
        file = self._file(self._folder, key)
        try:
            with artifacts.replacing(file) as temporary:
                temporary.write_text(json.dumps(entry) + "\n", encoding="utf-8")
        except OSError as error:
            raise ArtifactError(
                f"{file}: cannot be written: {error.strerror}; profile without the cache (--no-cache), or with another "
                "(--cache FOLDER)"
            ) from error

    def _key(self, kind: str, what: Any) -> Any:
        # As it comes back from a file: tuples as lists.
        return json.loads(json.dumps({"format": _FORMAT, "kind": kind, "what": what, "settings": self._settings}))

    @staticmethod
    def _file(folder: Path, key: Any) -> Path:
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return folder / name[:2] / f"{name[2:34]}.json"


def _is_time(sample: Any) -> bool:
    return isinstance(sample, int | float) and not isinstance(sample, bool) and 0 <= sample < math.inf
