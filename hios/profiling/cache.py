"""A cache of measurements, shared by runs and by networks that have the same operators.

An entry is identified by what was measured (the signatures of its operators) and by the measurement environment
(processor, clocks, software, code: ``hios.platforms.cpu.environment``), not by names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from hios.core.drift import Speed
from hios.files.json_cache import JsonCache, cache_folder

#: Version of the entries' format; entries of other versions are ignored.
_FORMAT = 2
#: Rounds that check whether cached times of operators still hold, and the allowed relative difference.
RECHECK_ROUNDS, MOST_DRIFT = 5, 0.05
_ADVICE = "profile without the cache (--no-cache), or with another (--cache FOLDER)"


@dataclass(frozen=True, slots=True)
class Measured:
    """Samples of one quantity and when they were taken; ``cached`` if an earlier run took them.

    Samples are milliseconds of operators and transfers, and ratios of stages, merges and devices that run at once.
    For operators ``speed`` is that of the machine when they were measured: milliseconds mean nothing without it.
    """

    samples: Sequence[float]
    measured_at: str
    cached: bool = False
    speed: Speed | None = None


def now() -> str:
    """The current time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def default_folder() -> Path:
    """The folder of the cache: in ``$HIOS_CACHE``, otherwise in the user's cache folder (XDG)."""
    return cache_folder() / "measurements"


def chosen_folder(cache: bool | str | Path) -> Path | None:
    """The folder of the cache that a user chose: the default one, that of a path, or none."""
    if cache is True:
        return default_folder()
    return Path(cache) if cache else None


class Cache:
    """Entries of one platform and software in a folder, which is created with the first one; None saves nothing.

    ``settings`` are the measurement environment, which measurements depend on; these are added only if ``keep``.

    Raises:
        ArtifactError: entries could not be written there.
    """

    def __init__(self, folder: Path | None, settings: Mapping[str, Any], *, keep: bool = True) -> None:
        self._keep = keep
        self._settings = dict(settings)
        self._entries = None if folder is None else JsonCache(folder, _ADVICE)

    def get(self, kind: str, what: Any) -> Measured | None:
        """The cached entry of what is measured, as JSON; None if there is no usable one."""
        return None if self._entries is None else self._entries.get(self._key(kind, what), _measured)

    def put(self, kind: str, what: Any, measured: Measured) -> None:
        """Store an entry, replacing an older one; an `ArtifactError` if it cannot be written."""
        if self._entries is None or not self._keep or measured.cached:
            return
        members: dict[str, object] = {"measured_at": measured.measured_at, "samples": list(measured.samples)}
        if measured.speed is not None:
            members["speed"] = msgspec.to_builtins(measured.speed)
        self._entries.put(self._key(kind, what), members)

    def _key(self, kind: str, what: Any) -> dict[str, object]:
        return {"format": _FORMAT, "kind": kind, "what": what, "settings": self._settings}


def _measured(entry: Any) -> Measured | None:
    samples, measured_at = entry["samples"], entry["measured_at"]
    datetime.fromisoformat(measured_at)
    speed = msgspec.convert(entry["speed"], Speed) if "speed" in entry else None
    if not samples or not all(_is_time(sample) for sample in samples):
        return None
    return Measured(samples, measured_at, cached=True, speed=speed)


def _is_time(sample: Any) -> bool:
    return isinstance(sample, int | float) and not isinstance(sample, bool) and 0 <= sample < math.inf
