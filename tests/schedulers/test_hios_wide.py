"""hios-wide: a list schedule without times on several devices, and the other algorithms unchanged with them."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hios import ALGORITHMS, Problem, schedule, violations
from hios.schedulers.hios_wide import cpa_widths, list_schedule
from tests.problems import briefly, problem, problems, wide_problems
from tests.wide_plans import least_latency

#: Those that may give an operator several devices.
_WIDE = ("hios-wide", "hios-opt")


@given(instance=problems(), devices=st.integers(1, 5))
def test_without_widths_it_is_heft(instance: Problem, devices: int) -> None:
    """Operators that take one device each start where and when HEFT has them start."""
    wide, heft = (schedule(instance, name, devices) for name in ("hios-wide", "heft"))
    assert wide.latency_ms == heft.latency_ms
    places = [{row.operator: (row.device, row.start_ms) for row in each.placements} for each in (wide, heft)]
    assert places[0] == places[1]


@settings(max_examples=150, deadline=None)
@given(instance=wide_problems(largest=3, devices=3), devices=st.integers(1, 3))
def test_schedules_with_widths_are_valid(instance: Problem, devices: int) -> None:
    """They pass the checker, are no better than the best of all, and no worse than with one device each."""
    scheduled = schedule(instance, "hios-wide", devices)
    assert violations(instance, scheduled) == []
    assert least_latency(instance, devices) <= scheduled.latency_ms * (1 + 1e-9)
    narrow = list_schedule(instance.on(devices), devices, float("inf"), [1] * len(instance))
    assert scheduled.latency_ms <= narrow.latency_ms * (1 + 1e-9)


def test_it_weighs_the_path_against_the_area() -> None:
    """A chain takes all devices even at a loss; operators side by side keep to one where width is a loss."""
    times = dict.fromkeys("abcd", 4.0)
    wide = {name: {2: 2.5, 4: 1.5} for name in times}
    chain = problem(times, dict.fromkeys([("a", "b"), ("b", "c"), ("c", "d")], 0.0), wide=wide)
    scheduled = schedule(chain, "hios-wide", 4)
    assert scheduled.latency_ms == 6.0
    assert {len(row.devices) for row in scheduled.placements} == {4}
    scheduled = schedule(problem(times, {}, wide=wide), "hios-wide", 4)
    assert scheduled.latency_ms == 4.0
    assert {row.devices for row in scheduled.placements} == {()}
    # The gap of device 1 beside a is used by b, whose upward rank is lower than that of c.
    mixed = problem({"a": 4.0, "b": 2.0, "c": 6.0}, {("a", "c"): 0.0}, wide={"c": {2: 3.0}})
    scheduled = schedule(mixed, "hios-wide", 2)
    assert scheduled.latency_ms == 7.0
    assert {row.operator: row.start_ms for row in scheduled.placements} == {"a": 0.0, "b": 0.0, "c": 4.0}


def test_values_are_on_the_first_device() -> None:
    """What reads the value of a wide operator elsewhere waits for the transfer."""
    instance = problem(
        {"a": 4.0, "b": 3.0, "c": 3.0}, {("a", "b"): 1.0, ("a", "c"): 1.0}, wide={"a": {2: 2.0}}, alpha=1.0
    )
    scheduled = schedule(instance, "hios-wide", 2)
    assert scheduled.latency_ms == 2.0 + 1.0 + 3.0
    assert violations(instance, scheduled) == []


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - set(_WIDE)))
@settings(max_examples=25, deadline=None)
@given(instance=wide_problems(largest=6), devices=st.integers(1, 4))
def test_others_do_not_change(name: str, instance: Problem, devices: int) -> None:
    """Published algorithms give every operator one device, even if the costs have times on several."""
    devices = devices if ALGORITHMS[name].several_devices else 1
    narrow = copy.copy(instance)
    narrow.wide_ms = {}
    scheduled, before = (schedule(each, name, devices, briefly(name)) for each in (instance, narrow))
    assert (scheduled.placements, scheduled.latency_ms, scheduled.merges) == (
        before.placements,
        before.latency_ms,
        before.merges,
    )


ONE = problem({"a": 8.0}, {}, wide={"a": {2: 5.0}})
CHAIN = problem({"a": 8.0, "b": 6.0}, {("a", "b"): 9.0}, wide={"a": {2: 4.0}, "b": {2: 5.0}})
#: a and b side by side, then c.
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
def test_cpa_by_hand(instance: Problem, per_level: bool, widths: list[int]) -> None:
    """Operators of the critical path widen one by one until it is no longer than the average area."""
    assert cpa_widths(instance.on(2), 2, per_level=per_level) == widths


@given(wide_problems(largest=6), st.integers(1, 4), st.booleans())
def test_cpa_widths_are_allowed(instance: Problem, devices: int, per_level: bool) -> None:
    """Every operator gets a number of devices that its costs list, and is not slower for it."""
    instance = instance.on(devices)
    for operator, width in enumerate(cpa_widths(instance, devices, per_level=per_level)):
        assert width == 1 or instance.wide_ms[operator][width] < instance.time[operator]
