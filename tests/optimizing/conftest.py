"""A quiet machine for all tests of hios.optimize, and as little measuring as they need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hios.optimizing import preparation, schedules
from tests.optimizing.optimized_models import pretend_busy


@pytest.fixture(autouse=True, scope="module")
def _quiet_machine() -> Iterator[None]:
    """Nothing is timed here, so it does not matter what else the cores do."""
    with pytest.MonkeyPatch.context() as patch:
        pretend_busy(patch)
        yield


@pytest.fixture(autouse=True, scope="module")
def _little_measuring() -> Iterator[None]:
    """No costs need to be certain, and no test but those that ask for `segments` needs segments in other runtimes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "_PROFILE_S", 0.1)
        patch.setattr(preparation, "_SEGMENTS_SHARE", 0.0)
        yield


@pytest.fixture
def segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of schedules are converted for other runtimes, as they are for users."""
    monkeypatch.setattr(preparation, "_SEGMENTS_SHARE", 0.5)
