"""What the policies make of scenarios: times of runs, the work bound, and what changes nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hios.core.problem import Stage
from hios.core.schedule import StagedPlan, StreamPlan
from hios.errors import HiosError
from hios.formats.serving_result import ResultFile
from hios.serving.calibration import calibrated
from hios.serving.objective import worst_share
from hios.serving.policies import (
    AUTO,
    LAUNCHERS,
    POLICIES,
    combined_blocks,
    launched,
    launcher_intervals_s,
    pipeline_of,
)
from hios.serving.scenario import Scenario, ServedModel
from hios.serving.simulate import choose, simulate
from hios.serving.stage_times import bound_per_s, restricted, side_by_side
from hios.serving.strict_rounds import strict_rounds_per_s
from tests.serving.scenarios import constants, scenario, served, unaccounted

#: Times of operators on two lanes, in milliseconds.
_ON_TWO = {"b0v0": 1.25, "b1v0": 2.0}


def _pair(factor: float = 1.0, load: float = 1.0) -> tuple[ServedModel, ServedModel]:
    """Two models: one with two branches of 2 ms and then 3 ms, one a chain of 1 ms, 1 ms and 1 ms."""
    left = served(
        "left",
        [[2.0 * factor, 2.0 * factor], [3.0 * factor]],
        100.0 / factor * load,
        wide={operator: {2: time_ms * factor} for operator, time_ms in _ON_TWO.items()},
    )
    right = served("right", [[factor], [factor], [factor]], 200.0 / factor * load, wide={"b0v0": {2: 0.75 * factor}})
    return left, right


def _scenario(factor: float = 1.0, load: float = 1.0, **settings: Any) -> Scenario:
    return scenario(
        *_pair(factor, load), **{"lanes": 2, "duration_s": 2.0 * factor, "arrivals": "periodic", **settings}
    )


@pytest.mark.parametrize(
    ("name", "left_ms", "right_ms"),
    [
        ("sequential", 7.0, 3.0),
        ("one-per-lane", 7.0, 3.0),
        ("ios", 5.0, 3.0),
        ("nimble", 5.0, 3.0),
        ("opara", 5.0, 3.0),
        ("hios-lp", 5.0, 3.0),
        ("threads", 1.25 + 2.0 + 2.0, 2.75),
        ("top", 5.0, 3.0),
        ("top-open", 2.0 + 2.0, 2.75),  # groups beside each other, then threads inside operators
        ("shortest-first", 2.0 + 2.0, 2.75),
        ("pos-relaxed", 5.0, 3.0),
        ("pos-relaxed-per-lane", 7.0, 3.0),
    ],
)
def test_a_task_alone(name: str, left_ms: float, right_ms: float) -> None:
    """A task that meets an idle device takes the sum of its operators, less what runs side by side."""
    for number, expected in enumerate((left_ms, right_ms)):
        given = scenario(*_pair(), lanes=2, duration_s=1.0, rows=[(0.0, number)], arrivals="one.csv")
        row = list(simulate(given, name).models.values())[number]
        assert (row.offered, row.completed) == (1, 1)
        assert row.mean_ms == pytest.approx(expected)


def test_strict_round_waits_for_all() -> None:
    """A strict round begins with the last of its tasks; both models then share the lanes."""
    given = scenario(*_pair(), lanes=2, duration_s=1.0, rows=[(0.0, 0), (0.010, 1)], arrivals="two.csv")
    result = simulate(given, "pos-strict")
    # Stages: two branches of 2 ms and one of 1 ms on two lanes: 3 ms; then 3 ms beside 1 ms; then 1 ms alone.
    assert result.models["right"].mean_ms == pytest.approx(3.0 + 3.0 + 1.0)
    assert result.models["left"].mean_ms == pytest.approx(17.0)


@pytest.mark.parametrize("kind", ["strict", "relaxed"])
def test_every_lane_has_rounds_of_its_own(kind: str) -> None:
    """Of two rounds at once, each takes one lane for both its tasks: 7 ms and 3 ms; over all lanes they follow."""
    rows = [(0.0, 0), (0.0, 1), (0.0, 0), (0.0, 1)]
    given = scenario(*_pair(), lanes=2, duration_s=1.0, rows=rows, arrivals="two.csv")
    alone, over = (simulate(given, f"pos-{kind}{ending}").total for ending in ("-per-lane", ""))
    assert (alone.completed, alone.mean_ms) == (4, pytest.approx(10.0))
    assert (over.completed, over.mean_ms) == (4, pytest.approx((7.0 + 14.0) / 2))


def test_on_one_lane_all_policies_of_whole_tasks_are_the_same() -> None:
    """So with one task per lane there is one baseline, one-per-lane, whatever the algorithm."""
    given = scenario(*_pair(), lanes=1, duration_s=2.0)
    whole = ("sequential", "one-per-lane", "threads", "ios", "nimble", "opara", "hios-lp")
    results = [simulate(given, name).total for name in whole]
    assert results[0].completed > 0
    assert results == [results[0]] * len(whole)


def test_strict_rounds_cannot_pass_the_smallest_rate() -> None:
    """At 30, 60 and 120 tasks a second they complete 90 of 210, however fast the device is."""
    models = [served(name, [[0.01]], rate) for name, rate in (("a", 30.0), ("b", 60.0), ("c", 120.0))]
    given = scenario(*models, lanes=2, duration_s=10.0, arrivals="periodic")
    strict, relaxed = simulate(given, "pos-strict"), simulate(given, "pos-relaxed")
    assert strict.total.completed / given.duration_s == pytest.approx(90.0, rel=0.01)
    assert strict.total.completed / given.duration_s <= strict_rounds_per_s([model.rate for model in given.models])
    assert relaxed.total.completed / given.duration_s == pytest.approx(210.0, rel=0.01)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_no_policy_passes_the_work_bound(name: str, launcher: str) -> None:
    """In overload, no policy completes more than the linear program allows, and every task is accounted for."""
    given = _scenario(load=4.0, arrivals="poisson")
    result = simulate(given, name, launcher=launcher)
    assert unaccounted(result.total) == 0
    assert result.total.completed > 0
    assert result.total.completed / given.duration_s <= result.bound_per_s * (1 + 1e-9)
    assert result.work_share <= result.utilisation + 1e-9
    assert bound_per_s(given, [1e9, 1e9]) >= result.bound_per_s


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_no_policy_passes_the_work_bound_of_a_machine(name: str, factor: float) -> None:
    """On a machine that is faster or slower than the costs, the bound counts the times of that machine."""
    models, threads = (dict.fromkeys(("left", "right"), value) for value in (factor, 0.55))
    measured = constants(models=models, threads=threads, jitter=(0.9, 1.0, 1.05))
    plain = _scenario(load=4.0, arrivals="poisson")
    result = simulate(calibrated(plain, measured), name)
    assert result.total.completed / plain.duration_s <= result.bound_per_s * (1 + 1e-9)
    assert result.work_share <= result.utilisation + 1e-9


@pytest.mark.parametrize("name", [*POLICIES, "auto"])
def test_scaling_all_times_scales_everything(name: str) -> None:
    """Everything twice as slow, half as often: latencies double, shares stay."""
    plain, slow = simulate(_scenario(), name), simulate(_scenario(factor=2.0), name)
    assert slow.total.mean_ms == pytest.approx(2 * (plain.total.mean_ms or 0))
    assert slow.total.p99_ms == pytest.approx(2 * (plain.total.p99_ms or 0))
    assert slow.total.completed == plain.total.completed
    assert slow.utilisation == pytest.approx(plain.utilisation)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*POLICIES, "auto"])
def test_order_of_models_means_nothing(name: str) -> None:
    """Models the other way round: the same results for each."""
    left, right = _pair(load=1.2)
    settings: dict[str, Any] = {"lanes": 2, "duration_s": 3.0, "top": {"combined": ({"left": (0,), "right": (1, 2)},)}}
    one, other = (simulate(scenario(*models, **settings), name) for models in ((left, right), (right, left)))
    assert one.models["left"] == other.models["left"]
    assert one.models["right"] == other.models["right"]


def test_one_task_per_lane_is_the_ceiling_in_overload() -> None:
    """With all lanes busy, none completes more work than one task per lane; top-open comes within 5 %."""
    given = _scenario(load=3.0, arrivals="poisson")
    share = {
        name: simulate(given, name).work_share for name in ("one-per-lane", "sequential", "ios", "top", "top-open")
    }
    assert max(share.values()) <= share["one-per-lane"] + 0.01
    assert share["top-open"] >= 0.95 * share["one-per-lane"]
    assert share["sequential"] == pytest.approx(0.5, abs=0.01)


def test_a_task_alone_may_use_all_lanes() -> None:
    """Far below capacity, top-open is faster than one task per lane, as a task may use both lanes."""
    given = _scenario(load=0.2, arrivals="poisson")
    alone, shared = simulate(given, "one-per-lane").models["left"], simulate(given, "top-open").models["left"]
    assert (shared.p50_ms or 0) < 0.9 * (alone.p50_ms or 0)


def test_a_run_takes_the_lanes_that_shorten_it() -> None:
    """A block without branches leaves the other lane to the next task."""
    given = scenario(served("left", [[3.0], [2.0, 2.0], [1.0, 9.0]], 10.0), lanes=2)
    pipeline = pipeline_of(given, "top-open")
    assert [pipeline.most_lanes(number, 1) for number in range(3)] == [1, 2, 1]
    assert [pipeline_of(given, "top").most_lanes(number, 1) for number in range(2)] == [2, 2]


def test_runs_on_all_lanes_have_threads_where_costs_say_so() -> None:
    """Not where groups beside each other are a fifth faster, never if it is turned off, and never in top."""
    wide = {"b0v0": {2: 1.7}, "b1v0": {2: 1.5}, "b1v1": {2: 1.5}}
    model = served("left", [[3.0], [2.0, 2.0], [1.0]], 10.0, wide=wide)
    pipeline = pipeline_of(scenario(model, lanes=2), "top-open")
    assert [own[1] for own in pipeline.threaded] == [True, False, True]
    assert [own[1] for own in pipeline.times_s] == [
        pytest.approx(times) for times in [(0.003, 0.0017), (0.004, 0.002), (0.001, 0.001)]
    ]
    assert [own[1][1] for own in pipeline.busy_s] == pytest.approx([0.0034, 0.004, 0.001])
    assert pipeline.has_threads
    for name, top in (("top-open", {"threads": False}), ("top", {})):
        assert not pipeline_of(scenario(model, lanes=2, top=top), name).has_threads
    assert not pipeline_of(scenario(model, served("right", [[1.0]], 1.0), lanes=2), "top-open").has_threads


def test_the_shortest_task_goes_first() -> None:
    """A task with less time left overtakes between two blocks; one that has waited too long is not overtaken."""
    models = served("long", [[10.0]] * 3, 1.0), served("short", [[4.0]], 1.0)
    rows = [(0.0, 0), (0.001, 1), (0.002, 1), (0.003, 1)]
    given = scenario(*models, lanes=1, duration_s=1.0, rows=rows, arrivals="rows.csv")
    shortest, oldest = (simulate(given, name).models for name in ("shortest-first", "top-open"))
    assert shortest["short"].mean_ms == pytest.approx((13 + 16 + 19) / 3)
    assert shortest["long"].mean_ms == pytest.approx(30 + 3 * 4)
    assert oldest["long"].mean_ms == pytest.approx(30)
    impatient = scenario(*models, lanes=1, duration_s=1.0, rows=rows, arrivals="rows.csv", top={"max_wait_ms": 3.0})
    assert simulate(impatient, "shortest-first").models["long"].mean_ms == pytest.approx(30 + 2 * 4)


def test_few_tasks_take_all_lanes_one_after_another() -> None:
    """Up to three, shortest first; more of them run beside each other, each on a lane."""
    models = [served(f"m{number}", [[6.0 + number]], 1.0, wide={"b0v0": {2: 4.0}}) for number in range(4)]
    for count, first in ((3, 4.0), (4, 6.0)):
        given = scenario(*models[:count], lanes=2, duration_s=1.0, rows=[(0.0, n) for n in range(count)], arrivals="r")
        means = [row.mean_ms for row in simulate(given, "shortest-first").models.values()]
        assert means[0] == pytest.approx(first)
        if count == 3:
            assert means == pytest.approx([4.0, 8.0, 12.0])


def test_auto_takes_the_best_on_other_traces() -> None:
    """Auto names what it compared, best first, and its goodput is that of its choice."""
    given = scenario(
        *(served(m.label, [[2.0, 2.0], [3.0]], 150.0, slo_ms=20.0) for m in _pair()), lanes=2, duration_s=5.0
    )
    result = simulate(given, "auto")
    ranked = [entry for entry in result.candidates if entry.left_out is None]
    assert result.chosen == ranked[0].policy
    assert worst_share(ranked[0]) >= max(map(worst_share, ranked)) * 0.99
    assert [entry.policy for entry in result.candidates if entry.left_out] == ["threads"]  # no costs on two lanes
    again: ResultFile = simulate(given, result.chosen or "")
    assert again.total == result.total


def test_auto_waits_for_no_task_that_may_never_come() -> None:
    """Strict rounds are not chosen, though they equal relaxed ones where every model has a task: clients need not."""
    models = (
        served("a", [[10.0, 6.0, 6.0]], 10.0, slo_ms=100.0, deadline_ms=50.0),
        served("b", [[8.0]], 10.0, slo_ms=100.0, deadline_ms=50.0),
    )
    given = scenario(*models, lanes=2, duration_s=2.0, arrivals="periodic")
    choice = choose(given, "auto", "auto")
    assert "strict" not in choice.policy
    assert not any("strict" in entry.policy for entry in choice.candidates)


def test_combined_blocks_are_a_partition() -> None:
    """Stated combined blocks come first, every other block is one of its own."""
    given = _scenario(top={"combined": ({"right": (2, 0), "left": (1,)},)})
    assert combined_blocks(given) == [((0, 1), (1, 0), (1, 2)), ((0, 0),), ((1, 1),)]


def test_neighbors_are_combined_where_nothing_is_stated() -> None:
    """Without stated combined blocks, top has pairs of blocks of each model that follow each other; top-open none."""
    alone = [((0, 0),), ((0, 1),), ((1, 0),), ((1, 1),), ((1, 2),)]
    pairs = [((0, 0), (0, 1)), ((1, 0), (1, 1)), ((1, 2),)]
    combined = {name: list(pipeline_of(_scenario(), name).combined) for name in ("top", "top-open")}
    assert combined == {"top": pairs, "top-open": alone}
    threes = _scenario(top={"most": 3})
    assert list(pipeline_of(threes, "top-open").combined) == [((0, 0), (0, 1)), ((1, 0), (1, 1), (1, 2))]
    assert list(pipeline_of(_scenario(top={"most": 1}), "top").combined) == alone


def test_neighbors_pipeline_the_tasks_of_a_model() -> None:
    """On two lanes, pairs of blocks without branches let top do two tasks at once, as nothing else of it could."""
    chain = served("chain", [[2.0], [2.0], [2.0], [2.0]], 400.0)
    done = {
        most: simulate(scenario(chain, lanes=2, duration_s=2.0, top={"most": most}), "top").total.completed
        for most in (1, 2)
    }
    assert done[1] == pytest.approx(2.0 / 0.008, abs=2)
    assert done[2] == pytest.approx(2 * done[1], rel=0.03)


def test_stages_without_absent_sub_blocks() -> None:
    """The stages of a combined block are those of its sub-blocks side by side; absent ones leave no gap (D5)."""
    stages = side_by_side([[((0,), (1,)), ((2,),)], [((5,),), ((6,),), ((7,),)]], 8)
    assert stages == (((0, (0,)), (0, (1,)), (1, (5,))), ((0, (2,)), (1, (6,))), ((1, (7,)),))
    assert restricted(stages, 1) == [((0, (0,)), (0, (1,))), ((0, (2,)),)]
    assert restricted(stages, 3) == list(stages)


def test_combined_stages_keep_the_limit_of_groups() -> None:
    """Stages of several parts have at most s groups; every part's stages stay whole and in order, one a stage."""
    parts: list[list[Stage]] = [[((0,), (1,)), ((2,),)], [((5,),), ((6,),), ((7,),)], [((9,), (10,), (11,))]]
    for s in range(1, 9):
        stages = side_by_side(parts, s)
        assert all(len(stage) <= s or len({place for place, _ in stage}) == 1 for stage in stages)
        for place, own in enumerate(parts):
            kept = [tuple(group for part, group in stage if part == place) for stage in stages]
            assert [stage for stage in kept if stage] == own
    assert [len(stage) for stage in side_by_side(parts, 3)] == [3, 2, 1, 3]
    assert [len(stage) for stage in side_by_side(parts, 8)] == [6, 2, 1]


