"""Connecting to the other ranks, and the options and files that must be the same on all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hios import platforms
from hios.errors import PlatformError
from hios.runtime.distributed.transports import Transport


@dataclass(frozen=True, slots=True)
class RankInputs:
    """The options of a rank by name, and the hash of every file by its path on this rank, in order."""

    options: Mapping[str, Any]
    files: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, options: Mapping[str, Any], files: Sequence[Path]) -> RankInputs:
        """From options, and files to hash."""
        return cls(options, [(str(path), _digest(path)) for path in files])

    def difference(self, theirs: RankInputs) -> str:
        """How another rank's options or files differ, in words; empty if they do not."""
        for name, own in self.options.items():
            if theirs.options[name] != own:
                return f"{name.removesuffix('_s')}, {theirs.options[name]} and {own}"
        pairs = zip(self.files, theirs.files, strict=True)
        return next((f"{path}: its contents" for (path, own), (_, other) in pairs if own != other), "")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def connect(name: str, platform: str, timeout_s: float) -> Transport:
    """Connect to the other ranks by gloo, nccl or mpi.

    Raises:
        PlatformError: this process was not started by the launcher of that transport, the ranks cannot connect, or the
            platform does not support the transport.
    """
    allowed = platforms.find(platform).TRANSPORTS
    if name not in allowed:
        raise PlatformError(f"transport {name}: found platform {platform}; allowed there: {', '.join(allowed)}")
    if name == "nccl":
        from hios.runtime.distributed.nccl import Nccl

        return Nccl(timeout_s)
    if name == "gloo":
        from hios.runtime.distributed.gloo import Gloo

        return Gloo(timeout_s)
    from hios.runtime.distributed.mpi import Mpi

    return Mpi()
