"""Messages of errors."""

from __future__ import annotations

import pickle

import pytest

from hios.errors import ArtifactError, HiosError, ScheduleError


@pytest.mark.parametrize("kind", [HiosError, ArtifactError, ScheduleError])
def test_long_messages_lose_their_middle(kind: type[HiosError]) -> None:
    """Whatever a file holds, a message says where and what is allowed in some thousand characters."""
    message = str(kind(f"graph.json: operators[3].id: found {'x' * 100_000}; allowed: another"))
    assert message.startswith("graph.json: operators[3].id: found xxx")
    assert message.endswith("xxx; allowed: another")
    assert " ... " in message
    assert len(message) < 4100
    assert str(kind("short")) == "short"


def test_errors_travel_between_processes() -> None:
    """An error is pickled with its message."""
    error = pickle.loads(pickle.dumps(ScheduleError("x" * 10_000)))  # noqa: S301
    assert type(error) is ScheduleError
    assert len(str(error)) < 4100
