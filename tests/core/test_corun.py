"""Co-run factors: operators, stages and merges take longer while other devices work too; transfers do not."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import combinations

import pytest

from hios import (
    ALGORITHMS,
    Costs,
    Graph,
    HiosError,
    Operator,
    Placement,
    Problem,
    Schedule,
    evaluate,
    lower_bound_ms,
    schedule,
    violations,
)
from hios.core.contraction import Contraction
from hios.core.costs import CostOverheads, Demand, StageIds
from hios.core.schedule import StagedPlan, StreamPlan
from hios.profiling.stage_requests import RecordingProblem
from tests.problems import briefly, problem

FACTORS = {2: 1.25, 4: 1.5}


def _costs(corun: list[dict[str, float]]) -> Costs:
    return Costs.from_json({"operators": {}, "transfers": [], "corun": corun})


def _random(seed: int, corun: Mapping[int, float], factor: float = 1.0) -> Problem:
    """A random problem with measured stages; times of operators and stages are multiplied by the factor."""
    draw = random.Random(seed)
    names = [f"v{number}" for number in range(12)]
    times = {name: factor * draw.choice([0.0, 1.0, draw.uniform(0.1, 5)]) for name in names}
    edges = {pair: draw.uniform(0, 2) for pair in combinations(names, 2) if draw.random() < 0.2}
    stages: dict[StageIds, float]
    stages = {frozenset((name,) for name in draw.sample(names, 2)): factor * draw.uniform(0.5, 4) for _ in range(5)}
    utilization = {name: draw.uniform(0.2, 1) for name in names}
    return problem(times, edges, utilization=utilization, stages=stages, corun=corun)


def test_factor_by_number_of_devices() -> None:
    """One device is alone; between two entries the larger number counts, beyond the largest the largest."""
    costs = _costs([{"devices": 4, "factor": 1.5}, {"devices": 2, "factor": 1.25}])
    assert [costs.corun_factor(devices) for devices in (1, 2, 3, 4, 9)] == [1.0, 1.25, 1.5, 1.5, 1.5]
    assert _costs([]).corun_factor(8) == 1.0


def test_a_number_that_stands_twice_is_refused() -> None:
    """A number of devices with two factors is refused."""
    with pytest.raises(HiosError, match="corun: duplicate number of devices"):
        _costs([{"devices": 2, "factor": 1.0}, {"devices": 2, "factor": 1.1}])


def test_wide_operators_are_slowed_down_like_others() -> None:
    """Launches are not slowed down, and of operators that ask for little bandwidth neither is t(v, k)."""
    graph = Graph("pair", (Operator("a", "conv"), Operator("b", "conv")), ())
    times, wide = {"a": 10.0, "b": 10.0}, {"a": {2: 6.0}}
    launched = Costs(times, {}, wide_ms=wide, corun={2: 1.0, 4: 2.0}, overheads=CostOverheads(launch_ms=1.0))
    instance = Problem(graph, launched).on(4)
    assert (instance.time, instance.wide_ms) == ([21.0, 21.0], {0: {2: 13.0}})
    demand = {"a": Demand(1.0, 1.0, 0.01), "b": Demand(1.0, 0.01, 1.0)}
    for of, expected in (("a", 6.0), ("b", 12.0)):
        shared = Costs(times, {}, wide_ms={of: {2: 6.0}}, corun={2: 1.0, 4: 1.5}, contention="resources", demand=demand)
        instance = Problem(graph, shared).on(4)
        assert instance.time == pytest.approx([10.0, 20.0])
        assert list(instance.wide_ms.values()) == [{2: pytest.approx(expected)}]


def test_shares_of_slowed_operators_are_shares() -> None:
    """Rounding makes none above 1, which merging would refuse."""
    draw = random.Random(0)
    graph = Graph("many", tuple(Operator(f"o{number}", "conv") for number in range(400)), ())
    times = {operator.id: draw.uniform(0.5, 2.0) for operator in graph.operators}
    demand = {operator: Demand(1.0, 0.1, draw.uniform(0.5, 1.0)) for operator in times}
    instance = Problem(graph, Costs(times, {}, corun={2: 1.3}, contention="resources", demand=demand)).on(2)
    assert max(instance.utilization) <= 1.0
    assert Contraction(instance, ()).problem.utilization == instance.utilization


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_schedules_are_those_of_longer_times(name: str, devices: int) -> None:
    """An algorithm, the evaluator, the bound and the checker see times as if they had been multiplied by hand."""
    if devices > 1 and not ALGORITHMS[name].several_devices:
        pytest.skip("for one device only")
    factor = {1: 1.0, **FACTORS}[devices]
    for seed in range(5):
        given, by_hand = _random(seed, FACTORS), _random(seed, {}, factor)
        scheduled = schedule(given, name, devices, briefly(name))
        assert violations(given, scheduled) == violations(by_hand, scheduled) == []
        assert scheduled.lower_bound_ms <= scheduled.latency_ms * (1 + 1e-9)
        if not briefly(name):  # what searches for some time finds something else every time
            expected = schedule(by_hand, name, devices)
            assert scheduled.placements == expected.placements
            assert scheduled.lower_bound_ms == expected.lower_bound_ms


@pytest.mark.parametrize("name", sorted(name for name, entry in ALGORITHMS.items() if entry.several_devices))
def test_plans_have_a_row_for_every_device(name: str) -> None:
    """The evaluator takes the number of devices from the plan, so plans hold idle devices too."""
    assert len(ALGORITHMS[name].solve(_random(0, {}), 5, ALGORITHMS[name].resolved(briefly(name))).plan.devices) == 5


def test_factors_of_one_change_nothing() -> None:
    """Costs without factors, or with factors of 1, give the same to the last bit."""
    for corun in ({}, {2: 1.0}):
        scheduled = schedule(_random(3, corun), "hios-lp", 2)
        assert scheduled.placements == schedule(_random(3, {}), "hios-lp", 2).placements


def test_evaluation_by_hand() -> None:
    """Operators take 1.25 times as long on two devices, the transfer between them does not; streams alike."""
    pair = problem({"a": 4.0, "b": 8.0}, {("a", "b"): 1.0}, corun=FACTORS)
    staged = evaluate(pair, StagedPlan(((((0,),),), (((1,),),))))
    assert [(row.start_ms, row.finish_ms) for row in staged] == [(0.0, 5.0), (6.0, 16.0)]
    streams = evaluate(pair, StreamPlan((((0,),), ((1,),))))
    assert [(row.start_ms, row.finish_ms) for row in streams] == [(0.0, 5.0), (6.0, 16.0)]
    alone = evaluate(pair, StagedPlan(((((0,),), ((1,),)),)))
    assert [row.finish_ms for row in alone] == [4.0, 12.0]


def test_bound_by_hand() -> None:
    """Path and work of a bound are multiplied as well."""
    pair = problem({"a": 4.0, "b": 4.0}, {}, corun=FACTORS)
    assert [lower_bound_ms(pair, devices) for devices in (1, 2, 4)] == [8.0, 5.0, 6.0]


def test_the_checker_refuses_times_of_one_device() -> None:
    """A schedule for two devices with the times of operators alone is too fast."""
    pair = problem({"a": 4.0, "b": 8.0}, {}, corun=FACTORS)
    rows = (Placement("a", 0, 0, 0, 0.0, 4.0), Placement("b", 1, 0, 0, 0.0, 8.0))
    errors = violations(pair, Schedule("test", {}, 2, 8.0, 0.0, 0.0, rows))
    assert "stage 0 of device 1 lasts 8.0 ms but costs 10.0 ms" in errors


def test_on_devices() -> None:
    """A problem on devices stays there, the one that it comes from stays as it was, and both write one record."""
    base = RecordingProblem(problem({"a": 4.0, "b": 8.0}, {}, stages={frozenset({("a",), ("b",)}): 9.0}, corun=FACTORS))
    on = base.on(2)
    assert isinstance(on, RecordingProblem)
    assert (on.time, on.measured[frozenset({(0,), (1,)})], on.devices) == ([5.0, 10.0], 11.25, 2)
    assert on.on(4) is on.on(1) is on
    assert (base.time, base.devices) == ([4.0, 8.0], 0)
    on.stage_ms(((1,), (0,)))
    assert base.asked == set()
    on.asked.add(frozenset({(0,)}))
    assert base.asked == {frozenset({(0,)})}
