"""A quiet machine for all tests of hios.optimize."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.optimizing.optimized_models import pretend_busy


@pytest.fixture(autouse=True, scope="module")
def _quiet_machine() -> Iterator[None]:
    """Nothing is timed here, so it does not matter what else the cores do."""
    with pytest.MonkeyPatch.context() as patch:
        pretend_busy(patch)
        yield
