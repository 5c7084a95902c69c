"""HEFT with insertion."""

from __future__ import annotations

from hios import schedule
from tests.problems import problem


def test_gap_is_filled() -> None:
    """While device 0 waits for a transfer, a later operator of lower rank runs in the gap."""
    instance = problem({"p": 10.0, "q": 10.0, "r": 5.0, "small": 2.0}, {("p", "r"): 2.0, ("q", "r"): 2.0})
    rows = {row.operator: row for row in schedule(instance, "heft", 2).placements}
    assert (rows["r"].device, rows["r"].start_ms) == (0, 12.0)
    assert (rows["small"].device, rows["small"].start_ms) == (0, 10.0)


def test_transfer_is_weighed() -> None:
    """An operator stays with its input where the transfer costs more than waiting."""
    near = problem({"a": 1.0, "b": 3.0, "c": 2.0}, {("a", "b"): 9.0, ("a", "c"): 9.0})
    assert {row.device for row in schedule(near, "heft", 2).placements} == {0}
    far = problem({"a": 1.0, "b": 3.0, "c": 2.0}, {("a", "b"): 0.5, ("a", "c"): 0.5})
    assert {row.operator: row.device for row in schedule(far, "heft", 2).placements} == {"a": 0, "b": 0, "c": 1}
