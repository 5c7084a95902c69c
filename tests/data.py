"""Data to check against that is not part of the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


def data_folder(name: str) -> Path:
    """A folder of HIOS_DATA, or of ``../shared/data`` beside the repository; the test is skipped where it is not."""
    folder = Path(os.environ.get("HIOS_DATA", _BESIDE)) / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here; HIOS_DATA names the folder that holds {name}")
    return folder
