"""Algorithm 2 of HIOS, rule by rule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hios import HiosError, schedule
from hios.core.evaluate import staged_times
from hios.core.problem import Problem, Stage, priority_order
from hios.core.schedule import StagedPlan
from hios.errors import ScheduleError
from hios.profiling.stage_requests import RecordingProblem
from hios.schedulers.heft import heft
from hios.schedulers.hios_lp import map_longest_paths
from hios.schedulers.hios_mr import map_by_recording
from hios.schedulers.parallelize import parallelize
from tests.problems import problem, problems, random_problem


def _plan(*rows: Sequence[int]) -> StagedPlan:
    """The operators of every device in order, one a stage."""
    return StagedPlan(tuple(tuple(((operator,),) for operator in row) for row in rows))


def test_grouping_needs_a_strict_gain() -> None:
    """With full utilization a pair takes its sum, no gain, and stays apart; with half it is grouped."""
    full = problem({"a": 1.0, "b": 1.0}, {})
    assert parallelize(full, _plan([0, 1]), 2) == _plan([0, 1])
    half = problem({"a": 1.0, "b": 1.0}, {}, utilization={"a": 0.5, "b": 0.5})
    assert parallelize(half, _plan([0, 1]), 2) == StagedPlan(((((0,), (1,)),),))


def test_grouping_that_makes_a_cycle_is_refused() -> None:
    """A and d are neighbors on device 0, but d needs b, which needs a, on device 1: no group."""
    instance = problem(
        {"a": 5.0, "b": 1.0, "d": 5.0},
        {("a", "b"): 0.0, ("b", "d"): 0.0},
        utilization={"a": 0.1, "d": 0.1},
    )
    plan = _plan([0, 2], [1])
    assert parallelize(instance, plan, 2) == plan


def test_grouping_that_makes_a_cycle_through_the_order_of_a_device_is_refused() -> None:
    """Device 0: a d, device 1: b c with a -> b and c -> d; b before c on device 1 closes the cycle."""
    instance = problem(
        {"a": 5.0, "b": 1.0, "c": 1.0, "d": 5.0},
        {("a", "b"): 0.0, ("c", "d"): 0.0},
        utilization={"a": 0.1, "d": 0.1, "b": 1.0, "c": 1.0},
    )
    plan = _plan([0, 3], [1, 2])
    parallelized = parallelize(instance, plan, 2)
    assert ((0,), (3,)) not in parallelized.devices[0]


def test_larger_window_that_makes_a_cycle_is_refused() -> None:
    """A b c are neighbors, c needs x, which needs a: b may join a or c, but no stage may hold all, however fast."""
    stages = {
        frozenset({("a",), ("b",)}): 9.0,
        frozenset({("b",), ("c",)}): 9.0,
        frozenset({("a",), ("b",), ("c",)}): 0.5,
    }
    instance = problem({"a": 1.0, "b": 3.0, "c": 1.0, "x": 0.5}, {("a", "x"): 0.0, ("x", "c"): 0.0}, stages=stages)
    plan = _plan([0, 1, 2], [3])
    assert parallelize(instance, plan, 3) == plan


@pytest.mark.parametrize(("share", "grouped"), [(1e-13, False), (7e-13, False), (2e-12, True)])
def test_rounding_is_no_gain(share: float, grouped: bool) -> None:
    """Sums in another order differ in the last bits; a gain counts from a share of 1e-12 of the latency on."""
    instance = problem({"a": 1.0, "b": 1.0}, {}, stages={frozenset({("a",), ("b",)}): 2.0 * (1 - share)})
    plan = _plan([0, 1])
    assert (parallelize(instance, plan, 2) != plan) == grouped


def test_measured_stages_decide() -> None:
    """Grouping follows measured t(S), as in the example of Fig. 5."""
    stages = {frozenset({("a",), ("b",)}): 2.5}
    dear = problem({"a": 1.0, "b": 1.0}, {}, utilization={"a": 0.1, "b": 0.1}, stages=stages)
    assert parallelize(dear, _plan([0, 1]), 2) == _plan([0, 1])


@pytest.mark.parametrize(("window", "sizes"), [(2, [2, 2]), (3, [3, 1]), (4, [4])])
def test_window_bounds_the_stage(window: int, sizes: list[int]) -> None:
    """No stage holds more than w operators; larger windows take in more."""
    names = "abcd"
    instance = problem(dict.fromkeys(names, 1.0), {}, utilization=dict.fromkeys(names, 0.1))
    parallelized = parallelize(instance, _plan([0, 1, 2, 3]), window)
    assert [len(stage) for stage in parallelized.devices[0]] == sizes


def test_asked_stages_are_recorded() -> None:
    """The profiler measures the stages that the window tried and that were not measured yet."""
    instance = RecordingProblem(problem({"a": 1.0, "b": 1.0}, {}))
    schedule(instance, "hios-lp", 1)
    assert instance.asked == {frozenset({(0,), (1,)})}


@pytest.mark.parametrize(
    ("pair", "triple", "expected"),
    [
        (1.5, 1.8, [3]),  # the larger window takes in what the smaller one grouped
        (1.5, 2.6, [2, 1]),  # the larger one is worse
        (1.5, 2.5, [2, 1]),  # or no better: 1.5 + 1
        (2.0, 1.8, [3]),  # only the larger one gains
        (2.0, 3.0, [1, 1, 1]),  # neither gains
    ],
)
def test_best_window_of_an_operator_stays(pair: float, triple: float, expected: list[int]) -> None:
    """Window sizes from 2 to w are tried, and the schedule with the lowest latency is kept."""
    stages = {
        frozenset({("a",), ("b",)}): pair,
        frozenset({("a",), ("b",), ("c",)}): triple,
        frozenset({("b",), ("c",)}): 2.0,
    }
    instance = problem(dict.fromkeys("abc", 1.0), {}, stages=stages)
    (row,) = parallelize(instance, _plan([0, 1, 2]), 3).devices
    assert [len(stage) for stage in row] == expected


def test_dependent_operators_are_not_grouped() -> None:
    """Neighbors with an edge between them stay apart, and no larger window holds both."""
    instance = problem(dict.fromkeys("abc", 1.0), {("a", "b"): 1.0}, utilization=dict.fromkeys("abc", 0.1))
    (row,) = parallelize(instance, _plan([0, 1, 2]), 3).devices
    assert row == (((0,),), ((1,), (2,)))


def test_windows_start_in_order_of_priority() -> None:
    """B has the highest priority, so it is grouped with c before a could be grouped with b."""
    instance = problem(
        {"a": 1.0, "b": 1.0, "c": 1.0, "end": 0.1}, {("b", "end"): 0.0}, utilization=dict.fromkeys("abc", 0.1)
    )
    parallelized = parallelize(instance, _plan([0, 1, 2], [3]), 2)
    assert parallelized.devices[0] == (((0,),), ((1,), (2,)))


def test_grouping_that_delays_another_device_is_refused() -> None:
    """A stage ends as a whole: b waits for a's partner too, and a longest path through b gets longer."""
    instance = problem(
        {"a": 1.0, "slow": 4.0, "b": 9.0}, {("a", "b"): 0.0}, utilization={"a": 0.1, "slow": 0.1, "b": 1.0}
    )
    plan = _plan([0, 1], [2])
    assert parallelize(instance, plan, 2) == plan


