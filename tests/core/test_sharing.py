"""Operators that share slots, arithmetic and memory bandwidth, and overheads of launches, events and stages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hios import Problem, evaluate, lower_bound_ms, schedule, violations
from hios.core.bounds import least_of_all, single_resources
from hios.core.check import _speeds, _stage_cost
from hios.core.costs import CostOverheads, Demand
from hios.core.evaluate import latency_ms
from hios.core.problem import Stage
from hios.core.schedule import StagedPlan, StreamPlan
from hios.core.sharing import DemandShares, memory_level, rates
from tests.problems import problem, schedule_of, sharing_problems, spans, with_row

_SHARE = st.one_of(st.sampled_from([0.25, 0.5, 1.0]), st.floats(0.01, 1.0))
_DEMANDS = st.lists(st.tuples(_SHARE, _SHARE, _SHARE), min_size=1, max_size=6)
MEMORY, ARITHMETIC = Demand(slots=0.3, compute=0.1, memory=1.0), Demand(slots=0.3, compute=1.0, memory=0.1)


@given(_DEMANDS)
def test_no_resource_is_used_up_twice(demands: list[DemandShares]) -> None:
    """The first operator runs, none faster than alone, and no more of any resource is used than there is."""
    found = rates(demands)
    assert found[0] > 0
    assert all(0 <= rate <= 1 for rate in found)
    for resource in range(3):
        assert sum(rate * demand[resource] for rate, demand in zip(found, demands, strict=True)) <= 1 + 1e-9
    assert rates(demands[:1]) == [1.0]


@given(_DEMANDS, st.tuples(_SHARE, _SHARE, _SHARE))
def test_an_operator_never_speeds_others_up(demands: list[DemandShares], added: DemandShares) -> None:
    """Those that were launched before it go on as fast as before, or slower."""
    after = rates([*demands, added])[:-1]
    assert all(new <= old + 1e-12 for new, old in zip(after, rates(demands), strict=True))


@given(st.tuples(_SHARE, _SHARE, _SHARE), st.integers(1, 6), _DEMANDS)
def test_equal_operators_progress_alike(demand: DemandShares, count: int, others: list[DemandShares]) -> None:
    """Those that find all their slots free have one rate, whatever their order; later ones are no faster."""
    found = rates([demand] * count + others)[:count]
    assert found == sorted(found, reverse=True)
    fitting = [rate for number, rate in enumerate(found, start=1) if number * demand[0] <= 1]
    assert fitting == pytest.approx([fitting[0]] * len(fitting)) if fitting else count == 1 or demand[0] > 0.5


@given(_DEMANDS)
def test_the_checker_shares_alike(demands: list[DemandShares]) -> None:
    """The checker, which shares no code with the evaluator, finds the same rates."""
    names = [f"v{number}" for number in range(len(demands))]
    instance = problem(
        dict.fromkeys(names, 1.0),
        {},
        contention="resources",
        demand={name: Demand(*demand) for name, demand in zip(names, demands, strict=True)},
    )
    assert _speeds(instance, list(range(len(demands)))) == pytest.approx(rates(demands))


@pytest.mark.parametrize(
    ("first", "second", "latency"), [(MEMORY, MEMORY, 4.0), (ARITHMETIC, ARITHMETIC, 4.0), (MEMORY, ARITHMETIC, 2.2)]
)
def test_operators_of_one_kind_halve(first: Demand, second: Demand, latency: float) -> None:
    """Two memory-bound operators take twice as long together; beside a compute-bound one, one hardly longer."""
    instance = problem({"a": 2.0, "b": 2.0}, {}, contention="resources", demand={"a": first, "b": second})
    for plan in (StagedPlan(((((0,), (1,)),),)), StreamPlan((((0,), (1,)),))):
        assert latency_ms(evaluate(instance, plan)) == pytest.approx(latency, rel=0.02)
        assert violations(instance, schedule_of(instance, plan)) == []


def test_the_launch_order_matters() -> None:
    """Of operators that fill the slots, the first launched runs first: then what follows it starts earlier."""
    whole = Demand(slots=0.9, compute=0.5, memory=0.5)
    small = Demand(slots=0.1, compute=0.1, memory=0.1)
    instance = problem(
        {"a": 1.0, "b": 3.0, "c": 3.0},
        {("a", "c"): 0.0},
        contention="resources",
        demand={"a": whole, "b": whole, "c": small},
    )
    streams = ((0, 2), (1,))
    ends = [latency_ms(evaluate(instance, StreamPlan((streams,), launch))) for launch in ((0, 1, 2), (1, 0, 2))]
    assert ends == pytest.approx([4.0, 3 + 6 / 9 + 3])
    early = schedule_of(instance, StreamPlan((streams,), (0, 1, 2)))
    stolen = with_row(early, 1, finish_ms=3.5)
    assert any("of progress on device 0" in line for line in violations(instance, stolen))


@given(sharing_problems(6), st.data())
def test_streams_without_a_launch_order_are_launched_as_they_start(instance: Problem, data: st.DataObject) -> None:
    """The rows say in which order: the checker agrees, and a plan made from them gives the same times."""
    homes = data.draw(st.lists(st.integers(0, 1), min_size=len(instance), max_size=len(instance)))
    rows = tuple(tuple(v for v in instance.order if homes[v] == home) for home in (0, 1))
    made = schedule_of(instance, StreamPlan((rows,)))
    assert violations(instance, made) == []
    again = evaluate(instance, StreamPlan((rows,), tuple(instance.ids.index(row.operator) for row in made.placements)))
    assert latency_ms(again) == pytest.approx(made.latency_ms)


def test_without_demand_the_utilization_counts() -> None:
    """It stands for all three shares."""
    instance = problem({"a": 1.0, "b": 1.0}, {}, contention="resources", utilization={"a": 0.5, "b": 0.5})
    assert instance.demand == [(0.5, 0.5, 0.5)] * 2
    assert latency_ms(evaluate(instance, StreamPlan((((0,), (1,)),)))) == 1.0


@given(sharing_problems(6), st.data())
def test_the_checker_finds_the_same_stages(instance: Problem, data: st.DataObject) -> None:
    """t(S) of random groups, by the evaluator and by the checker."""
    numbers = data.draw(st.permutations(range(len(instance))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(instance)), max_size=3)) - {len(instance)})
    ends = itertools.pairwise([0, *cuts, len(instance)])
    groups: Stage = tuple(tuple(numbers[begin:end]) for begin, end in ends)
    assert instance.stage_ms(groups) == pytest.approx(_stage_cost(instance, [list(group) for group in groups]))
    assert instance.stage_ms(groups) == pytest.approx(instance.stage_ms(groups[::-1]))


OVERHEADS = CostOverheads(launch_ms=0.5, sync_ms=0.25, stage_ms=0.125)


@pytest.mark.parametrize("contention", ["blend", "none", "resources"])
def test_overheads_are_charged(contention: str) -> None:
    """A launch for every operator that takes time, a synchronization between streams, a barrier for every group."""
    instance = problem(
        {"a": 1.0, "view": 0.0, "b": 2.0, "c": 1.0},
        {("a", "b"): 1.0, ("view", "b"): 0.0, ("b", "c"): 0.0},
        utilization={"a": 0.25, "b": 0.25},
        contention=contention,
        alpha=0.0,
        overheads=OVERHEADS,
    )
    streams = evaluate(instance, StreamPlan((((1, 2), (0, 3)),), (1, 0, 2, 3)))
    assert spans(streams) == {"view": (0, 0), "a": (0, 1.5), "b": (1.75, 4.25), "c": (4.5, 6.0)}
    apart = evaluate(instance, StreamPlan((((1, 2),), ((0, 3),)), (1, 0, 2, 3)))
    assert spans(apart)["b"] == (2.75, 5.25)  # a transfer and a synchronization
    pair = problem(
        {"a": 1.0, "b": 1.0},
        {},
        utilization={"a": 0.25, "b": 0.25},
        contention=contention,
        alpha=0.0,
        overheads=OVERHEADS,
    )
    assert latency_ms(evaluate(pair, StagedPlan(((((0,), (1,)),),)))) == pytest.approx(1.5 + 0.125)
    assert schedule(pair, "sequential").latency_ms == 3.0


def test_the_corun_factor_spares_launches() -> None:
    """Launches do not take longer when other devices work too, and what operators ask for is as much as before."""
    instance = problem(
        {"a": 1.0}, {}, contention="resources", corun={2: 2.0}, demand={"a": MEMORY}, overheads=OVERHEADS
    ).on(2)
    assert instance.time == [2.5]
    assert instance.demand[0][2] * 2.5 == pytest.approx(2.0)


def test_devices_at_once_slow_what_asks_for_memory() -> None:
    """The factor is that of all operators together: those that ask for more bandwidth than is left take it all."""
    times = {"a": 1.0, "b": 1.0, "c": 0.0}
    demand = {"a": Demand(slots=1.0, compute=0.1, memory=0.9), "b": Demand(slots=1.0, compute=1.0, memory=0.1)}
    stage = frozenset({("a",), ("b",)})
    instance = problem(
        times, {}, contention="resources", corun={2: 1.25}, demand=demand | {"c": MEMORY}, stages={stage: 1.8}
    )
    assert instance.on(1).time == [1.0, 1.0, 0.0]
    assert instance.on(2).time == pytest.approx([1.5, 1.0, 0.0])
    assert list(instance.on(2).measured.values()) == [pytest.approx(1.8 * 1.25)]
    assert instance.on(2).demand[0] == pytest.approx((1.0, 0.1 / 1.5, 1.0))
    assert instance.on(2).demand[1] == pytest.approx((1.0, 1.0, 0.1 / 0.6))
    assert violations(instance, schedule(instance, "hios-lp", devices=2)) == []


@given(_DEMANDS, st.floats(1.01, 4.0), st.data())
def test_memory_left_to_devices_gives_the_factor(
    demands: list[DemandShares], factor: float, data: st.DataObject
) -> None:
    """All operators together take the factor times as long, and none that asks for less bandwidth slows down more."""
    times = data.draw(st.lists(st.floats(0.1, 10.0), min_size=len(demands), max_size=len(demands)))
    memory = tuple(share for _, _, share in demands)
    level = memory_level(memory, tuple(times), factor)
    slower = [max(1.0, share / level) for share in memory]
    total = sum(time * more for time, more in zip(times, slower, strict=True))
    assert total == pytest.approx(factor * sum(times))
    assert [slower[place] for place in sorted(range(len(memory)), key=memory.__getitem__)] == sorted(slower)


def _stream_plans(instance: Problem) -> Iterator[StreamPlan]:
    """Every launch order on every way to deal operators to two streams or two devices of one stream."""
    numbers = range(len(instance))
    before = [{u for u, _ in row} for row in instance.predecessors]
    for launch in itertools.permutations(numbers):
        if any(before[v] & set(launch[place:]) for place, v in enumerate(launch)):
            continue
        for homes in itertools.product((0, 1), repeat=len(instance)):
            rows = tuple(tuple(v for v in launch if homes[v] == home) for home in (0, 1))
            yield StreamPlan((rows,), launch)
            yield StreamPlan(tuple((row,) for row in rows), launch)


@given(sharing_problems(4))
def test_no_plan_of_a_small_problem_beats_the_bound(instance: Problem) -> None:
    """All plans of streams on one and two devices, and all stages of two groups."""
    for plan in _stream_plans(instance):
        devices = len(plan.devices)
        found = latency_ms(evaluate(instance, plan))
        assert found >= lower_bound_ms(instance, devices) - 1e-9
    for number, single in enumerate(single_resources(instance)):
        least = least_of_all(single)
        for size in range(2, len(instance) + 1):
            for together in itertools.combinations(range(len(instance)), size):
                taken = instance.stage_ms(tuple((v,) for v in together))
                if instance.alpha is not None:
                    assert taken >= sum(least.work[v] for v in together) - 1e-9, number
                assert taken >= max(least.time[v] for v in together) - 1e-9


@given(sharing_problems(6), st.sampled_from(["ios", "lios", "opara", "nimble", "hios-lp", "greedy"]))
def test_schedules_of_algorithms_are_valid(instance: Problem, name: str) -> None:
    """They pass the checker, and none is below its bound."""
    found = schedule(instance, name)
    assert violations(instance, found) == []
    assert found.latency_ms >= lower_bound_ms(instance, found.devices) - 1e-9
