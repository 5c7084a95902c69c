"""The evaluator, the checker and the lower bound."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hios import (
    ALGORITHMS,
    Costs,
    Edge,
    Graph,
    Operator,
    Placement,
    Problem,
    Schedule,
    evaluate,
    lower_bound_ms,
    schedule,
    violations,
)
from hios.core.bound_check import judge_bounds
from hios.core.evaluate import latency_ms
from hios.core.problem import Stage
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.errors import ArtifactError, ScheduleError
from tests.problems import problem, problems, schedule_of, sharing_problems, spans, with_row

DIAMOND = problem(
    {"a": 2.0, "b": 4.0, "c": 6.0, "d": 1.0},
    {("a", "b"): 0.5, ("a", "c"): 1.0, ("b", "d"): 0.25, ("c", "d"): 3.0},
    utilization={"b": 0.5, "c": 0.5},
)


def test_stages_on_two_devices_wait_for_transfers() -> None:
    """A stage starts when the one before has ended and inputs from other devices have arrived."""
    rows = evaluate(DIAMOND, StagedPlan(((((0,),), ((2,),), ((3,),)), (((1,),),))))
    assert spans(rows) == {"a": (0, 2), "c": (2, 8), "b": (2.5, 6.5), "d": (8, 9)}
    assert [row.operator for row in rows] == ["a", "c", "b", "d"]
    rows = evaluate(DIAMOND, StagedPlan(((((0,),), ((1,),), ((3,),)), (((2,),),))))
    assert spans(rows)["d"] == (12, 13)  # 2 + 1 + 6 + 3


def test_blend_of_several_groups() -> None:
    """t(S) = a*sum(t) + (1-a)*max(sum(t*u), longest group); outputs are there when the whole stage has ended."""
    rows = evaluate(DIAMOND, StagedPlan(((((0,),), ((1,), (2,)), ((3,),)),)))
    # 0.5 * 10 + 0.5 * max(0.5*4 + 0.5*6, 6) = 8
    assert spans(rows) == {"a": (0, 2), "b": (2, 10), "c": (2, 10), "d": (10, 11)}


def test_measured_stage_beats_the_model() -> None:
    """A measured t(S) is taken whatever the order of its groups."""
    instance = problem({"a": 1.0, "b": 1.0, "c": 2.0}, {}, stages={frozenset({("c",), ("a", "b")}): 2.5})
    rows = evaluate(instance, StagedPlan(((((0, 1), (2,)),),)))
    assert latency_ms(rows) == 2.5
    # Groups share the span of the stage in proportion to their times and end with it.
    assert spans(rows) == {"a": (0, 1.25), "b": (1.25, 2.5), "c": (0, 2.5)}
    # The same operators in other groups were not measured.
    assert latency_ms(evaluate(instance, StagedPlan(((((0,), (1,), (2,)),),)))) == 0.5 * 4 + 0.5 * 4


def test_no_contention_is_the_longest_group() -> None:
    """With contention "none" a stage lasts as long as its longest group."""
    instance = problem({"a": 1.0, "b": 1.0, "c": 1.5}, {}, contention="none")
    assert latency_ms(evaluate(instance, StagedPlan(((((0, 1), (2,)),),)))) == 2.0


def test_streams_slow_each_other() -> None:
    """While the set C runs, each member progresses at 1/(a*|C| + (1-a)*max(sum of u, 1))."""
    instance = problem({"a": 2.0, "b": 1.0}, {}, utilization={"a": 0.8, "b": 0.6})
    rows = evaluate(instance, StreamPlan((((0,), (1,)),)))
    slowdown = 0.5 * 2 + 0.5 * 1.4
    assert spans(rows)["b"] == (0, pytest.approx(slowdown))
    assert spans(rows)["a"] == (0, pytest.approx(slowdown + 1.0))


@pytest.mark.parametrize(
    "plan",
    [
        StagedPlan(((((3,),), ((0,),), ((1,),), ((2,),)),)),
        StagedPlan(((((0,),), ((3,),), ((1,),)), (((2,),),))),
        StreamPlan((((3, 0), (1,), (2,)),)),
    ],
)
def test_deadlock_is_named(plan: Plan) -> None:
    """A plan whose operators wait for each other is refused with their names."""
    with pytest.raises(ScheduleError, match=r"the schedule deadlocks: .* wait for each other"):
        evaluate(DIAMOND, plan)


def test_dependent_groups_are_refused() -> None:
    """Operators of different groups of a stage cannot depend on each other."""
    with pytest.raises(ScheduleError, match="operator b depends on a"):
        evaluate(DIAMOND, StagedPlan(((((0,), (1,)), ((2,),), ((3,),)),)))


VALID = schedule_of(DIAMOND, StagedPlan(((((0,),), ((2,),), ((3,),)), (((1,),),))))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (dataclasses.replace(VALID, placements=VALID.placements[:-1]), "operator d is missing"),
        (dataclasses.replace(VALID, placements=(*VALID.placements, VALID.placements[0])), "a is placed twice"),
        (with_row(VALID, 0, operator="z"), "found z, which is not an operator"),
        (with_row(VALID, 2, device=5), "device: found 5; allowed: 0 to 1"),
        (with_row(VALID, 2, stage=None), "some rows have a stage and some have none"),
        (with_row(VALID, 1, start_ms=1.5, finish_ms=7.5), "overlap"),
        (with_row(VALID, 1, finish_ms=7.5), "lasts 5.5 ms but costs 6.0 ms"),
        (with_row(VALID, 2, start_ms=2.0), "starts at 2.0 ms, before its input from a is there at 2.5 ms"),
        (with_row(VALID, 3, start_ms=7.0, finish_ms=8.0), "before its input"),
        (dataclasses.replace(VALID, latency_ms=8.0), "latency_ms is 8.0 but the last operator finishes at 9"),
        (dataclasses.replace(VALID, placements=VALID.placements[::-1]), "launched before its predecessor"),
        (with_row(VALID, 0, finish_ms=-1.0), "before it starts"),
    ],
)
def test_checker_refuses(broken: Schedule, message: str) -> None:
    """The checker finds each way to break a schedule."""
    assert violations(DIAMOND, VALID) == []
    errors = violations(DIAMOND, broken)
    assert any(message in line for line in errors), errors


@pytest.mark.parametrize("plan", [StagedPlan(((((0,),), ((1,),)),)), StreamPlan((((0, 1, 2, 3, 3),),))])
def test_incomplete_plans_are_refused(plan: Plan) -> None:
    """A plan without an operator, or with one twice, is not evaluated."""
    with pytest.raises(ScheduleError, match=r"operator [cd] is in the plan [02] times; allowed: once"):
        evaluate(DIAMOND, plan)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (StreamPlan((((0, 1, 2, 4),),)), "found operator 4 in the plan; allowed: 0 to 3"),
        (StagedPlan(((((0,),), ((1,), (2,)), ((-1,),)),)), "found operator -1 in the plan; allowed: 0 to 3"),
        (StagedPlan(((((0,),), ((1,), (2,)), (), ((3,),)),)), "found a stage or group without operators"),
        (StagedPlan(((((0,),), ((1,), (2,), ()), ((3,),)),)), "found a stage or group without operators"),
        (StreamPlan((((0, 1, 3), (2,)),), (0, 1, 2, 3, 3)), "launch: found other operators than those of the graph"),
        (StreamPlan((((0, 1, 3), (2,)),), (0, 1, 3)), "launch: found other operators than those of the graph"),
        (StreamPlan((((0, 1, 2, 3),),), (0, 2, 1, 3)), "launch: found another order than that of the streams"),
        (StreamPlan((((0, 1, 3), (2,)),), (0, 1, 3, 2)), "launch: found operator d before its predecessor c"),
    ],
)
def test_plans_of_other_operators_are_refused(plan: Plan, message: str) -> None:
    """Operators that there are not, empty stages, and launches that streams contradict, are not evaluated."""
    with pytest.raises(ScheduleError, match=message):
        evaluate(DIAMOND, plan)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time_ms": {"a": float("nan")}}, "operators: a: found nan ms; allowed: a finite number of at least 0"),
        ({"time_ms": {"a": -1.0}}, "operators: a: found -1.0 ms"),
        ({"transfers": {("a", "b"): float("inf")}}, "transfers: a -> b: found inf ms"),
        ({"utilization": {"a": 2.0}}, r"operators\.a\.utilization: found 2\.0; allowed: above 0, at most 1"),
        ({"stages": {frozenset({("a", "b"), ("c",)}): -3.0}}, "stages: a -> b, c: found -3.0 ms"),
        ({"stages": {frozenset({("a",), ("a", "b")}): 1.0}}, "stages: a, a -> b: an operator is in it twice"),
        ({"merges": {frozenset("ab"): float("nan")}}, "merges: a, b: found nan ms"),
        ({"wide_ms": {"a": {2: -1.0}}}, "wide_ms: a on 2: found -1.0 ms"),
        ({"merge_wide_ms": {frozenset("ab"): {2: float("inf")}}}, "merge_wide_ms: a, b on 2: found inf ms"),
        ({"alpha": 2.0}, "alpha: found 2.0; allowed: 0 to 1"),
        ({"alpha": float("nan")}, "alpha: found nan"),
        ({"corun": {2: 0.5}}, "corun: 2 devices: found 0.5; allowed: a finite number of at least 1"),
        ({"contention": "Blend"}, "contention: found Blend; allowed: blend, none, resources"),
    ],
)
def test_costs_that_no_file_may_have_are_refused(changes: dict[str, Any], message: str) -> None:
    """Costs made in Python are held to what costs.json may say."""
    with pytest.raises(ArtifactError, match=message):
        Costs(**{"time_ms": {"a": 1.0}, "transfers": {}, **changes})


def test_graphs_without_operators_are_refused() -> None:
    """There is nothing to schedule in one."""
    with pytest.raises(ArtifactError, match="operators: found none; allowed: at least one"):
        Problem(Graph("empty", (), ()), Costs({}, {}))


@pytest.mark.parametrize(
    "costs",
    [
        Costs({"a": 1e308, "b": 1e308}, {("a", "b"): 0.0}),
        Costs({"a": 1e308, "b": 0.0}, {("a", "b"): 1e308}),
        Costs({"a": 1e308, "b": 0.0}, {("a", "b"): 0.0}, corun={2: 2.0}),
    ],
)
def test_times_with_an_infinite_sum_are_refused(costs: Costs) -> None:
    """Latencies and bounds would be infinite."""
    with pytest.raises(ArtifactError, match="costs: found times with an infinite sum; allowed: a finite one"):
        Problem(Graph("pair", (Operator("a", "conv"), Operator("b", "conv")), (Edge("a", "b"),)), costs)


def test_checker_finds_what_zero_times_hide() -> None:
    """A deadlock of operators without time, a bound above the latency and shares that are none are found."""
    instance = problem({"x": 0.0, "y": 0.0, "z": 0.0}, {("x", "z"): 0.0, ("z", "y"): 0.0})
    rows = (
        Placement("x", 0, 0, 1, 0.0, 0.0),
        Placement("z", 1, 0, 0, 0.0, 0.0),
        Placement("y", 0, 0, 0, 0.0, 0.0),
    )
    errors = violations(instance, Schedule("test", {}, 2, 0.0, 0.0, 0.0, rows))
    assert errors[0] == "operator y of stage 0 is launched after stage 1"
    assert len(errors) == 2
    assert errors[1].endswith("wait for each other")
    assert violations(DIAMOND, dataclasses.replace(VALID, lower_bound_ms=99.0)) == [
        "latency_ms 9.0 is below lower_bound_ms 99.0"
    ]
    pair = problem({"a": 2.0, "b": 2.0}, {})
    apart = (Placement("a", 0, 0, 0, 0.0, 0.0), Placement("b", 0, 0, 0, 0.0, 4.0))
    errors = violations(pair, Schedule("test", {}, 1, 4.0, 0.0, 0.0, apart))
    assert "operator a lasts 0.0 ms; its share of its stage is 2.0 ms" in errors


def test_checker_works_stage_costs_out_itself() -> None:
    """The checker detects a wrong t(S) of the evaluator, because it does not use it."""
    plan = StagedPlan(((((0,),), ((1,), (2,)), ((3,),)),))
    right = schedule_of(DIAMOND, plan)
    wrong = Problem.__new__(Problem)
    wrong.__dict__.update(DIAMOND.__dict__)
    wrong.stage_ms = lambda stage: 1.0  # type: ignore[method-assign]
    assert violations(wrong, right) == []
    assert any("costs 8.0 ms" in line for line in violations(DIAMOND, schedule_of(wrong, plan)))


def test_checker_refuses_too_fast_streams() -> None:
    """Operators side by side on one device that ran as if alone are found."""
    instance = problem({"a": 2.0, "b": 2.0}, {})
    rows = (Placement("a", 0, 0, None, 0.0, 2.0), Placement("b", 0, 1, None, 0.0, 2.0))
    errors = violations(instance, Schedule("test", {}, 1, 2.0, 0.0, 0.0, rows))
    assert any("of progress on device 0 but needs 2.0 ms" in line for line in errors), errors


@st.composite
def _staged_plans(draw: st.DrawFn, instance: Problem) -> StagedPlan:
    """Chunks of a topological order, dealt to devices: each chunk a stage of one group."""
    devices = draw(st.integers(1, 4))
    rows: list[list[Stage]] = [[] for _ in range(devices)]
    left = list(instance.order)
    while left:
        size = draw(st.integers(1, len(left)))
        rows[draw(st.integers(0, devices - 1))].append((tuple(left[:size]),))
        left = left[size:]
    return StagedPlan(tuple(tuple(row) for row in rows))


@st.composite
def _stream_plans(draw: st.DrawFn, instance: Problem) -> StreamPlan:
    """A topological order dealt to streams of devices."""
    streams: list[list[list[int]]] = [
        [[] for _ in range(draw(st.integers(1, 3)))] for _ in range(draw(st.integers(1, 3)))
    ]
    for operator in instance.order:
        device = draw(st.integers(0, len(streams) - 1))
        streams[device][draw(st.integers(0, len(streams[device]) - 1))].append(operator)
    return StreamPlan(tuple(tuple(tuple(s) for s in device) for device in streams))


@st.composite
def _planned(draw: st.DrawFn) -> tuple[Problem, Plan]:
    """A problem with a plan of stages or streams."""
    instance = draw(st.one_of(problems(), sharing_problems()))
    return instance, draw(st.one_of(_staged_plans(instance), _stream_plans(instance)))


@given(_planned())
def test_evaluated_plans_pass_the_checker(planned: tuple[Problem, Plan]) -> None:
    """Whatever the plan, the evaluator's times satisfy the checker, which shares no code with it."""
    assert violations(planned[0], schedule_of(*planned)) == []


