"""The simulator does what the reference does, event by event, as it is and compiled.

In steps as well: stopping changes nothing, and all of them go on alike with other combined blocks.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from hios.serving.pipeline import Pipeline, QueueRules
from hios.serving.scenario import draw
from hios.serving.simulator import Simulation, SimulationRecord, next_tick
from tests.serving.reference_simulator import ReferenceSimulation
from tests.serving.scenarios import OPEN, chains, random_case, random_partition, scenario, served, server, trace

_Kind = Callable[..., Simulation]
_PLAIN, _COMPILED = (functools.partial(Simulation, compiled=compiled) for compiled in (False, True))
#: The reference, and the simulator as it is and compiled.
_KINDS: list[_Kind] = [ReferenceSimulation, _PLAIN, _COMPILED]


def _regrouped(pipeline: Pipeline, draw: random.Random) -> Pipeline:
    """The same blocks in other combined blocks."""
    members = [member for own in pipeline.combined for member in own]
    combined = random_partition(draw, members)
    times = tuple(
        tuple(
            tuple(draw.choice([0.5, 1.0, draw.random()]) for _ in range(pipeline.lanes)) for _ in range(1 << len(own))
        )
        for own in combined
    )
    return dataclasses.replace(
        pipeline,
        combined=tuple(combined),
        times_s=times,
        busy_s=times,
        several=False,
        widest=tuple(tuple(draw.randint(1, pipeline.lanes) for _ in rows) for rows in times) if pipeline.widest else (),
        beside=_factors(draw, len(combined)) if pipeline.beside else (),
    )


def _factors(draw: random.Random, count: int) -> tuple[tuple[float, ...], ...]:
    """How much runs of combined blocks slow each other down."""
    return tuple(tuple(draw.choice([1.0, 1.3]) for _ in range(count)) for _ in range(count))


def _stopped(kind: _Kind, seed: int, stops: int) -> tuple[SimulationRecord, list[object]]:
    """A random case that goes on otherwise after every stop, and what was seen at the stops."""
    pipeline, queues, tasks, duration_s = random_case(seed)
    pipeline = dataclasses.replace(pipeline, several=False)
    draw = random.Random(seed)
    if seed % 2:
        pipeline = dataclasses.replace(pipeline, beside=_factors(draw, len(pipeline.combined)), jitter=(1.0, 1.1, 0.9))
    steps = kind(pipeline, queues, tasks, duration_s)
    seen: list[object] = []
    moments = sorted({draw.choice([draw.uniform(0, duration_s), float(draw.randrange(12))]) for _ in range(stops)})
    for before, moment in zip([0.0, *moments], moments, strict=False):
        steps.run_to(moment)
        if moment > before:  # the first one may be 0
            measured = steps.measured(before, draw.choice(["arrival", "inference"]))
            seen.append(dataclasses.astuple(measured))
        seen.append((steps.progress(), steps.lengths(), steps.waits_s()))
        queues = [dataclasses.replace(own, interval_s=draw.choice([0.0, 0.3, 0.7])) for own in queues]
        steps.change(_regrouped(pipeline, draw), queues)
    steps.run_to(duration_s)
    return steps.record(), seen


@pytest.mark.parametrize("seed", range(30))
def test_all_simulators_go_on_alike(seed: int) -> None:
    """Combined blocks and intervals that change on the way: the same runs, ends of tasks and observations."""
    (expected, theirs), plain, (actual, ours) = (_stopped(kind, seed, 6) for kind in _KINDS)
    plain[0].changes, changes = [], actual.changes
    assert plain == (dataclasses.replace(actual, changes=[]), ours)
    assert actual.runs == expected.runs
    assert actual.state == expected.state
    assert actual.finish_s == expected.finish_s
    assert actual.launched_s == expected.launched_s
    assert [count for count, _ in changes] == [count for count, _ in expected.changes]
    assert len(ours) == len(theirs)
    for own, other in zip(ours, theirs, strict=True):
        assert own == pytest.approx(other) if not isinstance(own, tuple) else _flat(own) == pytest.approx(_flat(other))


def _flat(value: object) -> list[float]:
    if isinstance(value, (list, tuple)):
        return [number for part in value for number in _flat(part)]
    return [float(value)]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", _KINDS)
def test_stopping_changes_nothing(kind: _Kind) -> None:
    """A simulation that stops on the way has the same runs as one that does not."""
    for seed in range(10):
        case = random_case(seed)
        expected = ReferenceSimulation(*case).run()
        steps = kind(*case)
        for part in range(1, 8):
            steps.run_to(case[3] * part / 7)
        record = steps.record()
        assert record.runs == expected.runs
        assert record.finish_s == expected.finish_s
        assert record.variance_s == pytest.approx(expected.variance_s)


def _chain() -> Pipeline:
    """Two models: one of two blocks of 1 s and 2 s, one of one block of 1 s; every block alone on one lane."""
    return chains([1.0, 2.0], [1.0])


@pytest.mark.parametrize("kind", _KINDS)
def test_measures_by_hand(kind: _Kind) -> None:
    """A step of 4 s: what it brought, counted from arrival and from the launch."""
    # Model 0 arrives at 0 and runs from 0 to 1 and from 1 to 3. The tasks of model 1 arrive at 1, 1 and 1: the first
    # leaves the queue at once, and runs from 3 to 4; the second leaves the queue at 3, and the third waits.
    tasks = trace((0.0, 0), (1.0, 1), (1.0, 1), (1.0, 1))
    for latency, expected in (("arrival", (3000.0, 3000.0)), ("inference", (3000.0, (3000.0 + 1000.0) / 2))):
        steps = kind(_chain(), [OPEN, OPEN], tasks, 10.0)
        steps.run_to(3.5)
        assert steps.progress() == [False, False, True]
        assert steps.lengths() == [0, 1]
        assert steps.waits_s() == pytest.approx(2.5)
        steps.run_to(3.999)
        measures = steps.measured(0.0, latency)
        assert measures.utilisation == pytest.approx(1.0, abs=1e-3)
        assert measures.latencies_ms == pytest.approx(expected, rel=1e-3)
        assert measures.variance == pytest.approx(0.25)


def test_runs_under_way_end_as_they_began() -> None:
    """A change while a block runs: its instance goes to its next block, and the new combined block has both models."""
    times = (((0.0,), (1.0,)), ((0.0,), (5.0,), (5.0,), (7.0,)))
    after = dataclasses.replace(_chain(), combined=(((0, 0),), ((0, 1), (1, 0))), times_s=times, busy_s=times)
    for kind in _KINDS:
        steps = kind(_chain(), [OPEN, OPEN], trace((0.0, 0), (0.5, 1)), 20.0)
        steps.run_to(0.75)
        steps.change(after, [OPEN, OPEN])
        steps.run_to(20.0)
        record = steps.record()
        assert [(run.start_s, run.finish_s) for run in record.runs] == [(0.0, 1.0), (1.0, 8.0)]
        assert record.finish_s == [8.0, 8.0]
        assert steps.outcome().busy_s == pytest.approx(8.0)


@pytest.mark.parametrize("kind", _KINDS)
def test_new_intervals_begin_with_their_next_multiple(kind: _Kind) -> None:
    """From an interval of 3 s to one of 2 s at 4 s: tasks leave the queue at 0, 3, 4, 6 and 8."""
    pipeline = server(0.5)
    steps = kind(pipeline, [QueueRules(9, interval_s=3.0)], trace(*[(0.0, 0)] * 5), 9.0)
    steps.run_to(3.9)
    steps.change(pipeline, [QueueRules(9, interval_s=2.0)])
    steps.run_to(9.0)
    assert steps.record().launched_s == [0.0, 3.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_tick_is_carried_out_once(kind: _Kind) -> None:
    """A change at the moment of a tick repeats it neither with the same interval nor with a new one."""
    pipeline, every_second = server(0.1), QueueRules(9, interval_s=1.0)
    for interval_s, launched_s in ((1.0, [0.0, 1.0, 2.0, 3.0, 4.0]), (2.0, [0.0, 1.0, 2.0, 4.0, 6.0])):
        steps = kind(pipeline, [every_second], trace(*[(0.0, 0)] * 5), 9.0)
        steps.change(pipeline, [every_second])
        steps.run_to(2.0)
        steps.change(pipeline, [QueueRules(9, interval_s=interval_s)])
        steps.run_to(9.0)
        assert list(steps.record().launched_s) == launched_s


def test_the_next_tick_is_later() -> None:
    """Also where a multiple of the interval, divided by it, is rounded down."""
    draw = random.Random(0)
    for interval_s in (0.009, *(draw.uniform(1e-4, 1.0) for _ in range(100))):
        for number in range(100):
            now = number * interval_s
            assert (next_tick(now, interval_s) - 1) * interval_s == now
            assert next_tick(now, interval_s) * interval_s > now


@pytest.mark.parametrize("kind", _KINDS)
def test_a_tick_waits_only_for_a_task_that_finds_no_room(kind: _Kind) -> None:
    """One task in flight, ticks every second: one without a task is lost, and one whose task has expired as well."""
    pipeline, rules = chains([1.5], in_flight=1), QueueRules(9, interval_s=1.0)
    cases: tuple[tuple[float, list[float], list[float]], ...] = (
        (math.inf, [0.25], [1.0]),  # the tick at 0 finds no task
        (math.inf, [0.0, 0.1], [0.0, 1.5]),  # that at 1 finds a task but no room
        (
            1.0,
            [0.0, 0.1, 1.3],
            [0.0, math.inf, 2.0],
        ),  # its task expires at 1.1, and the next one waits for the tick at 2
    )
    for deadline_s, arrivals, launched_s in cases:
        tasks = trace(*((time, 0) for time in arrivals))
        steps = kind(pipeline, [dataclasses.replace(rules, deadline_s=deadline_s)], tasks, 9.0)
        steps.run_to(9.0)
        assert list(steps.record().launched_s) == launched_s


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
