"""A machine that seems to do nothing else, or a lot: for tests that time nothing."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from hios.optimizing import autotune


class _Other:
    """Other work as a test wants it."""

    taken = 0.0

    def __init__(self, cores: Collection[int]) -> None:
        pass

    def share(self, children: Collection[int] = ()) -> float:
        """What the test said last."""
        return _Other.taken


def pretend_busy(patch: pytest.MonkeyPatch, share: float = 0.0) -> None:
    """Have hios.optimize see other work that takes this share of the cores' time, whatever there is."""
    patch.setattr(_Other, "taken", share)
    patch.setattr(autotune, "busy_share", lambda cores: share)
    patch.setattr(autotune, "OtherWork", _Other)
