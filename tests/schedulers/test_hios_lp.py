"""HIOS-LP against the paper, rule by rule."""

from __future__ import annotations

import random
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hios import ALGORITHMS, StagedPlan, schedule, violations
from hios.core.problem import Problem, positions, priority_order, upward_ranks
from hios.schedulers import parallelize as parallelize_module
from hios.schedulers.hios_lp import ValidPaths, map_longest_paths
from tests.problems import problem, problems, random_problem, rows_of


def _by_device(instance: Problem, devices: int, algorithm: str = "hios-lp-inter") -> list[list[str]]:
    scheduled = schedule(instance, algorithm, devices)
    return [[row.operator for row in scheduled.placements if row.device == device] for device in range(devices)]


def _figure_4() -> Problem:
    """The structure of Fig. 4 (edges e1..e9) with times for which the example's three paths come out."""
    return problem(
        {f"v{number}": 3.0 if number % 2 == 0 else 2.0 for number in range(1, 9)},
        {(f"v{ends[0]}", f"v{ends[1]}"): 1.0 for ends in ("12", "13", "24", "35", "46", "56", "57", "68", "78")},
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
    valid = ValidPaths(instance)
    paths = []
    while path := valid.longest():
        paths.append([instance.ids[operator] for operator in path])
        valid.remove(path)
    assert paths == [["v1", "v2", "v4", "v6", "v8"], ["v3", "v5"], ["v7"]]


def _longest(instance: Problem, *mapped: str) -> list[str]:
    """The longest valid path when some operators are mapped."""
    valid = ValidPaths(instance)
    valid.remove([instance.graph.index[operator] for operator in mapped])
    return [instance.ids[operator] for operator in valid.longest()]


def test_figure_4_mapping() -> None:
    """The first path goes to device 0, the others beside it on device 1."""
    assert _by_device(_figure_4(), 2) == [["v1", "v2", "v4", "v6", "v8"], ["v3", "v5", "v7"]]


def test_start_and_end_edges_count_towards_the_length() -> None:
    """With v1 and v3 mapped, a path is chosen by the edges that tie it to them."""
    instance = problem(
        {"v1": 9.0, "x": 2.0, "y": 3.0, "v3": 9.0},
        {("v1", "x"): 5.0, ("x", "v3"): 5.0, ("v1", "y"): 1.0, ("y", "v3"): 1.0},
    )
    assert _longest(instance, "v1", "v3") == ["x"]


def test_first_and_last_operators_may_touch_mapped_ones() -> None:
    """Only inner operators must have no edge to a mapped operator."""
    instance = problem(
        {"m": 1.0, "a": 1.0, "b": 1.0, "c": 1.0, "n": 1.0},
        {("a", "b"): 1.0, ("b", "c"): 1.0, ("a", "n"): 1.0, ("m", "c"): 1.0},
    )
    assert _longest(instance, "m", "n") == ["a", "b", "c"]


def test_inner_operators_may_not_touch_mapped_ones() -> None:
    """A long path through an operator with an edge to or from a mapped one is passed over for a shorter one."""
    times = {"a": 5.0, "b": 5.0, "c": 5.0, "m": 1.0, "x": 2.0, "y": 2.0, "z": 2.0}
    chains = {("a", "b"): 1.0, ("b", "c"): 1.0, ("x", "y"): 4.0, ("y", "z"): 4.0}
    assert _longest(problem(times, chains), "m") == ["a", "b", "c"]
    assert _longest(problem(times, {**chains, ("b", "m"): 0.0}), "m") == ["x", "y", "z"]
    assert _longest(problem(times, {**chains, ("m", "b"): 0.0}), "m") == ["x", "y", "z"]


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


def _every_valid_path(instance: Problem, unmapped: list[bool]) -> Iterator[tuple[float, list[int]]]:
    """Line 5 read literally: each path of unmapped operators with its length, if its inner ones touch no mapped one."""

    def touches(operator: int) -> bool:
        return not all(unmapped[v] for v, _ in (*instance.predecessors[operator], *instance.successors[operator]))

    def mapped_edge(neighbors: list[tuple[int, float]]) -> float:
        return max((transfer for v, transfer in neighbors if not unmapped[v]), default=0.0)

    def grow(path: list[int], length: float) -> Iterator[tuple[float, list[int]]]:
        yield length + mapped_edge(instance.successors[path[-1]]), path
        if len(path) == 1 or not touches(path[-1]):
            for successor, transfer in instance.successors[path[-1]]:
                if unmapped[successor]:
                    yield from grow([*path, successor], length + transfer + instance.time[successor])

    for first in range(len(instance)):
        if unmapped[first]:
            yield from grow([first], mapped_edge(instance.predecessors[first]) + instance.time[first])


@given(problems(8), st.data())
def test_longest_valid_path_among_all(instance: Problem, data: st.DataObject) -> None:
    """Of all valid paths the longest is found; of several the first in topological order that goes on longest."""
    # In whole numbers lengths are exact, whatever the order of summation.
    instance.time = [float(round(time)) for time in instance.time]
    for edges in (*instance.predecessors, *instance.successors):
        edges[:] = [(operator, float(round(transfer))) for operator, transfer in edges]
    unmapped = [True] * len(instance)
    valid = ValidPaths(instance)
    place = positions(instance.order)
    end = len(instance)
    # Removed in two steps, so that lengths are brought up to date from what they were.
    for _ in range(2):
        removed = data.draw(st.lists(st.sampled_from(range(end)), unique=True))
        removed = [operator for operator in removed if unmapped[operator]]
        for operator in removed:
            unmapped[operator] = False
        valid.remove(removed)
        paths = list(_every_valid_path(instance, unmapped))
        best = min(paths, key=lambda p: (-p[0], [*(place[v] for v in p[1]), end]), default=(0.0, []))
        assert valid.longest() == best[1]


def _longest_valid_path(instance: Problem, unmapped: list[bool]) -> list[int]:
    """Line 5 by one sweep over the whole graph."""
    below = [0.0] * len(instance)
    following = [-1] * len(instance)
    best, first, after_first = -1.0, -1, -1
    for operator in reversed(instance.order):
        if not unmapped[operator]:
            continue
        into = max((ms for v, ms in instance.predecessors[operator] if not unmapped[v]), default=0.0)
        last = max((ms for v, ms in instance.successors[operator] if not unmapped[v]), default=0.0)
        neighbors = (*instance.predecessors[operator], *instance.successors[operator])
        onward, choice = -1.0, -1
        for successor, transfer in instance.successors[operator]:
            if unmapped[successor] and transfer + below[successor] > onward:
                onward, choice = transfer + below[successor], successor
        if onward < last:
            onward, choice = last, -1
        below[operator], following[operator] = instance.time[operator] + onward, choice
        if not all(unmapped[v] for v, _ in neighbors):
            below[operator], following[operator] = instance.time[operator] + last, -1
        if into + instance.time[operator] + onward >= best:
            best, first, after_first = into + instance.time[operator] + onward, operator, choice
    path = [first] if first >= 0 else []
    while after_first >= 0:
        path.append(after_first)
        after_first = following[after_first]
    return path


def _earliest(row: list[tuple[float, float]], ready: float, time: float, gaps: bool) -> float:
    """Line 12 in words: the first moment from ``ready`` on at which a device is free for long enough.

    A device with spans of work is free before the first of them, between them and after the last; without gaps only
    after all of them.
    """
    moments = [ready, *(finish for _, finish in row if finish > ready)]
    if not gaps:
        return max([ready, *(finish for _, finish in row)])
    return min(moment for moment in moments if all(finish <= moment or moment + time <= start for start, finish in row))


def _by_the_letter(instance: Problem, devices: int, gaps: bool = False) -> list[list[int]]:
    """Algorithm 1, Lines 1 to 16: every path searched for anew, every timetable written anew."""
    order = priority_order(instance)
    unmapped = [True] * len(instance)
    device: dict[int, int] = {}
    while path := _longest_valid_path(instance, unmapped):
        latencies = []
        timetables = []
        for candidate in range(devices):
            device.update(dict.fromkeys(path, candidate))
            rows: list[list[tuple[float, float]]] = [[] for _ in range(devices)]
            finish: dict[int, float] = {}
            starts: dict[int, float] = {}
            for operator in order:
                if operator not in device:
                    continue
                where = device[operator]
                arrivals = [
                    finish[u] + (0.0 if device[u] == where else transfer)
                    for u, transfer in instance.predecessors[operator]
                    if u in finish
                ]
                start = _earliest(rows[where], max(arrivals, default=0.0), instance.time[operator], gaps)
                finish[operator] = start + instance.time[operator]
                rows[where].append((start, finish[operator]))
                starts[operator] = start
            latencies.append(max(finish.values()))
            timetables.append(starts)
        best = latencies.index(min(latencies))
        begin = timetables[best]
        device.update(dict.fromkeys(path, best))
        for operator in path:
            unmapped[operator] = False
    if gaps:  # in the order in which they start; an operator of 0 ms before one that starts with it
        order.sort(key=lambda operator: (begin[operator], begin[operator] + instance.time[operator]))
    return [[operator for operator in order if device[operator] == number] for number in range(devices)]


def _mapped(instance: Problem, devices: int, *, fill_gaps: bool = False) -> list[list[int]]:
    return rows_of(map_longest_paths(instance, devices, fill_gaps=fill_gaps))


@given(problems(), st.integers(1, 6))
def test_mapping_equals_the_algorithm_by_the_letter(instance: Problem, devices: int) -> None:
    """Updating paths and times where they change leads to what computing all of them anew leads to."""
    assert _mapped(instance, devices) == _by_the_letter(instance, devices)


@given(problems(), st.integers(1, 6))
def test_filling_gaps_equals_the_algorithm_by_the_letter(instance: Problem, devices: int) -> None:
    """So with idle gaps filled in Line 12."""
    assert _mapped(instance, devices, fill_gaps=True) == _by_the_letter(instance, devices, gaps=True)


@given(problems(), st.sampled_from(["hios-lp", "hios-lp-inter"]), st.integers(1, 4))
def test_schedules_with_filled_gaps_are_valid(instance: Problem, name: str, devices: int) -> None:
    """The checker accepts every schedule whose gaps were filled; off is the default."""
    filled = schedule(instance, name, devices, {"fill_gaps": True})
    assert violations(instance, filled) == []
    assert schedule(instance, name, devices).parameters["fill_gaps"] is False


def test_a_gap_is_filled() -> None:
    """Device 1 idles until x has its input. b, of lower priority, runs after x, or in the gap before it."""
    instance = problem({"m": 10.0, "z": 5.0, "x": 3.0, "b": 2.0}, {("m", "z"): 1.0, ("m", "x"): 1.0})
    plain, filled = (schedule(instance, "hios-lp-inter", 2, {"fill_gaps": gaps}) for gaps in (False, True))
    assert (plain.latency_ms, filled.latency_ms) == (16.0, 15.0)
    assert _by_device(instance, 2) == [["m", "z"], ["x", "b"]]
    assert [row.operator for row in filled.placements if row.device == 1] == ["b", "x"]


@pytest.mark.parametrize("devices", range(1, 7))
@pytest.mark.parametrize("ties", [False, True])
def test_larger_mappings_equal_the_algorithm_by_the_letter(devices: int, ties: bool) -> None:
    """The same with 80 operators, where delays propagate through many rows; times of 0 to 3 ms give many ties."""
    draw = random.Random(devices)
    for edges in (40, 160, 320):
        instance = random_problem(draw, 80, edges, ties=ties, utilization=lambda: 0.25)
        assert _mapped(instance, devices) == _by_the_letter(instance, devices)
        assert _mapped(instance, devices, fill_gaps=True) == _by_the_letter(instance, devices, gaps=True)


def _compiled_plan(instance: Problem, name: str, devices: int, window: int) -> StagedPlan:
    """The plan of hios-lp or hios-mr with start times passed on by compiled code, which is that of Python."""
    pytest.importorskip("numba", reason="needs the extra opt")
    plans = []
    for least in (len(instance) + 1, 0):
        with patch.object(parallelize_module, "COMPILED_FROM", least):
            plans.append(ALGORITHMS[name].run(instance.on(devices), devices, window=window))
    assert isinstance(plans[1], StagedPlan)
    assert plans[0] == plans[1]
    return plans[1]


@pytest.mark.slow
@given(problems(), st.sampled_from(["hios-lp", "hios-mr"]), st.integers(1, 4), st.integers(2, 4))
@settings(max_examples=40, deadline=None)
def test_compiled_code_leads_to_the_same_plans(instance: Problem, name: str, devices: int, window: int) -> None:
    """The twins in machine code map and group as the loops in Python do, ties included."""
    _compiled_plan(instance, name, devices, window)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("devices", [2, 5, 8])
def test_compiled_code_leads_to_the_same_larger_plans(devices: int, ties: bool) -> None:
    """So on 300 operators, where delays run through many rows and windows merge one after another."""
    draw = random.Random(devices)
    grouped = 0
    for edges in (150, 600, 1200):
        instance = random_problem(draw, 300, edges, ties=ties, utilization=lambda: 0.25)  # groups gain time
        for window in (2, 4):
            plan = _compiled_plan(instance, "hios-lp", devices, window)
            grouped += sum(len(stage) > 1 for row in plan.devices for stage in row)
    assert grouped > 0 or ties  # of paths that are as long as the longest, a group shortens one


def _uneven_problem(draw: random.Random, operators: int) -> Problem:
    """Short and long operators, cheap and dear transfers, utilizations that make wide windows pay."""
    names = [f"v{number:03}" for number in range(operators)]
    pairs = [sorted(draw.sample(range(operators), 2)) for _ in range(int(1.2 * operators))]
    return problem(
        {name: draw.uniform(0.1, draw.choice([0.5, 4.0])) for name in names},
        {(names[u], names[v]): draw.uniform(0.0, draw.choice([0.0, 1.0, 8.0])) for u, v in pairs},
        utilization={name: draw.uniform(0.05, 0.5) for name in names},
    )


@pytest.mark.parametrize("seed", [101, 209, 233])
def test_compiled_code_passes_on_delays_of_whole_stages(seed: int) -> None:
    """A later window changes the finish of a stage of several operators: all of them delay what comes after."""
    _compiled_plan(_uneven_problem(random.Random(seed), 50), "hios-lp", 3, 4)
