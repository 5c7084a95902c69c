"""Merged operators in stream schedules: evaluator, checker, bound and algorithms, also against enumeration."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hios import Costs, Placement, Problem, Schedule, evaluate, lower_bound_ms, schedule, violations
from hios.core.evaluate import latency_ms
from hios.core.schedule import StreamPlan, merged_rows
from hios.errors import ArtifactError, ScheduleError
from hios.runtime.competitors import ScheduleEntry
from hios.schedulers.hios_wide import best_list
from hios.schedulers.opt.lower_bounds import proven_bound_ms
from hios.verify.consistency import bound_problems
from tests.convolution_graphs import Conv, conv_graph, conv_problem
from tests.problems import schedule_of, with_row
from tests.wide_plans import least_latency

#: a, b and c read the input of the graph, d the value of a.
MEMBERS = {"a": Conv(), "b": Conv((3, 3), (1, 1)), "c": Conv(), "d": Conv(value="a", activation=())}


def merging_problem(times: dict[str, float], **costs: Any) -> Problem:
    """A problem of some of the convolutions."""
    return conv_problem({name: MEMBERS[name] for name in times}, times, **costs)


#: Merged, a and b take less than side by side, on two devices less than half.
ONE = merging_problem(
    {"a": 3.0, "b": 4.0, "d": 2.0},
    transfer=0.5,
    merges={frozenset("ab"): 6.0},
    merge_wide_ms={frozenset("ab"): {2: 2.5}},
    wide_ms={"a": {2: 2.0}},
)
#: a and b merged on both devices with their values on device 1, then d on device 0.
PLAN = StreamPlan((((0, 1, 2),), ((0, 1),)), (0, 1, 2), {0: (1, 0), 1: (1, 0)}, frozenset([frozenset([0, 1])]))
VALID = schedule_of(ONE, PLAN)
_with = partial(with_row, VALID)
#: The same on one device.
NARROW = StreamPlan((((0, 1, 2),),), (0, 1, 2), {}, PLAN.merges)


@st.composite
def merging_problems(draw: st.DrawFn) -> Problem:
    """Up to three convolutions on one value, and one after them: merges with and without gain, on one device or two."""
    names = draw(st.sampled_from(["ab", "abd", "abc", "abd"]))
    time = st.one_of(st.integers(0, 6).map(float), st.floats(0.01, 6.0))
    widths = st.dictionaries(st.just(2), time, max_size=1)
    merges = [frozenset(merge) for merge in ("ab", "ac", "bc", "abc") if set(merge) <= set(names)]
    listed = draw(st.lists(st.sampled_from(merges), unique=True))
    return merging_problem(
        {name: draw(time) for name in names},
        transfer=draw(st.sampled_from([0.0, 1.0])),
        utilization={name: draw(st.sampled_from([1.0, 0.5])) for name in names},
        alpha=draw(st.sampled_from([0.5, 1.0])),
        merges={merge: draw(time) for merge in listed},
        merge_wide_ms={merge: draw(widths) for merge in listed},
        wide_ms={name: draw(widths) for name in names},
    )


@settings(max_examples=80, deadline=None)
@given(instance=merging_problems(), devices=st.integers(1, 2))
def test_bound_and_algorithm_on_small_problems(instance: Problem, devices: int) -> None:
    """No choice of merges, order and devices beats the bound; hios-wide is valid, and no worse than without merges."""
    least = least_latency(instance.on(devices), devices)
    assert lower_bound_ms(instance, devices) <= least * (1 + 1e-9)
    assert proven_bound_ms(instance, devices) <= least * (1 + 1e-9)
    made = schedule(instance, "hios-wide", devices)
    assert violations(instance, made) == []
    assert least <= made.latency_ms * (1 + 1e-9)
    assert made.latency_ms <= best_list(instance.on(devices), devices)[0].latency_ms * (1 + 1e-9)
    again = Schedule.from_json(made.to_json())
    assert again.placements == made.placements
    assert latency_ms(evaluate(instance, again.plan(instance.graph))) == made.latency_ms


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(instance=merging_problems())
def test_the_search_on_small_problems(instance: Problem) -> None:
    """hios-opt is valid, no worse than hios-wide, and its bound holds."""
    made = schedule(instance, "hios-opt", 2, {"time_limit": 600.0, "moves": 300})
    assert violations(instance, made) == []
    assert made.latency_ms <= schedule(instance, "hios-wide", 2).latency_ms * (1 + 1e-9)
    assert made.lower_bound_ms <= least_latency(instance.on(2), 2) * (1 + 1e-9)
    assert bound_problems(made, instance, [made]) == []


def test_times_by_hand() -> None:
    """A merged operator holds all its devices, all that it stands for have its times, and its values are on the first.

    So d, on the other device, waits for the transfer.
    """
    rows = {row.operator: row for row in evaluate(ONE, PLAN)}
    for name in "ab":
        assert (rows[name].start_ms, rows[name].finish_ms, rows[name].devices) == (0.0, 2.5, (1, 0))
    assert (rows["d"].start_ms, rows["d"].finish_ms) == (3.0, 5.0)
    assert violations(ONE, VALID) == []
    assert Schedule.from_json(VALID.to_json()).plan(ONE.graph) == PLAN
    assert [[row.operator for row in group] for group in merged_rows(VALID.placements)] == [["a", "b"], ["d"]]
    assert [row.finish_ms for row in evaluate(ONE, NARROW)] == [6.0, 6.0, 8.0]


def test_bound_by_hand() -> None:
    """The path counts the merge's least time, the work its area, divided by the work of its operators."""
    assert lower_bound_ms(ONE, 1) == 8.0
    # Path 2 + 2 with a apart on two devices; work 5 + 2 with the area of the merge on two devices.
    assert lower_bound_ms(ONE, 2) == 4.0
    assert schedule(ONE, "hios-wide", 2).latency_ms == 4.5
    assert schedule(ONE, "hios-wide", 2).merges == (("a", "b"),)
    for longest, bound in ((8.0, 8.0), (4.0, (5.0 + 4.0) / 2)):
        times = {"a": 3.0, "b": 4.0, "c": longest}
        longer = merging_problem(times, merges={frozenset("ab"): 6.0}, merge_wide_ms={frozenset("ab"): {2: 2.5}})
        assert lower_bound_ms(longer, 2) == pytest.approx(bound)


