"""The simulator does what the reference does, event by event, as it is and compiled."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from hios.serving.scenario import draw
from hios.serving.simulator import Simulation
from tests.serving.reference_simulator import ReferenceSimulation
from tests.serving.scenarios import OPEN, random_case, scenario, served, server


def _same(*case: Any) -> None:
    expected, plain = ReferenceSimulation(*case).run(), Simulation(*case, compiled=False).run()
    actual = Simulation(*case, compiled=True).run()
    assert actual == plain
    assert actual.runs == expected.runs
    assert actual.state == expected.state
    assert actual.finish_s == expected.finish_s
    assert actual.launched_s == expected.launched_s
    assert actual.promoted == expected.promoted
    for own, theirs in ((actual.queued_s, expected.queued_s), (actual.present_s, expected.present_s)):
        assert own == pytest.approx(theirs)
    assert actual.variance_s == pytest.approx(expected.variance_s)


@pytest.mark.parametrize("seed", range(60))
def test_same_as_the_reference(seed: int) -> None:
    """Every run with its times, and what becomes of every task and when, to the last bit."""
    _same(*random_case(seed))


@pytest.mark.parametrize("seed", range(100, 120))
def test_same_as_the_reference_when_calibrated(seed: int) -> None:
    """The same where runs slow each other down and times differ from run to run."""
    draw = random.Random(seed)
    pipeline, *rest = random_case(seed)
    count = range(len(pipeline.combined))
    beside = tuple(tuple(draw.choice([1.0, 1.1, 1 + draw.random()]) for _ in count) for _ in count)
    jitter = tuple(draw.uniform(0.7, 1.6) for _ in range(7))
    _same(dataclasses.replace(pipeline, beside=beside, jitter=jitter), *rest)


@pytest.mark.slow
def test_same_as_the_reference_in_a_thousand_cases() -> None:
    """The same on a thousand further pipelines."""
    for seed in range(1000, 2000):
        _same(*random_case(seed))


def test_cases_differ() -> None:
    """The cases cover drops, expiries, promotions, and partial and overlapping runs."""
    records = [(case := random_case(seed), ReferenceSimulation(*case).run()) for seed in range(60)]
    for state in range(1, 6):
        assert sum(state in record.state for _, record in records) >= 10
    assert sum(record.promoted > 0 for _, record in records) >= 5
    assert sum(len({run.present for run in record.runs}) > 1 for _, record in records) >= 20
    overlapping = [
        any(after.start_s < before.finish_s for before, after in zip(record.runs, record.runs[1:], strict=False))
        for _, record in records
    ]
    assert sum(overlapping) >= 10


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_random_arrivals_wait_as_theory_says(load: float) -> None:
    """M/D/1 with a million arrivals: the mean wait is rho s / (2 (1 - rho)) within 2 %."""
    given = scenario(served("one", [[1.0]], load * 1000), duration_s=1000 / load, seed=1)
    tasks = draw(given)
    assert len(tasks) == pytest.approx(1e6, rel=0.01)
    simulation = Simulation(server(0.001), [OPEN], tasks, given.duration_s, compiled=True)
    simulation.run_to(given.duration_s)
    state = simulation.state
    done = state.task_state == 3
    times = (state.task_finish - tasks.times_s)[done]
    assert float(times.mean()) * 1e3 - 1.0 == pytest.approx(load / (2 * (1 - load)), rel=0.02)
