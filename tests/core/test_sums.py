"""Sums of floats."""

from __future__ import annotations

from hios.core.sums import add_up


def test_sums_round_at_every_step() -> None:
    """From left to right, on every Python: since 3.12 `sum` gives 1.0 and 1e-16 here."""
    assert add_up([0.1] * 10) == 0.9999999999999999
    assert add_up(iter([1.0, 1e-16, -1.0])) == 0.0
    assert add_up([]) == 0