def test_plan_that_deadlocks_is_refused() -> None:
    """A plan that cannot run is an error."""
    instance = problem({"a": 1.0, "b": 1.0}, {("a", "b"): 1.0})
    with pytest.raises(ScheduleError, match="deadlocks"):
        parallelize(instance, _plan([1, 0]), 2)


def _latency(instance: Problem, rows: list[list[Stage]]) -> float:
    """Latency of the stages at their earliest start; infinite where they form a cycle or depend on each other."""
    try:
        return max(finish for _, finish, _, _ in staged_times(instance, StagedPlan(tuple(map(tuple, rows)))))
    except HiosError:
        return float("inf")


def _by_the_letter(instance: Problem, plan: StagedPlan, window: int) -> StagedPlan:
    """Algorithm 2 with the whole plan evaluated for every window."""
    rows = [list(row) for row in plan.devices]
    latency = _latency(instance, rows)
    for operator in priority_order(instance):
        (device, position), *_ = (
            (device, position)
            for device, row in enumerate(rows)
            for position, stage in enumerate(row)
            if (operator,) in stage
        )
        if len(rows[device][position]) > 1:
            continue
        for p in range(1, window):
            end, members = position, list[Any]()
            while end < len(rows[device]) and len(members) < p + 1:
                members += rows[device][end]
                end += 1
            if len(members) != p + 1:
                continue
            candidate = list(rows)
            candidate[device] = [*rows[device][:position], tuple(members), *rows[device][end:]]
            latency_ms = _latency(instance, candidate)
            if latency_ms < latency * (1 - 1e-12):  # less would be rounding
                latency, rows = latency_ms, candidate
    return StagedPlan(tuple(map(tuple, rows)))


