"""Refusals: errors of hios, each of one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hios.errors import HiosError


@contextmanager
def refused(starts: str = "", *holds: str, kind: type[HiosError] = HiosError) -> Iterator[None]:
    """What is refused in one line that starts with a text and holds others."""
    with pytest.raises(kind) as caught:
        yield
    message = str(caught.value)
    assert message.startswith(starts), message
    for text in holds:
        assert text in message, message
    assert "\n" not in message, message
