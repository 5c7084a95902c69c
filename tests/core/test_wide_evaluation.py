"""Operators on several devices at once: evaluator, checker and bound against each other and against enumeration."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hios import Graph, Operator, Placement, Problem, Schedule, evaluate, lower_bound_ms, violations
from hios.core.bound_check import judge_bounds
from hios.core.costs import Costs
from hios.core.evaluate import latency_ms
from hios.core.schedule import StreamPlan
from hios.errors import ArtifactError, ScheduleError
from hios.runtime.competitors import ScheduleEntry
from tests.problems import problem, schedule_of, wide_problems, with_row
from tests.wide_plans import device_choices, least_latency, orders, plan_of, times_of, units_of

PAIR = problem(
    {"a": 2.0, "b": 3.0, "c": 4.0}, {("a", "c"): 0.5, ("b", "c"): 1.0}, wide={"a": {2: 1.25}, "c": {2: 2.5, 3: 2.0}}
)
#: a on both devices, then b on device 1, then c on both with its value on device 1.
WIDE = StreamPlan((((0, 2),), ((0, 1, 2),)), (0, 1, 2), {0: (0, 1), 2: (1, 0)})
VALID = schedule_of(PAIR, WIDE)
_with = partial(with_row, VALID)


def test_wide_operators_hold_all_their_devices() -> None:
    """One starts when all its devices are free and its inputs are on the first; its value is then there."""
    rows = {row.operator: row for row in evaluate(PAIR, WIDE)}
    assert (rows["a"].start_ms, rows["a"].finish_ms, rows["a"].devices) == (0.0, 1.25, (0, 1))
    assert (rows["b"].start_ms, rows["b"].finish_ms, rows["b"].devices) == (1.25, 4.25, ())
    assert (rows["c"].start_ms, rows["c"].finish_ms, rows["c"].devices) == (4.25, 6.75, (1, 0))
    assert rows["c"].device == 1
    assert [row.held_devices for row in rows.values()] == [(0, 1), (1,), (1, 0)]
    # On device 0 first, the value of b has to come over.
    other = dataclasses.replace(WIDE, wide={0: (0, 1), 2: (0, 1)})
    assert latency_ms(evaluate(PAIR, other)) == 4.25 + 1.0 + 2.5


@settings(max_examples=60, deadline=None)
@given(instance=wide_problems(largest=3, devices=3), devices=st.integers(1, 3))
def test_no_schedule_of_a_small_problem_beats_the_bound(instance: Problem, devices: int) -> None:
    """Every order with every choice of devices, timed here by the definition."""
    assert lower_bound_ms(instance, devices) <= least_latency(instance, devices) * (1 + 1e-9)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_plans_of_small_problems(data: st.DataObject) -> None:
    """Times are those of the definition, the checker agrees, and files give them back."""
    devices = data.draw(st.integers(1, 4))
    instance = data.draw(wide_problems())
    units = units_of(instance)
    order = data.draw(st.sampled_from(list(orders(instance.predecessors))))
    choices = tuple(data.draw(st.sampled_from(list(device_choices(unit, devices)))) for unit in units)
    made = schedule_of(instance, plan_of(order, choices, devices))
    times = times_of(units, instance.predecessors, order, choices, devices)
    assert [(row.start_ms, row.finish_ms) for row in made.placements] == [pytest.approx(times[v]) for v in order]
    bound = lower_bound_ms(instance, devices)
    assert violations(instance, made) == []
    again = Schedule.from_json(made.to_json())
    assert again.placements == made.placements
    assert latency_ms(evaluate(instance, again.plan(instance.graph))) == made.latency_ms
    verdicts = judge_bounds(instance, dataclasses.replace(made, lower_bound_ms=bound))
    assert [verdict.verdict for verdict in verdicts] == ["recomputed"]


def test_bound_by_hand() -> None:
    """The path has the least t(v, k) of the widths that fit, the work the least k*t(v, k)."""
    # The path a, c: 1.25 + 2.5 on two devices, 1.25 + 2 on three; the work 2 + 3 + 4.
    assert lower_bound_ms(PAIR, 1) == 9.0
    assert lower_bound_ms(PAIR, 2) == max(3.0 + 2.5, 4.5)
    assert lower_bound_ms(PAIR, 3) == max(3.0 + 2.0, 3.0)
    more = problem({"a": 4.0, "b": 4.0}, {}, wide={"a": {2: 1.5}})  # more than twice as fast: less work
    assert lower_bound_ms(more, 2) == max(4.0, (3.0 + 4.0) / 2)
    assert lower_bound_ms(problem({"a": 4.0, "b": 4.0}, {}, wide={"a": {2: 1.5}, "b": {2: 1.0}}), 2) == 2.5


def test_a_bound_above_the_all_wide_sequence_is_wrong() -> None:
    """What all operators take one after another, each on the best number of devices, is possible."""
    instance = problem({"a": 4.0, "b": 4.0}, {}, wide={"a": {2: 1.5}, "b": {2: 1.0}})
    slow = schedule_of(instance, StreamPlan((((0, 1),), ((),)), (0, 1)))
    (verdict,) = judge_bounds(instance, dataclasses.replace(slow, lower_bound_ms=3.0))
    assert (verdict.verdict, verdict.attained_ms) == ("wrong", 2.5)


def test_two_wide_operators_in_different_orders_deadlock() -> None:
    """Each of two operators occupies the device that the other waits for."""
    instance = problem({"a": 1.0, "b": 1.0}, {}, wide={"a": {2: 1.0}, "b": {2: 1.0}})
    plan = StreamPlan((((0, 1),), ((1, 0),)), (0, 1), {0: (0, 1), 1: (0, 1)})
    with pytest.raises(ScheduleError, match="the schedule deadlocks: a, b wait for each other"):
        evaluate(instance, plan)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            dataclasses.replace(WIDE, wide={0: (0, 1)}),
            "operator c is in the plan 2 times; allowed: once",
        ),
        (StreamPlan((((0, 1, 2),), ((2,),)), (), {0: (0, 1), 2: (0, 1)}), "operator a: found devices other than"),
        (StreamPlan((((0, 1, 2),), ((1,),)), (), {1: (0, 1)}), "operator b: found 2 devices; allowed: 1, those of"),
        (
            StreamPlan((((0, 1), ()), ((0, 2),)), (), {0: (0, 1)}),
            "device 0: found 2 streams; allowed: 1, as an operator",
        ),
    ],
)
def test_wrong_plans_are_refused(plan: StreamPlan, message: str) -> None:
    """Plans that do not hold a wide operator once a device, or take a number of devices without a time."""
    with pytest.raises(ScheduleError, match=message):
        evaluate(PAIR, plan)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (_with(1, start_ms=1.0, finish_ms=4.0), "operators a and b overlap on stream 0 of device 1"),
        (_with(1, device=0, start_ms=1.0, finish_ms=4.0), "operators a and b overlap on stream 0 of device 0"),
        (_with(0, start_ms=0.25), "operator a lasts 1.0 ms but costs 1.25 ms"),
        (_with(2, start_ms=4.5), "operator c lasts 2.25 ms but costs 2.5 ms"),
        (_with(1, devices=(1, 0)), "operator b takes 2 devices, for which the costs have no time"),
        (_with(2, device=0, devices=(0, 1)), "starts at 4.25 ms, before its input from b is there at 5.25 ms"),
        (_with(2, devices=(0, 1)), "placements[2].devices: found [0, 1]; allowed: 1 first, as in device"),
        (_with(2, devices=(1, 2)), "placements[2].devices: found 2; allowed: 0 to 1"),
        (_with(1, stream=1), "placements[1].stream: found 1 on device 1; allowed: 0, as an operator takes"),
    ],
)
def test_checker_refuses(broken: Schedule, message: str) -> None:
    """The checker finds each way to break a schedule with wide operators."""
    assert violations(PAIR, VALID) == []
    errors = violations(PAIR, broken)
    assert any(message in line for line in errors), errors


def test_staged_schedules_have_none() -> None:
    """A stage runs on one device."""
    rows = (Placement("a", 0, 0, 0, 0.0, 2.0, (0, 1)),)
    made = Schedule("test", {}, 2, 2.0, 0.0, 0.0, rows)
    with pytest.raises(ScheduleError, match=r"found \[0, 1\] in a staged schedule; allowed: one device"):
        made.plan(Graph("test", (Operator("a", "task"),), ()))


@pytest.mark.parametrize(
    ("wide", "message"),
    [
        ({"1": 2.0}, 'found the key "1"; allowed: text matching'),
        ({"02": 2.0}, 'found the key "02"; allowed: text matching'),
        ({"1025": 2.0}, 'found the key "1025"; allowed: text matching'),
        ({"two": 2.0}, 'found the key "two"; allowed: text matching'),
        ({"2": -1.0}, "found -1.0; allowed: at least 0"),
        ({"2": None}, "found null; allowed: number"),
    ],
)
def test_widths_of_files(wide: dict[str, Any], message: str) -> None:
    """Keys are whole numbers of devices from 2 to 1024, values times."""
    data = {"operators": {"a": {"time_ms": 3.0, "wide_ms": wide}}, "transfers": []}
    with pytest.raises(ArtifactError) as error:
        Costs.from_json(data)
    assert message in str(error.value)


def test_widths_are_read() -> None:
    """costs.json gives t(v, k) by number of devices; a problem for M devices has those up to M."""
    data = {"operators": {"a": {"time_ms": 3.0, "wide_ms": {"4": 1.0, "2": 1.5, "1024": 0.5}}}, "transfers": []}
    instance = Problem(Graph("one", (Operator("a", "task"),), ()), Costs.from_json(data))
    assert instance.wide_ms == {0: {2: 1.5, 4: 1.0, 1024: 0.5}}
    assert instance.on(4).wide_ms == {0: {2: 1.5, 4: 1.0}}
    assert instance.on(1).wide_ms == {}
    assert [instance.time_on(0, width) for width in (1, 2, 4)] == [3.0, 1.5, 1.0]
    with pytest.raises(ArtifactError, match=r"operators\.a\.wide_ms: found 1 devices; allowed: at least 2"):
        problem({"a": 1.0}, {}, wide={"a": {1: 1.0}})


def test_duplicate_devices_are_refused() -> None:
    """Devices of an operator differ from each other."""
    data = VALID.to_json()
    data["placements"][0]["devices"] = [0, 0]
    with pytest.raises(ArtifactError, match=r"placements\[0\]\.devices: found .*; allowed: items that differ"):
        Schedule.from_json(data)
    data["placements"][0]["devices"] = [0]
    with pytest.raises(ArtifactError, match=r"placements\[0\]\.devices: found .*; allowed: at least 2 item"):
        Schedule.from_json(data)


def test_corun_counts_what_the_others_add() -> None:
    """t(v, k) holds the slowdown of k devices already, so times on M are longer by the factor of M over that of k."""
    instance = problem({"a": 4.0}, {}, corun={2: 1.2, 4: 1.5}, wide={"a": {2: 2.0, 4: 1.0}}).on(4)
    assert instance.time == [6.0]
    assert instance.wide_ms[0] == pytest.approx({2: 2.0 * 1.5 / 1.2, 4: 1.0})


def test_executing_refuses_wide_operators() -> None:
    """Operators on several devices are refused where devices are no cores, before anything starts, in one line."""
    assert ScheduleEntry.of("wide", VALID, PAIR.graph, 2).schedule.devices == 2
    with pytest.raises(
        ScheduleError, match=r"placements\[0\]\.devices: found 2 devices; allowed where devices are no c"
    ):
        ScheduleEntry.of("wide", VALID, PAIR.graph, 2, cores_per_device=None)
