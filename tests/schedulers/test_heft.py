"""HEFT with insertion."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hios import Problem, schedule
from hios.core.problem import priority_order
from hios.schedulers.heft import heft
from tests.problems import problem, problems, random_problem, rows_of


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


def _by_the_letter(instance: Problem, devices: int) -> list[list[int]]:
    """HEFT that searches every idle gap of every device."""
    rank = {operator: number for number, operator in enumerate(priority_order(instance))}
    rows: list[list[tuple[float, float, int]]] = [[] for _ in range(devices)]
    finish: dict[int, float] = {}
    home: dict[int, int] = {}
    for operator in rank:
        starts = []
        for device, row in enumerate(rows):
            ready = max(
                [0.0, *(finish[u] + ms * (home[u] != device) for u, ms in instance.predecessors[operator])],
            )
            gaps = pairwise([(0.0, 0.0, -1), *row, (float("inf"), float("inf"), -1)])
            starts.append(next(max(ready, b[1]) for b, a in gaps if max(ready, b[1]) + instance.time[operator] <= a[0]))
        home[operator] = starts.index(min(starts))
        finish[operator] = min(starts) + instance.time[operator]
        rows[home[operator]].append((min(starts), finish[operator], rank[operator]))
        rows[home[operator]].sort()
    order = list(rank)
    return [[order[place] for _, _, place in row] for row in rows]


@given(problems(), st.integers(1, 6))
def test_heft_equals_the_algorithm_by_the_letter(instance: Problem, devices: int) -> None:
    """Passing over gaps that come too early changes nothing."""
    assert rows_of(heft(instance, devices)) == _by_the_letter(instance, devices)


@pytest.mark.parametrize("devices", [2, 4])
def test_larger_heft_schedules_equal_the_algorithm_by_the_letter(devices: int) -> None:
    """So with 80 operators and dear transfers, where many gaps are filled."""
    instance = random_problem(random.Random(devices), 80, 160, ties=True, utilization=lambda: 1.0)
    orders = rows_of(heft(instance, devices))
    assert orders == _by_the_letter(instance, devices)
    assert any(place < before for row in orders for before, place in pairwise(map(priority_order(instance).index, row)))
