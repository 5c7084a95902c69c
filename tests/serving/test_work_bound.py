"""What no policy can pass, and rates that share a device."""

from __future__ import annotations

import dataclasses
import random

import pytest

from hios import Problem
from hios.core.costs import CostOverheads, Demand
from hios.serving.simulate import simulate
from hios.serving.stage_times import _gpu_stage_ms, bound_per_s, even_intervals_s, least_work_s
from hios.serving.strict_rounds import rounds_notes
from tests.problems import problem
from tests.serving.scenarios import scenario, served


def test_least_work_takes_the_better_width() -> None:
    """An operator counts t(v), or k t(v, k) where that is less."""
    model = served("a", [[4.0], [6.0]], 1.0, wide={"b0v0": {2: 3.0}, "b1v0": {2: 2.0}})
    assert least_work_s(model) == pytest.approx((4.0 + 4.0) / 1e3)


def test_bound_is_the_linear_program() -> None:
    """The greedy solution is as good as the best of many feasible points, and feasible itself."""
    draw = random.Random(0)
    for _ in range(20):
        models = [served(name, [[draw.uniform(1, 9)]], draw.uniform(10, 400)) for name in "abc"]
        given = scenario(*models, lanes=2)
        work, rates = [least_work_s(model) for model in models], [model.rate for model in models]
        bound = bound_per_s(given, rates)
        best = 0.0
        for _ in range(2000):
            point = [draw.random() * rate for rate in rates]
            scale = min(1.0, 2 / sum(x * w for x, w in zip(point, work, strict=True)))
            best = max(best, sum(point) * scale)
        assert best <= bound * (1 + 1e-12)
        assert bound <= sum(rates) + 1e-9


def test_bound_below_capacity_is_what_is_offered() -> None:
    """Where all fits, the bound is the sum of the rates."""
    given = scenario(served("a", [[1.0]], 100.0), served("b", [[2.0]], 100.0), lanes=1)
    assert bound_per_s(given, [100.0, 100.0]) == pytest.approx(200.0)
    assert bound_per_s(given, [1000.0, 100.0]) == pytest.approx(1000.0)
    assert bound_per_s(given, [500.0, 500.0]) == pytest.approx(750.0)


def test_water_is_filled_up() -> None:
    """Models that ask for less than the level get all, the others the level, and the lanes are full."""
    models = [served("a", [[10.0]], 10.0), served("b", [[10.0]], 200.0), served("c", [[10.0]], 200.0)]
    given = scenario(*models, lanes=2)
    intervals = even_intervals_s(given, [0.01, 0.01, 0.01])
    assert [0.01 / interval for interval in intervals] == pytest.approx([0.1, 0.95, 0.95])


def test_water_has_no_ticks_that_nobody_could_count() -> None:
    """Intervals that are shorter than those of any launcher are none: tasks leave as soon as there is room."""
    given = scenario(served("a", [[1e-6]], 1e6), served("b", [[10.0]], 10.0), lanes=2)
    intervals = even_intervals_s(given, [least_work_s(model) for model in given.models])
    # They ask for 0.001 and 0.1 of two lanes, which are divided in proportion.
    assert intervals == [0.0, pytest.approx(0.101 / 2 / 10)]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_no_policy_passes_the_bound(alpha: float) -> None:
    """HIOS-LP neither, whose groups a lane runs one after another, whatever the contention model of its costs says."""
    model = served("a", [[10.0, 10.0]], 200.0)
    costs = dataclasses.replace(
        model.costs,
        alpha=alpha,
        utilization={"b0v0": 0.5, "b0v1": 0.5},
        stages={frozenset({("b0v0",), ("b0v1",)}): 11.0},
    )
    model = dataclasses.replace(model, costs=costs, problem=Problem(model.problem.graph, costs))
    given = scenario(model, lanes=1, duration_s=10.0, arrivals="periodic")
    result = simulate(given, "hios-lp")
    assert result.done_per_s <= result.bound_per_s == pytest.approx(50.0)


def test_water_below_capacity_leaves_room() -> None:
    """If all models get what they request, the rest of the device is divided in proportion."""
    given = scenario(served("a", [[10.0]], 10.0), served("b", [[10.0]], 30.0), lanes=1)
    assert [1 / interval for interval in even_intervals_s(given, [0.01, 0.01])] == pytest.approx([25.0, 75.0])


def test_what_the_limit_of_strict_rounds_explains() -> None:
    """Of a policy that completes all 210 tasks, 133.3 % over 90: all of the margin over rounds that are never late."""
    models = [served(name, [[0.01]], rate) for name, rate in (("a", 30.0), ("b", 60.0), ("c", 120.0))]
    given = scenario(*models, lanes=2, duration_s=10.0, arrivals="periodic")
    results = {name: simulate(given, name) for name in ("pos-strict", "sequential")}
    limit, margin, *beside = rounds_notes(results)
    assert limit == "strict rounds cannot pass 90 of 210 tasks/s: 3 models x the smallest rate"
    # At the end of the trace a round or two are still unanswered.
    served_per_s = results["pos-strict"].done_per_s
    assert 88 < served_per_s <= 90
    most = results["sequential"].done_per_s
    assert margin == (
        f"sequential completes {most:.4g} tasks/s, {100 * (most / served_per_s - 1):+.1f} % over pos-strict; that "
        f"limit alone makes {100 * (most / 90 - 1):+.1f} %"
    )
    assert beside[0].startswith("sequential: a 30, b 60, c 120 tasks/s, Jain's index 1.000, variance ")
    assert beside[1].startswith("pos-strict: a ")
    assert len(beside) == 2
    assert rounds_notes({"pos-strict": results["pos-strict"]}) == [limit]
    assert rounds_notes({"sequential": results["sequential"]}) == []
    alone = scenario(models[0], duration_s=1.0)
    assert rounds_notes({"pos-strict": simulate(alone, "pos-strict")}) == []


def test_stages_of_several_models_share_resources() -> None:
    """Two memory-bound operators take as long in a stage of two models as in a stage of one, with its barrier."""
    demand = dict.fromkeys("ab", Demand(slots=0.3, compute=0.1, memory=1.0))
    overheads = CostOverheads(stage_ms=0.5)
    one = problem({"a": 2.0, "b": 2.0}, {}, contention="resources", demand=demand, overheads=overheads)
    other = problem({"a": 2.0, "b": 2.0}, {}, contention="resources", demand=demand, overheads=overheads)
    assert one.stage_ms(((0,), (1,))) == pytest.approx(4.5)
    assert _gpu_stage_ms([(0, one, (0,)), (1, other, (1,))]) == pytest.approx(4.5)