@pytest.mark.parametrize("name", ["top", "top-open", "pos-relaxed"])
@pytest.mark.parametrize("stages", ["ios", "gpg"])
def test_policies_keep_the_limit_of_groups(name: str, stages: str) -> None:
    """No stage of a combined block or of a round has more than s groups (TOP, section VI-B: 8)."""
    models = [served(label, [[1.0] * 8, [1.0] * 3], 10.0) for label in "abcd"]
    given = scenario(*models, lanes=2, top={"combined": [{label: [0] for label in "abcd"}], "stages": stages})
    groups = [len(stage) for own in pipeline_of(given, name).stages for stage in own]
    assert max(groups) <= given.file.top.s == 8


def test_corun_and_overheads_count() -> None:
    """Operators take the factor of the lanes that work at once; tasks, runs and stages what the scenario states."""
    model = served("a", [[2.0, 2.0]], 1.0, corun={2: 1.5})
    over = {"task_ms": 0.1, "run_ms": 0.2, "stage_ms": 0.4, "hand_over_ms": 0.8}
    one: dict[str, Any] = {"rows": [(0.0, 0)], "arrivals": "one.csv", "duration_s": 1.0, "lanes": 2, "overheads": over}
    assert simulate(scenario(model, **one), "sequential").total.mean_ms == pytest.approx(4.0 + 0.7)
    assert simulate(scenario(model, **one), "one-per-lane").total.mean_ms == pytest.approx(6.0 + 0.7)
    assert simulate(scenario(model, **one), "ios").total.mean_ms == pytest.approx(3.0 + 1.5)
    assert simulate(scenario(model, **one), "hios-lp").total.mean_ms == pytest.approx(3.0 + 0.3)