@given(_planned())
def test_placements_give_the_plan_back(planned: tuple[Problem, Plan]) -> None:
    """A plan survives the way through schedule.json: its latency stays the same."""
    instance, schedule = planned[0], schedule_of(*planned)
    again = Schedule.from_json(schedule.to_json())
    assert latency_ms(evaluate(instance, again.plan(instance.graph))) == pytest.approx(schedule.latency_ms)


@given(_planned())
def test_bound_holds(planned: tuple[Problem, Plan]) -> None:
    """No plan is faster than the lower bound."""
    instance, plan = planned
    assert latency_ms(evaluate(instance, plan)) >= lower_bound_ms(instance, len(plan.devices)) - 1e-9


def test_bound_gives_way_to_measured_stages() -> None:
    """A measured stage that beats the model loosens the bound, and no schedule falls below it."""
    stages = {frozenset({("a",), ("b",)}): 1.5}
    instance = problem({"a": 2.0, "b": 2.0, "c": 1.0}, {("a", "c"): 0.0}, stages=stages)
    best = min(
        latency_ms(evaluate(instance, plan))
        for plan in (
            StagedPlan(((((0,), (1,)), ((2,),)),)),
            *(
                StagedPlan((tuple(((op,),) for op in order),))
                for order in itertools.permutations(range(3))
                if order.index(0) < order.index(2)
            ),
        )
    )
    assert best == 2.5
    assert lower_bound_ms(instance, 1) <= best
    assert lower_bound_ms(problem({"a": 2.0, "b": 2.0, "c": 1.0}, {("a", "c"): 0.0}), 1) == 5.0


