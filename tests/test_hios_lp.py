"""HIOS-LP against the paper, rule by rule."""

from __future__ import annotations

import pytest

from hios import schedule
from hios.problem import Problem, priority_order, upward_ranks
from hios.schedule import StagedPlan
from hios.schedulers.hios_lp import _longest_valid_path
from hios.schedulers.parallelize import parallelize
from tests.problems import problem


def _by_device(instance: Problem, devices: int, algorithm: str = "hios-lp-inter") -> list[list[str]]:
    found = schedule(instance, algorithm, devices)
    return [[row.operator for row in found.placements if row.device == device] for device in range(devices)]


def _figure_4() -> Problem:
    """The structure of Fig. 4 (edges e1..e9) with times for which the example's three paths come out."""
    return problem(
        {"v1": 2.0, "v2": 3.0, "v3": 2.0, "v4": 3.0, "v5": 2.0, "v6": 3.0, "v7": 2.0, "v8": 3.0},
        {
            ("v1", "v2"): 1.0,
            ("v1", "v3"): 1.0,
            ("v2", "v4"): 1.0,
            ("v3", "v5"): 1.0,
            ("v4", "v6"): 1.0,
            ("v5", "v6"): 1.0,
            ("v5", "v7"): 1.0,
            ("v6", "v8"): 1.0,
            ("v7", "v8"): 1.0,
        },
    )


def test_priority_indicator_is_the_longest_path_with_transfers() -> None:
    """p(v) counts operators and transfers from v to the last operator; the order descends."""
    instance = _figure_4()
    assert upward_ranks(instance)[7] == 3
    assert upward_ranks(instance)[5] == 3 + 1 + 3
    assert upward_ranks(instance)[0] == 2 + 1 + 3 + 1 + 3 + 1 + 3 + 1 + 3
    assert [instance.ids[op] for op in priority_order(instance)] == ["v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8"]


def test_figure_4_paths() -> None:
    """First v1 v2 v4 v6 v8, then v3 v5 (not v3 v5 v7: inner v5 has an edge to the mapped v6), then v7."""
    instance = _figure_4()
    unmapped = [True] * 8
    paths = []
    while path := _longest_valid_path(instance, unmapped):
        paths.append([instance.ids[operator] for operator in path])
        for operator in path:
            unmapped[operator] = False
    assert paths == [["v1", "v2", "v4", "v6", "v8"], ["v3", "v5"], ["v7"]]


def test_figure_4_mapping() -> None:
    """The first path goes to device 0, the others beside it on device 1."""
    assert _by_device(_figure_4(), 2) == [["v1", "v2", "v4", "v6", "v8"], ["v3", "v5", "v7"]]


def test_start_and_end_edges_count_towards_the_length() -> None:
    """With v1 and v3 mapped, a path is chosen by the edges that tie it to them."""
    instance = problem(
        {"v1": 9.0, "x": 2.0, "y": 3.0, "v3": 9.0},
        {("v1", "x"): 5.0, ("x", "v3"): 5.0, ("v1", "y"): 1.0, ("y", "v3"): 1.0},
    )
    unmapped = [False, True, True, False]
    assert [instance.ids[op] for op in _longest_valid_path(instance, unmapped)] == ["x"]


def test_first_and_last_operators_may_touch_mapped_ones() -> None:
    """Only inner operators must have no edge to a mapped operator."""
    instance = problem(
        {"m": 1.0, "a": 1.0, "b": 1.0, "c": 1.0, "n": 1.0},
        {("a", "b"): 1.0, ("b", "c"): 1.0, ("a", "n"): 1.0, ("m", "c"): 1.0},
    )
    unmapped = [False, True, True, True, False]
    assert [instance.ids[op] for op in _longest_valid_path(instance, unmapped)] == ["a", "b", "c"]