def test_gpu_takes_the_times_of_costs() -> None:
    """On a GPU stages take what the contention model says, and policies that need lanes are refused."""
    given = scenario(*_pair(), lanes=1, gpu=True, rows=[(0.0, 0)], arrivals="one.csv", duration_s=1.0)
    assert simulate(given, "ios").models["left"].mean_ms == pytest.approx(7.0)  # alpha 1: nothing gains
    assert simulate(given, "pos-relaxed").models["left"].mean_ms == pytest.approx(7.0)
    with pytest.raises(
        HiosError, match="policy one-per-lane runs on lanes, and the costs are those of a GPU; allowed: "
    ):
        simulate(given, "one-per-lane")


def test_launchers() -> None:
    """Open has no intervals, fixed those of the scenario or the rates, water-filling those of the work bound."""
    given = scenario(served("a", [[10.0]], 10.0, interval_s=0.5), served("b", [[10.0]], 40.0), lanes=1)
    assert launcher_intervals_s(given, "open") == launcher_intervals_s(given, "deadline") == [0.0, 0.0]
    assert launcher_intervals_s(given, "fixed") == [0.5, 0.025]
    assert launcher_intervals_s(given, "water-filling") == pytest.approx([0.05, 0.0125])


@pytest.mark.parametrize("rate", [30.0, 60.0, 100.0, 120.0, 49.0])
def test_periodic_tasks_meet_their_ticks(rate: float) -> None:
    """At the interval of its rate a launcher takes every task as it arrives: no tick is rounded to before its task."""
    given = scenario(served("a", [[2.0]], rate), arrivals="periodic", duration_s=10.0, lanes=1)
    fixed = simulate(given, "sequential", launcher="fixed").total
    assert fixed.p99_ms == pytest.approx(2.0)
    assert fixed.completed == simulate(given, "sequential", launcher="open").total.completed


