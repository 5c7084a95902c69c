"""Published instances that are not part of the project; tests that need them are skipped, and say so, without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import published_data


def data_folder(name: str) -> Path:
    """The folder of a set of published instances; the test is skipped where it is missing."""
    try:
        return published_data.data_folder(name)
    except FileNotFoundError as error:
        pytest.skip(str(error))