def test_a_merge_that_gains_nothing_is_left_out() -> None:
    """A merge that takes longer is not used, and merges that were not measured are not estimated."""
    slow = merging_problem({"a": 3.0, "b": 4.0}, merges={frozenset("ab"): 7.5}, wide_ms={"a": {2: 2.9}})
    assert schedule(slow, "hios-wide", 2).merges == ()
    unmeasured = merging_problem({"a": 3.0, "b": 4.0}, wide_ms={"a": {2: 1.0}})
    assert schedule(unmeasured, "hios-wide", 2).merges == ()


def test_a_merge_that_gains_by_its_width_alone_is_found() -> None:
    """Where all operators take one device each, a merge that saves time on four of them is tried on these."""
    members = {"a": Conv(), "b": Conv()}
    merge = frozenset("ab")
    instance = conv_problem(members, {"a": 4.0, "b": 4.0}, merges={merge: 9.0}, merge_wide_ms={merge: {4: 2.5}})
    scheduled = schedule(instance, "hios-wide", 4)
    assert (scheduled.latency_ms, scheduled.merges) == (2.5, (("a", "b"),))
    assert violations(instance, scheduled) == []


def test_the_published_algorithms_do_not_merge_streams() -> None:
    """Only staged schedules of IOS have merges among them."""
    for name in ("heft", "hios-lp", "greedy", "lios"):
        assert schedule(ONE, name, 1).merges == ()
    assert schedule(ONE, "ios", 1).merges == (("a", "b"),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"merges": frozenset([frozenset([0, 2])])}, "merges: found a, d, which cannot run as one operator"),
        ({"wide": {0: (1, 0)}}, "operators a, b: found them merged, on different devices"),
        ({"launch": (0, 2, 1)}, "operators a, b: found them merged, on different devices or with others between them"),
        (
            {"merges": frozenset([frozenset([0, 1]), frozenset([0, 1, 2])])},
            "merges: an operator is in two of them",
        ),
        (
            {"devices": (((0, 1), (2,)), ((0, 1),))},
            "operators a, b: found them merged on a device of several streams; allowed: a device of one",
        ),
        (
            {
                "devices": (((0, 1, 2),), ((0, 1),), ((0, 1),)),
                "wide": dict.fromkeys((0, 1), (0, 1, 2)),
            },
            "operators a, b: found 3 devices; allowed: 1, 2, those of their merge's wide_ms",
        ),
    ],
)
def test_wrong_plans_are_refused(changes: dict[str, Any], message: str) -> None:
    """Each way in which the merges of a plan can contradict each other or the costs is refused."""
    with pytest.raises(ScheduleError, match=message):
        evaluate(ONE, dataclasses.replace(PLAN, **changes))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (_with(1, finish_ms=2.75), "operator b runs from 0.0 to 2.75 ms but is merged with a, which runs from 0.0"),
        (_with(0, finish_ms=2.0), "operators a, b last 2.0 ms merged but cost 2.5 ms"),
        (_with(2, start_ms=2.0, finish_ms=4.0), "operators a and d overlap on stream 0 of device 0"),
        (_with(2, start_ms=2.75, finish_ms=4.75), "starts at 2.75 ms, before its input from a is there at 3.0 ms"),
        (_with(1, devices=(0, 1), device=0), "merges[0]: found a, b, whose rows do not follow one another with the"),
        (_with(1, devices=(), device=1), "merges[0]: found a, b, whose rows do not follow one another with the"),
        (_with(2, stream=1), "placements[2].stream: found 1 on device 0; allowed: 0, as an operator takes"),
        (
            dataclasses.replace(VALID, merges=(("a", "d"),)),
            "merges[0]: found a, d, whose rows do not follow one another",
        ),
        (
            dataclasses.replace(VALID, merges=(("a", "b"), ("a", "b"))),
            "merges[1]: found a, b, of which an operator is in another merge",
        ),
    ],
)
def test_checker_refuses(broken: Schedule, message: str) -> None:
    """The checker finds each way to break a schedule with merged operators."""
    errors = violations(ONE, broken)
    assert any(message in line for line in errors), errors