@pytest.mark.parametrize(
    ("name", "limit"),
    [("sequential", 1), ("one-per-lane", 2), ("top-open", 2), ("pos-strict", 2), ("top", 2), ("shortest-first", 4)],
)
def test_the_launcher_deadline_limits_tasks_in_flight(name: str, limit: int) -> None:
    """As many tasks as runs can take at once; a task is due at its deadline, else at its SLO, else with the others."""
    given = scenario(
        served("a", [[10.0], [5.0]], 10.0, deadline_ms=40.0, slo_ms=90.0), served("b", [[10.0]], 40.0), lanes=2
    )
    pipeline, rules = launched(given, pipeline_of(given, name), "deadline")
    assert pipeline.in_flight == limit
    assert [own.due_s for own in rules] == [0.04, 0.04]
    assert [own.interval_s for own in rules] == [0.0, 0.0]
    assert launched(given, pipeline_of(given, name), "open")[0].in_flight is None


def _overloaded(**settings: Any) -> Scenario:
    models = [
        served(name, [[5.0]] * 4, rate, slo_ms=60.0, deadline_ms=40.0) for name, rate in (("a", 60.0), ("b", 90.0))
    ]
    return scenario(*models, lanes=2, arrivals="poisson", **settings)


def test_the_launcher_deadline_keeps_overload_in_time() -> None:
    """In overload more tasks are within their SLO than with the launcher open, which holds them where none expires."""
    given = _overloaded(duration_s=20.0)
    for name in ("top", "top-open", "one-per-lane"):
        late, in_time = (simulate(given, name, launcher=launcher) for launcher in ("open", "deadline"))
        assert in_time.total.goodput > late.total.goodput


