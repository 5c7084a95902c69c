"""CPA and MCPA, step by step as their papers have it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hios import Problem
from hios.schedulers.allocation import cpa_widths
from tests.problems import problem, wide_problems

ONE = problem({"a": 8.0}, {}, wide={"a": {2: 5.0}})
CHAIN = problem({"a": 8.0, "b": 6.0}, {("a", "b"): 9.0}, wide={"a": {2: 4.0}, "b": {2: 5.0}})
#: a and b beside each other, then c.
LEVELS = problem(
    {"a": 8.0, "b": 1.0, "c": 8.0}, {("a", "c"): 0.0, ("b", "c"): 0.0}, wide={"a": {2: 4.0}, "c": {2: 4.0}}
)


@pytest.mark.parametrize(
    ("instance", "per_level", "widths"),
    [
        # Path 8 over area 4; then both are 5.
        (ONE, False, [2]),
        # Path 14 over area 7: a, whose t/k falls from 8 to 2, before b; 10 over 7: b; 9 and 9.
        (CHAIN, False, [2, 2]),
        # Path 16 over area 8.5: a; 12: c; 8.
        (LEVELS, False, [2, 1, 2]),
        # a may not have both devices, as b is beside it.
        (LEVELS, True, [1, 1, 2]),
        # Nothing to gain: the path is the area.
        (problem({"a": 8.0, "b": 8.0}, {}, wide={"a": {2: 4.0}}), False, [1, 1]),
        # Two devices take longer than one.
        (problem({"a": 8.0}, {}, wide={"a": {2: 9.0}}), False, [1]),
    ],
)
def test_by_hand(instance: Problem, per_level: bool, widths: list[int]) -> None:
    """Operators of the critical path widen one by one until it is no longer than the average area."""
    assert cpa_widths(instance.on(2), 2, per_level=per_level) == widths


@given(wide_problems(largest=6), st.integers(1, 4), st.booleans())
def test_widths_are_allowed(instance: Problem, devices: int, per_level: bool) -> None:
    """Every operator gets a number of devices that its costs list, and is not slower for it."""
    instance = instance.on(devices)
    for operator, width in enumerate(cpa_widths(instance, devices, per_level=per_level)):
        assert width == 1 or instance.wide_ms[operator][width] < instance.time[operator]