@pytest.mark.parametrize(
    ("edges", "rows", "stuck"),
    [
        # x and y share a stage that waits for z, which waits for x.
        (
            (("x", "z"), ("z", "y")),
            (("x", 0, 0, 0), ("z", 1, 0, 0), ("y", 0, 1, 0)),
            {"stage 0 of device 0", "stage 0 of device 1"},
        ),
        # Two stages each hold a producer of the other.
        (
            (("x", "y"), ("z", "w")),
            (("x", 0, 0, 0), ("z", 1, 0, 0), ("y", 1, 1, 0), ("w", 0, 1, 0)),
            {"stage 0 of device 0", "stage 0 of device 1"},
        ),
    ],
)
def test_checker_finds_deadlocks_of_whole_stages(
    edges: tuple[tuple[str, str], ...], rows: tuple[tuple[str, int, int, int], ...], stuck: set[str]
) -> None:
    """Stages wait as a whole, which times of zero hide: the checker finds what the evaluator calls a deadlock."""
    instance = problem(dict.fromkeys((name for name, *_ in rows), 0.0), dict.fromkeys(edges, 0.0))
    placements = tuple(Placement(name, device, stream, stage, 0.0, 0.0) for name, device, stream, stage in rows)
    broken = Schedule("test", {}, 2, 0.0, 0.0, 0.0, placements)
    (line,) = (line for line in violations(instance, broken) if "wait for each other" in line)
    assert set(line.removesuffix(" wait for each other").split(", ")) == stuck
    with pytest.raises(ScheduleError, match="deadlocks"):
        evaluate(instance, broken.plan(instance.graph))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -1.0])