def test_auto_chooses_the_launcher_too() -> None:
    """In overload one that holds tasks back; the result is that of the policy under it, on the same traces."""
    given = _overloaded(duration_s=10.0, launcher=AUTO)
    result = simulate(given, AUTO)
    compared = [(entry.policy, entry.launcher) for entry in result.candidates if entry.left_out is None]
    assert {launcher for _, launcher in compared} == set(LAUNCHERS)
    assert len(set(compared)) == len(compared) == len(LAUNCHERS) * len({name for name, _ in compared})
    assert (result.chosen, result.launcher) == compared[0]
    assert result.launcher in ("deadline", "water-filling")
    assert simulate(given, result.chosen or "", launcher=result.launcher).total == result.total
    assert simulate(given, result.chosen or "").launcher == result.launcher


def test_unknown_policies_are_refused() -> None:
    """The message lists what there is."""
    with pytest.raises(
        HiosError, match=r"policy: found best; allowed: sequential, .*, top-open, shortest-first, learned, .*, auto"
    ):
        pipeline_of(_scenario(), "best")


def test_plans_of_a_gpu_number_operators_as_they_run() -> None:
    """Stages, streams and merges are those of the plan."""
    pytest.importorskip("torch")
    from hios.serving.run_programs import joined_order

    given, before, after = scenario(served("one", [[1.0] * 3, [1.0]], 1.0)), frozenset({0, 1}), frozenset({1, 2})
    staged = StagedPlan(((((2,),), ((0,), (1,)), ((3,),)),), frozenset({before}))
    streams = StreamPlan((((2, 0, 1), (3,)),), (2, 0, 1, 3), merges=frozenset({before}))
    for plan, expected in (
        (staged, StagedPlan(((((0,),), ((1,), (2,)), ((3,),)),), frozenset({after}))),
        (streams, StreamPlan((((0, 1, 2), (3,)),), (0, 1, 2, 3), merges=frozenset({after}))),
    ):
        pipeline: Any = SimpleNamespace(combined=(((0, 0),),), plans=(plan,))
        order = [(0, operator) for operator in ("b0v2", "b0v0", "b0v1", "b1v0")]
        assert joined_order(given, pipeline, 0, 1) == (order, expected)