def test_ties_go_to_the_lowest_device() -> None:
    """Two operators without edges: the second would do as well on any free device and takes the next one."""
    instance = problem({"a": 1.0, "b": 1.0, "c": 1.0}, {})
    assert _by_device(instance, 4) == [["a"], ["b"], ["c"], []]
    # A transfer dearer than the work keeps both on device 0, which ties with nothing.
    chain = problem({"a": 1.0, "b": 1.0, "c": 1.0}, {("a", "b"): 9.0, ("a", "c"): 9.0})
    assert _by_device(chain, 2) == [["a", "b", "c"], []]


def test_one_device_keeps_priority_order() -> None:
    """On one device operators run in descending order of priority."""
    instance = _figure_4()
    (row,) = _by_device(instance, 1)
    assert row == [instance.ids[operator] for operator in priority_order(instance)]


def _row(*operators: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(((operator,),) for operator in operators)


def test_grouping_needs_a_strict_gain() -> None:
    """With full utilization a pair takes its sum, no gain, and stays apart; with half it is grouped."""
    full = problem({"a": 1.0, "b": 1.0}, {})
    assert parallelize(full, StagedPlan((_row(0, 1),)), 2) == StagedPlan((_row(0, 1),))
    half = problem({"a": 1.0, "b": 1.0}, {}, utilization={"a": 0.5, "b": 0.5})
    assert parallelize(half, StagedPlan((_row(0, 1),)), 2) == StagedPlan(((((0,), (1,)),),))


def test_grouping_that_makes_a_cycle_is_refused() -> None:
    """A and d are neighbours on device 0, but d needs b, which needs a, on device 1: no group."""
    instance = problem(
        {"a": 5.0, "b": 1.0, "d": 5.0},
        {("a", "b"): 0.0, ("b", "d"): 0.0},
        utilization={"a": 0.1, "d": 0.1},
    )
    plan = StagedPlan((_row(0, 2), _row(1)))
    assert parallelize(instance, plan, 2) == plan


def test_grouping_that_makes_a_cycle_through_the_order_of_a_device_is_refused() -> None:
    """Device 0: a d, device 1: b c with a -> b and c -> d; b before c on device 1 closes the cycle."""
    instance = problem(
        {"a": 5.0, "b": 1.0, "c": 1.0, "d": 5.0},
        {("a", "b"): 0.0, ("c", "d"): 0.0},
        utilization={"a": 0.1, "d": 0.1, "b": 1.0, "c": 1.0},
    )
    plan = StagedPlan((_row(0, 3), _row(1, 2)))
    found = parallelize(instance, plan, 2)
    assert ((0,), (3,)) not in found.devices[0]


def test_measured_stages_decide() -> None:
    """Grouping follows measured t(S), as in the example of Fig. 5."""
    stages = {frozenset({("a",), ("b",)}): 2.5}
    dear = problem({"a": 1.0, "b": 1.0}, {}, utilization={"a": 0.1, "b": 0.1}, stages=stages)
    assert parallelize(dear, StagedPlan((_row(0, 1),)), 2) == StagedPlan((_row(0, 1),))


@pytest.mark.parametrize(("window", "sizes"), [(2, [2, 2]), (3, [3, 1]), (4, [4])])
def test_window_bounds_the_stage(window: int, sizes: list[int]) -> None:
    """No stage holds more than w operators; larger windows take in more."""
    names = "abcd"
    instance = problem(dict.fromkeys(names, 1.0), {}, utilization=dict.fromkeys(names, 0.1))
    found = parallelize(instance, StagedPlan((_row(0, 1, 2, 3),)), window)
    assert [len(stage) for stage in found.devices[0]] == sizes


def test_asked_stages_are_recorded() -> None:
    """What the window tried and nobody measured is what the profiler measures next."""
    instance = problem({"a": 1.0, "b": 1.0}, {})
    schedule(instance, "hios-lp", 1)
    assert instance.asked == {frozenset({(0,), (1,)})}