def test_what_cannot_be_merged_is_refused() -> None:
    """Rows one after another on one device are merged only where one convolution can replace them."""
    rows = tuple(Placement(name, 0, 0, None, 0.0, 1.0) for name in "ad")
    graph = conv_graph({name: MEMBERS[name] for name in "ad"})
    made = Schedule("test", {}, 1, 1.0, 0.0, 0.0, rows, merges=(("a", "d"),))
    with pytest.raises(
        ScheduleError, match=r"merges\[0\]: found a, d, which cannot run as one operator; allowed: cons"
    ):
        made.plan(graph)
    streams = tuple(msgspec.structs.replace(row, stream=1) for row in VALID.placements)
    narrow = tuple(msgspec.structs.replace(row, devices=()) for row in streams)
    with pytest.raises(ScheduleError, match=r"found 1 on device 1; allowed: 0, as merged operators run on it"):
        Schedule("test", {}, 2, 5.0, 0.0, 0.0, narrow, merges=(("a", "b"),)).plan(ONE.graph)


def test_executing_where_devices_are_no_cores_is_refused() -> None:
    """Before anything starts, in one line."""
    assert ScheduleEntry.of("merged", VALID, ONE.graph, 2).plan == PLAN
    with pytest.raises(ScheduleError, match="merges: found 1 in a stream schedule; allowed where devices are no cores"):
        ScheduleEntry.of("merged", schedule_of(ONE, NARROW), ONE.graph, 2, cores_per_device=None)


def test_files_give_times_on_several_devices() -> None:
    """costs.json has them by number of devices; a problem for M devices has those up to M, with what M adds."""
    data = {
        "operators": {name: {"time_ms": 3.0} for name in "ab"},
        "transfers": [],
        "merges": [{"operators": ["b", "a"], "time_ms": 5.0, "wide_ms": {"4": 1.5, "2": 2.5}}],
        "corun": [{"devices": 2, "factor": 1.2}, {"devices": 4, "factor": 1.5}],
    }
    instance = Problem(conv_graph({name: MEMBERS[name] for name in "ab"}), Costs.from_json(data))
    assert instance.merge_wide_ms == {frozenset([0, 1]): {2: 2.5, 4: 1.5}}
    assert instance.on(2).merge_wide_ms == {frozenset([0, 1]): {2: 2.5}}
    assert instance.on(4).merge_wide_ms[frozenset([0, 1])] == pytest.approx({2: 2.5 * 1.5 / 1.2, 4: 1.5})
    assert instance.on(1).merge_wide_ms == {}
    data["merges"][0]["wide_ms"] = {"1": 2.0}  # type: ignore[index]
    with pytest.raises(ArtifactError, match=r'merges\[0\]\.wide_ms.*found the key "1"'):
        Costs.from_json(data)
