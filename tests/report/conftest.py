"""What tests of pages in a browser share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.report.browser import launched


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests of a module."""
    with launched() as browser:
        yield browser
