"""Operator merge: what can be merged, whether that is right, and what it costs."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hios import Operator, Problem, Schedule, evaluate, lower_bound_ms, violations
from hios.core.merging import Convolution, MergedKernel, convolutions, least_growth, merge_candidates, merged_kernel
from hios.core.problem import Stage
from hios.core.schedule import StagedPlan
from hios.errors import ArtifactError, ScheduleError, UnsupportedError
from hios.profiling.stage_requests import RecordingProblem
from hios.schedulers.opt.lower_bounds import interval_bound_ms
from tests.convolution_graphs import Conv, conv_graph, conv_problem
from tests.problems import schedule_of


def members_of(*members: Conv) -> list[Convolution | None]:
    """What the graph of these convolutions says of each."""
    return convolutions(conv_graph({f"c{number}": member for number, member in enumerate(members)}))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ((Conv((1, 1)), Conv((3, 3), (1, 1))), MergedKernel((3, 3), (1, 1))),
        ((Conv((1, 3), (0, 1)), Conv((3, 1), (1, 0))), MergedKernel((3, 3), (1, 1))),
        ((Conv((3, 3), (1, 1)), Conv((5, 5), (2, 2)), Conv((1, 1))), MergedKernel((5, 5), (2, 2))),
        ((Conv((3, 3), (1, 1), stride=(2, 2)), Conv((1, 1), stride=(2, 2))), MergedKernel((3, 3), (1, 1))),
        # An uneven difference takes no row from the output where the stride leaves one over.
        ((Conv((3, 3), stride=(2, 2)), Conv((4, 4), stride=(2, 2))), MergedKernel((4, 4), (0, 0))),
        ((Conv((1, 1), bias=False), Conv((1, 1))), MergedKernel((1, 1), (0, 0))),
    ],
)
def test_what_can_be_merged(members: tuple[Conv, ...], expected: MergedKernel) -> None:
    """Kernels are padded to the elementwise largest, and P - floor((K - k) / 2) = p on each axis."""
    assert merged_kernel(members_of(*members)) == expected


def test_candidates() -> None:
    """What fits together for every kernel, and all pairs, each once; nothing of what fits nowhere."""
    members = members_of(Conv(), Conv(), Conv((3, 3), (1, 1)), Conv((5, 5), (2, 2)), Conv((3, 3)), Conv(activation=()))
    assert merge_candidates(members) == [
        frozenset(merge) for merge in ((0, 1, 2, 3), (0, 1, 2), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
    ]
    assert merge_candidates(members_of(Conv(), Conv(activation=()))) == []


_PLAIN = Conv((3, 3), (1, 1))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(dataclasses.replace(_PLAIN, value="c0"), id="another value"),
        pytest.param(Conv((3, 3), (1, 1), stride=(2, 2)), id="another stride"),
        pytest.param(Conv((3, 3), (0, 0)), id="another output size"),
        pytest.param(Conv((1, 1), activation=()), id="another activation"),
        pytest.param(Conv((1, 1), activation=("relax.nn.softmax",)), id="no elementwise activation"),
        pytest.param(Conv((2, 2), (1, 1), image=(7, 7)), id="another image"),
        pytest.param(Conv((1, 1), changes={"dilation": [2, 2]}), id="dilation"),
        pytest.param(Conv((1, 1), changes={"groups": 2}), id="groups"),
        pytest.param(Conv((1, 1), changes={"padding": [0, 0, 1, 1]}), id="uneven padding"),
        pytest.param(Conv((1, 1), changes={"data_layout": "NHWC"}), id="another layout"),
    ],
)
def test_what_cannot_be_merged(other: Conv) -> None:
    """Value, stride, output size and activation are equal, and both are plain convolutions."""
    assert merged_kernel(members_of(_PLAIN, _PLAIN)) is not None
    assert merged_kernel(members_of(_PLAIN, other)) is None


def test_padding_condition() -> None:
    """Equal value, stride and output size are not enough: the released IOS merges these, and shifts the second."""
    pair = (Conv((3, 3), (1, 1), stride=(2, 2)), Conv((2, 2), (0, 0), stride=(2, 2)))
    first, second = members_of(*pair)
    assert first is not None
    assert second is not None
    assert first.family == second.family
    assert merged_kernel([first, second]) is None
    with pytest.raises(UnsupportedError, match="operators c0, c1 cannot run as one"):
        outputs(pair)
    torch = pytest.importorskip("torch")
    image, filters = torch.arange(64.0).reshape(1, 1, 8, 8), torch.ones(1, 1, 2, 2)
    right = torch.conv2d(image, filters, stride=2)
    padded = torch.conv2d(image, torch.nn.functional.pad(filters, (0, 1, 0, 1)), stride=2, padding=1)
    assert right.shape == padded.shape
    assert not torch.allclose(right, padded)


@pytest.mark.parametrize(
    "changes",
    [{"padding": 0}, {"padding": ["a", "b", "a", "b"]}, {"strides": None}, {"strides": [1]}, {"dilation": 1}],
)
def test_attributes_that_are_none_are_not_merged(changes: dict[str, Any]) -> None:
    """Whatever a file gives as attributes of a convolution, there is a schedule, without merges."""
    instance = conv_problem({"a": Conv(changes=changes), "b": Conv(changes=changes)}, {"a": 1.0, "b": 1.0})
    assert instance.convolutions == [None, None]
    assert lower_bound_ms(instance, 1) == 2.0


def test_convolutions_without_arguments_or_kernels_are_not_merged() -> None:
    """A call of nothing, and a kernel without elements, are convolutions that nothing can be merged with."""
    graph = conv_graph({"a": Conv()})
    call = graph.operators[0].calls[0]
    bare = msgspec.structs.replace(graph.operators[0], calls=(msgspec.structs.replace(call, arguments=()),))
    assert convolutions(dataclasses.replace(graph, operators=(bare,))) == [None]
    flat = tuple(msgspec.structs.replace(weight, shape=(2, 2, 0, 1)) for weight in graph.weights)
    assert convolutions(dataclasses.replace(graph, weights=flat)) == [None]


def test_synthetic_operators_cannot_be_merged() -> None:
    """Without calls there is nothing to tell from, and one operator alone is no merge."""
    graph = conv_graph({"a": Conv(), "b": Conv()})
    bare = dataclasses.replace(
        graph, operators=tuple(Operator(operator.id, operator.type) for operator in graph.operators)
    )
    assert convolutions(bare) == [None, None]
    assert merged_kernel(convolutions(bare)) is None
    assert merged_kernel(members_of(Conv())) is None


_AXIS = st.tuples(st.integers(1, 5), st.integers(0, 3))


@st.composite
def _convs(draw: st.DrawFn) -> Conv:
    (height, above), (width, left) = draw(_AXIS), draw(_AXIS)
    return Conv(
        (height, width),
        (above, left),
        stride=draw(st.sampled_from([(1, 1), (2, 2), (1, 2)])),
        activation=draw(st.sampled_from([(), ("relax.nn.relu",), ("relax.nn.silu",)])),
        filters=draw(st.integers(1, 3)),
        bias=draw(st.booleans()),
    )


@st.composite
def likely(draw: st.DrawFn) -> list[Conv]:
    """Convolutions of which some can be merged: equal but for kernel, filters and bias, padded to the same size."""
    model = draw(_convs())
    members = [model]
    for _ in range(draw(st.integers(1, 3))):
        height, width = draw(st.integers(1, 5)), draw(st.integers(1, 5))
        even = (max(0, (height - 1) // 2), max(0, (width - 1) // 2))
        padding = draw(st.sampled_from([even, model.padding]))
        changes: dict[str, Any] = {"kernel": (height, width), "padding": padding, "bias": draw(st.booleans())}
        members.append(dataclasses.replace(model, **changes, filters=draw(st.integers(1, 3))))
    return members


def outputs(members: tuple[Conv, ...], *, packed: bool = False) -> tuple[list[Any], list[Any]]:
    """Outputs of operators by themselves and merged, on random values."""
    torch = pytest.importorskip("torch")
    from hios.kernels import compile_operator
    from hios.kernels.merged import compile_merged

    graph = conv_graph({f"c{number}": member for number, member in enumerate(members)})
    generator = torch.Generator().manual_seed(0)
    weights = {entry.name: torch.randn(entry.shape, generator=generator) for entry in graph.weights}
    image = torch.randn((2, 2, *members[0].image), generator=generator)
    with torch.inference_mode():
        names = [operator.id for operator in graph.operators]
        merged = compile_merged(graph, names, weights, packed=packed)(image)
        alone = [compile_operator(operator, weights).run(image) for operator in graph.operators]
    return alone, list(merged)


@given(st.one_of(st.lists(_convs(), min_size=2, max_size=4), likely()))
def test_merging_keeps_results(members: list[Conv]) -> None:
    """Operators that count as mergeable give the same outputs merged as one by one."""
    torch = pytest.importorskip("torch")
    members = [member for member in members if min(member.output) > 0]
    if merged_kernel(members_of(*members)) is None:
        return
    for alone, merged in zip(*outputs(tuple(members)), strict=True):
        assert alone.shape == merged.shape
        assert torch.allclose(alone, merged, atol=1e-4)


@given(st.one_of(st.lists(_convs(), max_size=5), likely()))
def test_least_growth(members: list[Conv]) -> None:
    """The least growth of each operator is that over all sets that can be merged."""
    known = members_of(*members)
    expected: dict[int, float] = {}
    for size in range(2, len(known) + 1):
        for chosen in itertools.combinations(range(len(known)), size):
            merged = merged_kernel([known[number] for number in chosen])
            for number in chosen if merged is not None else ():
                member = known[number]
                assert merged is not None
                assert member is not None
                expected[number] = min(expected.get(number, float("inf")), member.growth(merged.kernel))
    assert least_growth(known) == expected


PAIR = {"a": Conv((1, 1)), "b": Conv((3, 3), (1, 1))}
TIMES = {"a": 1.0, "b": 2.0}


@pytest.mark.parametrize(
    ("utilization", "contention", "expected"),
    [
        ({"a": 0.1, "b": 0.2}, "blend", 9.0),  # a grows ninefold: max(0.1 * 9 + 0.2 * 2, 9, 2)
        ({}, "blend", 11.0),
        ({}, "none", 9.0),
    ],
)
def test_modelled_merge(utilization: dict[str, float], contention: str, expected: float) -> None:
    """A merged operator takes max(sum(t*g*u), max(t*g)), and without contention max(t*g)."""
    instance = RecordingProblem(conv_problem(PAIR, TIMES, utilization=utilization, contention=contention))
    assert instance.merge_ms([0, 1]) == pytest.approx(expected)
    assert instance.asked_merges == {frozenset({0, 1})}
    assert instance.asked == set()


def test_measured_merge_counts() -> None:
    """A measured merge is used, in any order, and not requested again; what cannot be merged has no time."""
    members = {**PAIR, "c": Conv((5, 5), (1, 1))}
    instance = RecordingProblem(conv_problem(members, {**TIMES, "c": 1.0}, merges={frozenset("ab"): 1.5}))
    assert instance.merge_ms([1, 0]) == 1.5
    assert instance.merge_ms([0, 2]) is None
    assert instance.asked_merges == set()


def test_costs_of_impossible_merges_are_refused() -> None:
    """Costs that merge unknown operators or such that cannot be merged are refused in one line."""
    with pytest.raises(ArtifactError, match=r"costs: merges: found operator z, which is not in graph"):
        conv_problem(PAIR, TIMES, merges={frozenset("az"): 1.0})
    members = {"a": Conv(), "b": Conv(value="a")}
    with pytest.raises(ArtifactError, match="costs: merges: found a, b, which cannot run as one by graph; allowed: "):
        conv_problem(members, TIMES, merges={frozenset("ab"): 1.0})


MEMBERS = {**PAIR, "c": Conv((1, 1), value="a")}
INSTANCE = conv_problem(MEMBERS, {**TIMES, "c": 1.0}, merges={frozenset("ab"): 1.5})
PLAN = StagedPlan(((((0,), (1,)), ((2,),)),), frozenset({frozenset({0, 1})}))


def test_merged_stage_in_a_schedule(tmp_path: Path) -> None:
    """Every merged operator spans its whole stage on its own stream, and the merge survives schedule.json."""
    scheduled = schedule_of(INSTANCE, PLAN)
    rows = {row.operator: (row.stream, row.stage, row.start_ms, row.finish_ms) for row in scheduled.placements}
    assert rows == {"a": (0, 0, 0.0, 1.5), "b": (1, 0, 0.0, 1.5), "c": (0, 1, 1.5, 2.5)}
    assert violations(INSTANCE, scheduled) == []
    scheduled.write(tmp_path / "schedule.json")
    again = Schedule.read(tmp_path / "schedule.json")
    assert again.plan(INSTANCE.graph) == PLAN
    assert again.merges == (("a", "b"),)


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        ((("a", "c"),), r"schedule: merges\[0\]: found a, c, which is not a stage"),
        ((("a", "b"), ("z", "c")), r"schedule: merges\[1\]: found z, c, which is not a stage"),
        ((("a", "b", "c"),), r"schedule: merges\[0\]: found a, b, c, which is not a stage"),
        ((("a", "a", "b"),), r"schedule: merges\[0\]: found a, a, b, which is not a stage"),
    ],
)
def test_wrong_merges_in_a_schedule(merges: tuple[tuple[str, ...], ...], message: str) -> None:
    """Merges that are no stage are named."""
    broken = dataclasses.replace(schedule_of(INSTANCE, PLAN), merges=merges)
    with pytest.raises(ScheduleError, match=message):
        broken.plan(INSTANCE.graph)
    assert len(violations(INSTANCE, broken)) == 1


def test_impossible_merges_are_found() -> None:
    """Operators that cannot run as one, or that are no stage, are refused by plan, evaluator and checker."""
    instance = conv_problem({"a": Conv(), "b": Conv(stride=(2, 2))}, TIMES)
    beside = StagedPlan(((((0,), (1,)),),))
    wrong = StagedPlan(beside.devices, frozenset({frozenset({0, 1})}))
    no_stage = StagedPlan(((((0, 2), (1,)),),), wrong.merges)
    for problem, plan in ((instance, wrong), (INSTANCE, no_stage)):
        with pytest.raises(ScheduleError, match="operators a, b are not a stage that can run as one operator"):
            evaluate(problem, plan)
    stated = dataclasses.replace(schedule_of(instance, beside), merges=(("a", "b"),))
    assert violations(instance, stated) == [
        "schedule: merges[0]: found a, b, which cannot run as one operator; allowed: stages of convolutions on the "
        "same value with equal stride, activation and output size"
    ]


@pytest.mark.parametrize("contention", ["blend", "none"])
def test_checker_works_merges_out_itself(contention: str) -> None:
    """A wrong time of a merged stage is found: the checker does not ask the problem for it."""
    instance = conv_problem(PAIR, TIMES, contention=contention)
    plan = StagedPlan(((((0,), (1,)),),), frozenset({frozenset({0, 1})}))
    right = schedule_of(instance, plan)
    wrong = Problem.__new__(Problem)
    wrong.__dict__.update(instance.__dict__)
    wrong.merge_ms = lambda operators: 1.0  # type: ignore[method-assign]
    assert violations(wrong, right) == []
    assert any(f"costs {right.latency_ms} ms" in line for line in violations(instance, schedule_of(wrong, plan)))


@st.composite
def conv_problems(draw: st.DrawFn, largest: int = 6) -> Problem:
    """Convolutions that read the input or an earlier one, with some of their merges and stages measured."""
    count = draw(st.integers(1, largest))
    members = {
        f"c{number}": draw(
            st.sampled_from([Conv((1, 1)), Conv((3, 3), (1, 1)), Conv((1, 3), (0, 1)), Conv((5, 5), (2, 2))])
        )
        for number in range(count)
    }
    for number in range(1, count):
        value = draw(st.sampled_from(["", *(f"c{earlier}" for earlier in range(number))]))
        members[f"c{number}"] = dataclasses.replace(members[f"c{number}"], value=value)
    times = {name: draw(st.sampled_from([0.0, 0.5, 1.0, 3.0])) for name in members}
    by_value: dict[str, list[str]] = {}
    for name, member in members.items():
        by_value.setdefault(member.value, []).append(name)
    siblings = [names for names in by_value.values() if len(names) > 1]
    sets = st.sampled_from(siblings).flatmap(lambda names: st.sets(st.sampled_from(names), min_size=2).map(frozenset))
    some: st.SearchStrategy[list[frozenset[str]]] = st.lists(sets, max_size=3) if siblings else st.just([])
    return conv_problem(
        members,
        times,
        utilization={name: draw(st.sampled_from([0.1, 0.5, 1.0])) for name in members},
        merges={chosen: draw(st.floats(0.0, 4.0)) for chosen in draw(some)},
        stages={frozenset((name,) for name in chosen): draw(st.floats(0.0, 4.0)) for chosen in draw(some)},
        contention=draw(st.sampled_from(["blend", "none"])),
        alpha=draw(st.sampled_from([0.0, 0.5, 1.0])),
    )


@st.composite
def _plans(draw: st.DrawFn, instance: Problem) -> StagedPlan:
    """Operators that are ready, one or several as a stage, merged where possible, dealt to devices."""
    rows: list[list[Stage]] = [[] for _ in range(draw(st.integers(1, 3)))]
    merges = set()
    left = set(range(len(instance)))
    while left:
        ready = sorted(operator for operator in left if not left & {u for u, _ in instance.predecessors[operator]})
        chosen = draw(st.sets(st.sampled_from(ready), min_size=1))
        rows[draw(st.integers(0, len(rows) - 1))].append(tuple((operator,) for operator in sorted(chosen)))
        if instance.can_merge(sorted(chosen)) and draw(st.booleans()):
            merges.add(frozenset(chosen))
        left -= chosen
    return StagedPlan(tuple(tuple(row) for row in rows), frozenset(merges))


@given(st.data())
def test_bound_holds_with_merges(data: st.DataObject) -> None:
    """No plan with merges, measured or not, is faster than the bound; the checker agrees with the evaluator."""
    instance = data.draw(conv_problems())
    plan = data.draw(_plans(instance))
    scheduled = schedule_of(instance, plan)
    assert scheduled.latency_ms >= lower_bound_ms(instance, len(plan.devices)) - 1e-9
    assert scheduled.latency_ms >= interval_bound_ms(instance, len(plan.devices)) - 1e-9
    assert violations(instance, scheduled) == []


def test_bound_gives_way_only_where_merging_is_possible() -> None:
    """The work of operators that can be merged counts t*g*u; that of others counts in full."""
    half = {"a": 0.5, "b": 0.5}
    apart = conv_problem({"a": Conv(), "b": Conv(stride=(2, 2))}, {"a": 2.0, "b": 2.0}, utilization=half)
    assert lower_bound_ms(apart, 1) == 2 * 2.0 * (0.5 + 0.5 * 0.5)
    alike = conv_problem({"a": Conv(), "b": Conv()}, {"a": 2.0, "b": 2.0}, utilization=half)
    assert alike.merge_ms([0, 1]) == lower_bound_ms(alike, 1) == 2.0
    measured = conv_problem({"a": Conv(), "b": Conv()}, {"a": 2.0, "b": 2.0}, merges={frozenset("ab"): 1.0})
    assert lower_bound_ms(measured, 1) == 1.0