def _any_plan(instance: Problem, devices: int, draw: random.Random) -> StagedPlan:
    """Operators in any topological order on any devices."""
    wish = draw.sample(range(len(instance)), len(instance))
    rows: list[list[Stage]] = [[] for _ in range(devices)]
    done: set[int] = set()
    while len(done) < len(instance):
        operator = next(v for v in wish if v not in done and all(u in done for u, _ in instance.predecessors[v]))
        draw.choice(rows).append(((operator,),))
        done.add(operator)
    return StagedPlan(tuple(map(tuple, rows)))


def _drawn_plan(instance: Problem, data: st.DataObject) -> StagedPlan:
    """A plan of some algorithm, or any."""
    devices = data.draw(st.integers(1, 6))
    mapping = data.draw(st.sampled_from([map_longest_paths, map_by_recording, heft, None]))
    if mapping is not None:
        return mapping(instance, devices)
    return _any_plan(instance, devices, data.draw(st.randoms(use_true_random=False)))


def _measure_some(instance: Problem, data: st.DataObject) -> None:
    """Measured times for some stages, faster and slower than the model has them."""
    for size in (2, 3):
        stages = [frozenset((v,) for v in stage) for stage in combinations(range(len(instance)), size)]
        chosen = data.draw(st.lists(st.sampled_from(stages), max_size=6)) if stages else []
        instance.measured.update({stage: data.draw(st.sampled_from([0.0, 0.5, 1.0, 3.0, 7.7])) for stage in chosen})


@given(problems(), st.integers(2, 5), st.data())
def test_groups_equal_the_algorithm_by_the_letter(instance: Problem, window: int, data: st.DataObject) -> None:
    """Refusing windows by what surrounds them leads to the plan that evaluating every window leads to."""
    _measure_some(instance, data)
    plan = _drawn_plan(instance, data)
    assert parallelize(instance, plan, window) == _by_the_letter(instance, plan, window)


@pytest.mark.parametrize("window", range(2, 6))
@pytest.mark.parametrize("ties", [False, True])
def test_larger_plans_are_grouped_by_the_letter(window: int, ties: bool) -> None:
    """So with 60 operators, where many windows are kept one after another; whole numbers give many ties."""
    draw = random.Random(window)
    changed = 0
    for devices, density in ((1, 0.5), (2, 1.0), (3, 0.5), (4, 1.5), (6, 1.0)):
        instance = random_problem(draw, 60, int(60 * density), ties=ties, utilization=lambda: draw.uniform(0.2, 1.0))
        mapped = (map_longest_paths(instance, devices), map_by_recording(instance, devices))
        for plan in (*mapped, *(_any_plan(instance, devices, draw) for _ in range(3))):
            parallelized = parallelize(instance, plan, window)
            assert parallelized == _by_the_letter(instance, plan, window)
            changed += parallelized != plan
    assert changed >= 10


@given(problems(8), st.integers(2, 3), st.data())
def test_stages_that_are_not_asked_for_do_not_matter(instance: Problem, window: int, data: st.DataObject) -> None:
    """However fast the stages turned out whose times were not asked for, the plan would be the same."""
    plan = _drawn_plan(instance, data)
    recording = RecordingProblem(instance)
    expected = parallelize(recording, plan, window)
    for size in range(2, window + 1):
        for members in combinations(range(len(instance)), size):
            stage = frozenset((operator,) for operator in members)
            if stage not in recording.asked:
                instance.measured.setdefault(stage, 0.0)  # what was measured already is not asked for
    assert parallelize(instance, plan, window) == expected


def test_stages_that_cannot_gain_are_not_asked_for() -> None:
    """While the longest path is on another device, no window of this one is measured."""
    instance = RecordingProblem(problem({"a": 1.0, "b": 1.0, "long": 9.0}, {}))
    parallelize(instance, _plan([0, 1], [2]), 2)
    assert instance.asked == set()


def test_stages_that_wait_too_long_are_not_asked_for() -> None:
    """B waits for c and d waits for a, so that d would follow c: no time of a stage of a and b makes that a gain."""
    times = {"a": 1.0, "b": 1.0, "c": 5.0, "d": 4.5}
    instance = RecordingProblem(problem(times, {("c", "b"): 0.0, ("a", "d"): 0.0}))
    parallelize(instance, _plan([0, 1], [2], [3]), 2)
    assert instance.asked == set()
