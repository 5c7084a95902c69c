"""What ranks have to be given alike: options, and the contents of files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Given:
    """What a rank was given.

    Attributes:
        options: by name.
        files: hash of every file, by the path that this rank knows it under, in order.
    """

    options: Mapping[str, Any]
    files: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, options: Mapping[str, Any], files: Sequence[Path]) -> Given:
        """Options, and files to be read."""
        return cls(options, [(str(path), _digest(path)) for path in files])

    def difference(self, theirs: Given) -> str:
        """What another rank was given that is not the same, in words; nothing where all is."""
        for name, own in self.options.items():
            if theirs.options[name] != own:
                return f"{name.removesuffix('_s')}, {theirs.options[name]} and {own}"
        pairs = zip(self.files, theirs.files, strict=True)
        return next((f"{path}: its contents" for (path, own), (_, other) in pairs if own != other), "")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
