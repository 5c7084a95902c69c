"""Measured constants in the simulator, and how they are fitted."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest

from hios.errors import HiosError
from hios.formats.scenario import Overheads
from hios.formats.serving_result import PairFactor
from hios.serving.calibration import calibrated, drawn_jitter, with_interference
from hios.serving.pipeline import queue_rules
from hios.serving.policies import pipeline_of
from hios.serving.scenario import Scenario, draw
from hios.serving.simulate import simulate
from hios.serving.simulator import Simulation
from tests.serving.scenarios import constants, scenario, served


@pytest.fixture
def plain() -> Scenario:
    """Two models, one of two blocks, whose tasks meet often."""
    left, right = served("left", [[2.0, 2.0], [3.0]], 100.0), served("right", [[1.0, 4.0]], 60.0)
    return scenario(left, right, duration_s=4, seed=3)


@pytest.mark.parametrize("name", ["one-per-lane", "ios", "top", "top-open", "hios-lp", "pos-relaxed"])
def test_constants_of_one_change_nothing(name: str, plain: Scenario) -> None:
    """The same result as without."""
    result = simulate(calibrated(plain, constants()), name)
    expected = simulate(plain, name)
    assert (result.models, result.total) == (expected.models, expected.total)
    assert result.utilisation == pytest.approx(expected.utilisation)


def test_factors_and_overheads(plain: Scenario) -> None:
    """A run takes its model's factor of its time, and the measured overheads in place of those of the scenario."""
    measured = constants(models={"left": 2.0, "right": 1.5}, overheads=Overheads(run_ms=0.25))
    pipeline = pipeline_of(calibrated(plain, measured), "one-per-lane")
    assert [row[1][0] * 1e3 for row in pipeline.times_s] == pytest.approx([2 * 7.0 + 0.25, 1.5 * 5.0 + 0.25])
    planned = pipeline_of(plain, "hios-lp").times_s
    pipeline = pipeline_of(calibrated(plain, measured), "hios-lp")
    for own, before, factor in zip(pipeline.times_s, planned, (2.0, 1.5), strict=True):
        assert own[1][1] * 1e3 == pytest.approx(before[1][1] * 1e3 * factor + 0.25)


def test_threads_take_their_measured_times() -> None:
    """A task with a thread on every lane takes so many times as long as on one, whatever its costs on all lanes."""
    left = served("left", [[2.0, 2.0], [3.0]], 100.0, wide={"b0v0": {2: 1.1}})
    given = scenario(left, served("right", [[1.0, 4.0]], 60.0, wide={"b0v0": {2: 0.6}}), duration_s=4, seed=3)
    plain = pipeline_of(given, "threads")
    measured = constants(models={"left": 2.0, "right": 1.5}, overheads=Overheads(run_ms=0.25), threads={"left": 0.625})
    pipeline = pipeline_of(calibrated(given, measured), "threads")
    taken, before = ([row[1][1] * 1e3 for row in own.times_s] for own in (pipeline, plain))
    assert taken == pytest.approx([7.0 * 2.0 * 0.625 + 0.25, before[1] * 1.5 + 0.25])
    busy, busy_before = ([row[1][1] for row in own.busy_s] for own in (pipeline, plain))
    assert busy[0] / busy_before[0] == pytest.approx(7.0 * 2.0 * 0.625 / before[0])
    assert busy[1] / busy_before[1] == pytest.approx(1.5)


def test_hand_overs_of_schedules_over_the_lanes() -> None:
    """A value that the other lane waits for takes so much longer, whatever factor the model's operators have."""
    model = served("left", [[2.0, 2.0], [3.0]], 10.0)
    hand_over = Overheads(hand_over_ms=0.8)
    stated = scenario(model, lanes=2, overheads={"hand_over_ms": 0.8})
    slower = calibrated(scenario(model, lanes=2), constants(models={"left": 2.0}, overheads=hand_over))
    for given, factor in ((stated, 1.0), (slower, 2.0)):
        (row,) = pipeline_of(given, "hios-lp").times_s
        assert row[1][1] * 1e3 == pytest.approx(factor * (2.0 + 3.0) + 0.8)
    assert pipeline_of(slower, "hios-lp").plans == pipeline_of(scenario(model, lanes=2), "hios-lp").plans


def test_blocks_with_threads_share_the_time_of_tasks() -> None:
    """What a task takes with a thread on every lane is measured; its blocks share that as their costs say."""
    model = served("left", [[3.0], [5.0]], 10.0, wide={"b0v0": {2: 1.0}, "b1v0": {2: 3.0}})
    given = calibrated(
        scenario(model, lanes=2), constants(models={"left": 2.0}, overheads=Overheads(), threads={"left": 0.75})
    )
    pipeline = pipeline_of(given, "top-open")
    assert [own[1][1] for own in pipeline.times_s] == pytest.approx([0.003, 0.009])  # 0.75 of twice 8 ms