@pytest.mark.parametrize("name", ["latency_ms", "lower_bound_ms", "staged_lower_bound_ms", "scheduling_time_s"])
def test_checker_refuses_numbers_that_are_none(name: str, value: float) -> None:
    """NaN is neither above nor below anything, so no comparison would refuse it."""
    broken = dataclasses.replace(VALID, **{name: value})  # type: ignore[arg-type]
    assert violations(DIAMOND, broken) == [f"{name}: found {value}; allowed: a finite number of at least 0"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["start_ms", "finish_ms"])
@pytest.mark.parametrize("position", range(4))
def test_checker_refuses_times_that_are_none(position: int, name: str, value: float) -> None:
    """So in every row, whatever the order in which rows are compared."""
    errors = violations(DIAMOND, with_row(VALID, position, **{name: value}))
    assert len(errors) == 1
    assert "allowed: finite times" in errors[0]


THREE = problem({"a": 2.0, "b": 2.0, "c": 2.0}, {})
#: 4 ms on two devices; the work is 3 ms a device.
ON_TWO = schedule_of(THREE, StagedPlan(((((0,),), ((1,),)), (((2,),),))))


@pytest.mark.parametrize(
    ("stated", "others", "verdict"),
    [
        (3.0, [], "recomputed"),
        (0.0, [], "weaker"),
        (3.5, [], "unconfirmed"),
        (4.1, [], "wrong"),
        (3.5, [dataclasses.replace(ON_TWO, latency_ms=3.4)], "wrong"),
        (3.5, [dataclasses.replace(ON_TWO, latency_ms=3.4, devices=3)], "unconfirmed"),
    ],
)
def test_verdicts_on_bounds(stated: float, others: list[Schedule], verdict: str) -> None:
    """A bound is recomputed, and refuted by whatever is faster for as many devices."""
    (judgement,) = judge_bounds(THREE, dataclasses.replace(ON_TWO, lower_bound_ms=stated), others)
    assert (judgement.verdict, judgement.recomputed_ms) == (verdict, 3.0)


