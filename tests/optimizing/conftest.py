"""A quiet machine for all tests of hios.optimize, and a folder for what tests of a file may share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.optimizing.optimized_models import pretend_busy


@pytest.fixture(autouse=True, scope="module")
def _quiet_machine() -> Iterator[None]:
    """Nothing is timed here, so it does not matter what else the cores do."""
    with pytest.MonkeyPatch.context() as patch:
        pretend_busy(patch)
        yield


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for measurements that the tests of a file share."""
    return tmp_path_factory.mktemp("cache")