def test_runs_with_threads_have_an_overhead_of_their_own() -> None:
    """It is what a task takes longer block by block than simulated without it, shared by its runs; never negative."""
    pytest.importorskip("torch")
    from hios.serving.calibrate import threads_run_ms

    model = served("left", [[3.0], [5.0]], 10.0, wide={"b0v0": {2: 1.0}, "b1v0": {2: 3.0}})
    before = constants(models={"left": 2.0}, overheads=Overheads(run_ms=0.1), threads={"left": 0.75})
    given = calibrated(scenario(model, lanes=2), before)
    latency_ms = 1e3 * sum(own[1][1] for own in pipeline_of(given, "top-open").times_s)
    assert threads_run_ms(given, [latency_ms + 0.5]) == pytest.approx(0.25)
    assert threads_run_ms(given, [latency_ms - 0.5]) == 0.0
    after = constants(
        models={"left": 2.0}, overheads=Overheads(run_ms=0.1, threads_run_ms=0.25), threads={"left": 0.75}
    )
    pipeline = pipeline_of(calibrated(scenario(model, lanes=2), after), "top-open")
    assert 1e3 * sum(own[1][1] for own in pipeline.times_s) == pytest.approx(latency_ms + 0.5)


def test_stages_stay_those_of_the_plan(plain: Scenario) -> None:
    """A server plans without the constants, so the simulation of it does too."""
    measured = constants(overheads=Overheads(stage_ms=100.0, hand_over_ms=100.0))
    for name in ("ios", "top"):
        assert pipeline_of(calibrated(plain, measured), name).stages == pipeline_of(plain, name).stages


def test_pairs_slow_each_other_down(plain: Scenario) -> None:
    """A run that starts beside another takes as much longer as was measured of that pair, one that starts alone not."""
    pairs = (PairFactor("left", "right", 1.5), PairFactor("right", "left", 1.25))
    pipeline = with_interference(
        pipeline_of(measured := calibrated(plain, constants(corun=pairs)), "one-per-lane"), measured
    )
    assert pipeline.beside == ((1.0, 1.5), (1.25, 1.0))
    plain_s = [row[1][0] for row in pipeline.times_s]
    trace, queues = draw(measured), queue_rules(measured, [0.0, 0.0])
    runs = Simulation(pipeline, queues, trace, measured.duration_s, compiled=False).run().runs
    factors = {(run.combined, round((run.finish_s - run.start_s) / plain_s[run.combined], 9)) for run in runs}
    assert factors == {(0, 1.0), (0, 1.5), (1, 1.0), (1, 1.25)}


def test_repeats_have_jitter_of_their_own() -> None:
    """Where arrivals are the same in every repeat, what varies between runs still shows in the intervals."""
    models = (served("left", [[10.0]], 7.0), served("right", [[14.0]], 11.0))
    given = scenario(*models, duration_s=5.0, arrivals="periodic", repeats=6)
    total = simulate(calibrated(given, constants(jitter=(0.5, 1.0, 3.0))), "one-per-lane").total
    assert total.p50_interval_ms is not None
    low, high = total.p50_interval_ms
    assert low < high


def test_jitter_is_drawn_from_its_quantiles() -> None:
    """Same seed, same draws; between the quantiles in proportion."""
    drawn = drawn_jitter((0.8, 1.0, 1.4), 1)
    assert drawn == drawn_jitter((0.8, 1.0, 1.4), 1) != drawn_jitter((0.8, 1.0, 1.4), 2)
    assert 0.8 <= min(drawn) < max(drawn) <= 1.4
    assert statistics.fmean(drawn) == pytest.approx((0.9 + 1.2) / 2, rel=0.02)
    assert statistics.median(drawn) == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": {"left": 1.0}}, "models: found left, not right; calibrate with scenario"),
        ({"lanes": 3}, "lanes: found 3; allowed: 2, as in scenario"),
        ({"jitter": (1.0, 0.9)}, "jitter: values ascend"),
        ({"corun": (PairFactor("other", "left", 1.5),)}, "corun: found other; allowed: left, right"),
        ({"corun": (PairFactor("left", "other", 1.5),)}, "corun: found other; allowed: left, right"),
        ({"threads": {"other": 1.0}}, "threads: found other; allowed: left, right"),
    ],
)
def test_constants_of_something_else_are_refused(changes: dict[str, Any], message: str, plain: Scenario) -> None:
    """Other models, other lanes, also within the constants."""
    with pytest.raises((HiosError, ValueError), match=message):
        calibrated(plain, constants(**changes))


def test_overheads_are_fitted() -> None:
    """Constants that made the times are found again; one that would be negative is 0."""
    pytest.importorskip("torch")
    from hios.serving.calibrate import fitted

    rows = [(1.0, 1.0, 1.0, 0.0), (1.0, 5.0, 9.0, 3.0), (1.0, 1.0, 12.0, 6.0), (1.0, 3.0, 7.0, 1.0), (1, 2, 2, 2)]
    true = np.array([0.2, 0.05, 0.01, 0.1])
    assert fitted([(row, float(np.dot(row, true))) for row in rows]) == pytest.approx(list(true))
    assert fitted([((1.0, 0.0), -1.0), ((0.0, 1.0), 2.0)]) == [0.0, 2.0]


def test_jitter_is_relative_to_the_median_of_a_group() -> None:
    """Short and long tasks that vary as much have the same jitter, and one slow run changes no other quantile."""
    pytest.importorskip("torch")
    from hios.serving.calibrate import jitter_of

    short, long = [1.0, 1.1, 0.9], [10.0, 11.0, 9.0]
    assert jitter_of([short, long]) == pytest.approx(jitter_of([short, short]))
    disturbed = jitter_of([short, [*long, 10.0, 50.0]])
    assert list(disturbed) == sorted(disturbed)
    assert (disturbed[0], disturbed[50], disturbed[-1]) == pytest.approx((0.9, 1.0, 5.0))
    assert statistics.median(drawn_jitter(disturbed, 0)) == pytest.approx(1.0, rel=0.02)