def test_verdicts_on_staged_bounds() -> None:
    """A bound for staged schedules is refuted by those only; one by one on one device is a staged schedule too."""
    stated = dataclasses.replace(ON_TWO, lower_bound_ms=3.0, staged_lower_bound_ms=3.5)
    quick = dataclasses.replace(ON_TWO, latency_ms=3.4)
    streams = dataclasses.replace(
        quick, placements=tuple(msgspec.structs.replace(r, stage=None) for r in quick.placements)
    )
    for other, verdict in ((quick, "wrong"), (streams, "unconfirmed")):
        assert [judgement.verdict for judgement in judge_bounds(THREE, stated, [other])] == ["recomputed", verdict]
    slow = dataclasses.replace(ON_TWO, latency_ms=9.0, lower_bound_ms=7.0, staged_lower_bound_ms=8.0)
    assert [str(judgement) for judgement in judge_bounds(THREE, slow)] == [
        "lower_bound_ms: found 7 ms; allowed: at most 6 ms, which is possible",
        "staged_lower_bound_ms: found 8 ms; allowed: at most 6 ms, which is possible",
    ]


@given(problems(), st.sampled_from(["sequential", "heft", "hios-lp", "lios"]), st.integers(1, 3))
def test_bounds_of_algorithms_are_recomputed(instance: Problem, name: str, devices: int) -> None:
    """Algorithms that prove no bound themselves state the one that follows from the costs."""
    devices = devices if ALGORITHMS[name].several_devices else 1
    assert {judgement.verdict for judgement in judge_bounds(instance, schedule(instance, name, devices))} == {
        "recomputed"
    }


def test_checker_refuses_impossible_times_and_bounds() -> None:
    """Times before zero, and a staged schedule below a bound for staged ones."""
    assert "allowed: finite times" in violations(DIAMOND, with_row(VALID, 0, start_ms=-1.0))[0]
    assert violations(DIAMOND, dataclasses.replace(VALID, staged_lower_bound_ms=9.5)) == [
        "latency_ms 9.0 is below staged_lower_bound_ms 9.5"
    ]
