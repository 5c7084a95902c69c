"""The simulator against queueing theory and against the rules of TOP, section VI-A."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import pytest

from hios.serving.pipeline import Pipeline, QueueRules
from hios.serving.scenario import draw
from hios.serving.simulator import COMPLETED, DROPPED, EXPIRED, IN_FLIGHT, WAITING, Simulation, _put, start_all
from tests.serving.reference_simulator import ReferenceSimulation
from tests.serving.scenarios import OPEN, chains, random_case, scenario, served, server, trace


def _latencies(pipeline: Pipeline, *arrivals: float, duration_s: float = 1000.0) -> list[float]:
    tasks = trace(*((time, 0) for time in arrivals))
    record = Simulation(pipeline, [OPEN], tasks, duration_s, compiled=False).run()
    return [finish - time for finish, time in zip(record.finish_s, tasks.times_s, strict=True)]


def test_deterministic_queue_below_capacity_has_no_wait() -> None:
    """D/D/1: with a task a second and 0.75 s each, all take 0.75 s."""
    assert _latencies(server(0.75), *map(float, range(100))) == [0.75] * 100


def test_deterministic_queue_in_overload_grows() -> None:
    """D/D/1: with a task a second and 1.25 s each, each takes a quarter of a second longer than the one before."""
    assert _latencies(server(1.25), *map(float, range(100))) == [1.25 + 0.25 * task for task in range(100)]


def test_littles_law() -> None:
    """The mean number of tasks present is their rate times their mean latency, for each model."""
    models = (served("a", [[2.0], [1.0]], 60.0), served("b", [[4.0], [3.0]], 60.0))
    given = scenario(*models, duration_s=60.0)
    chain = chains([0.002, 0.001], [0.004, 0.003])
    simulation = Simulation(chain, [OPEN, OPEN], draw(given), given.duration_s, compiled=False)
    simulation.run()
    for tally in simulation.outcome().tallies:
        assert tally.present_s is not None
        assert tally.present_s == pytest.approx(sum(tally.latencies_ms) / 1e3, rel=0.01)


def _check(simulation: Simulation, queues: list[QueueRules]) -> None:
    """Every task is in one place, slots and lanes are not exceeded."""
    state, pipeline, record = simulation.state, simulation.pipeline, simulation.record()
    queued = [task for head, tail in zip(state.head, state.tail, strict=True) for task in state.queue[head:tail]]
    held = [
        state.slot_task[block * pipeline.slots + (first + place) % pipeline.slots]
        for block, (first, count) in enumerate(zip(state.slot_head, state.held, strict=True))
        for place in range(count)
    ]
    going = [run for run in record.runs if run.start_s <= simulation.now < run.finish_s]
    running = sum(run.present.bit_count() for run in going)
    assert sorted(queued) == [task for task, how in enumerate(record.state) if how == WAITING]
    assert len(set(held)) == len(held)
    assert all(record.state[task] == IN_FLIGHT for task in held)
    assert sum(how == IN_FLIGHT for how in record.state) == len(held) + running
    assert sum(state.present) == len(queued) + sum(how == IN_FLIGHT for how in record.state)
    assert all(count <= pipeline.slots for count in state.held)
    if pipeline.in_flight is not None and (pipeline.strict or pipeline.take == "all"):
        assert len(held) + running <= pipeline.in_flight  # else more may leave for an idle lane
    idle, _, _, _, in_flight = state.numbers
    assert in_flight == len(held) + running
    assert all(length <= rules.capacity for length, rules in zip(simulation.lengths(), queues, strict=True))
    assert 0 <= idle == pipeline.lanes - sum(run.lanes for run in going)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_lost_at_any_moment(seed: int) -> None:
    """Conservation of tasks, of lanes and of slots after the events of every moment; and the counts at the end."""
    pipeline, queues, tasks, duration_s = random_case(seed)
    moments: list[float] = []
    ReferenceSimulation(pipeline, queues, tasks, duration_s, lambda reference: moments.append(reference.now)).run()
    simulation = Simulation(pipeline, queues, tasks, duration_s, compiled=False)
    for moment in moments:
        simulation.run_to(moment)
        _check(simulation, queues)
    simulation.run_to(duration_s)
    counted = simulation.outcome()
    assert sum(tally.offered for tally in counted.tallies) == len(tasks)
    assert all(tally.unaccounted == 0 for tally in counted.tallies)
    assert counted.busy_s >= 0


@pytest.mark.parametrize("seed", range(60))
def test_order_and_overlap(seed: int) -> None:
    """Tasks of a model end in the order of their arrival, and no sub-block has two instances at a time."""
    pipeline, queues, tasks, duration_s = random_case(seed)
    record = Simulation(pipeline, queues, tasks, duration_s, compiled=False).run()
    if not pipeline.several:
        for model in range(len(queues)):
            ends = [
                finish
                for finish, state, owner in zip(record.finish_s, record.state, tasks.models, strict=True)
                if owner == model and state == COMPLETED
            ]
            assert ends == sorted(ends)
        for number in range(len(pipeline.combined)):
            for place in range(len(pipeline.combined[number])):
                own = [run for run in record.runs if run.combined == number and run.present >> place & 1]
                assert all(before.finish_s <= after.start_s for before, after in pairwise(own))
    if pipeline.take == "all":
        assert all(before.finish_s <= after.start_s for before, after in pairwise(record.runs))


def test_the_task_that_is_due_first_leaves_first() -> None:
    """One task in flight: of those that wait, the one that is due first is next; a tick that finds no room waits."""
    pipeline = chains([1.0], [1.0], in_flight=1)
    tasks = trace((0.0, 0), (0.1, 0), (0.2, 1))
    slow, urgent = QueueRules(9, due_s=5.0), QueueRules(9, due_s=0.5)
    assert Simulation(pipeline, [slow, urgent], tasks, 9.0, compiled=False).run().launched_s == [0.0, 2.0, 1.0]
    assert Simulation(pipeline, [urgent, slow], tasks, 9.0, compiled=False).run().launched_s == [0.0, 1.0, 2.0]
    # A tick every 0.75 s: the one at 0.75 finds the lane busy until 1, and the task leaves then.
    ticks = [QueueRules(9, interval_s=0.75, due_s=0.5), slow]
    assert Simulation(pipeline, ticks, trace((0.0, 0), (0.1, 0)), 9.0, compiled=False).run().launched_s == [0.0, 1.0]
    freely = dataclasses.replace(pipeline, in_flight=None, slots=1)
    assert Simulation(freely, ticks, trace((0.0, 0), (0.1, 0)), 9.0, compiled=False).run().launched_s == [0.0, 0.75]


def test_tasks_in_flight_that_wait_for_each_other_leave_no_lane_idle() -> None:
    """Two tasks of one model, of which the second waits for the block that the first is in: one of another leaves."""
    times = tuple(((0.0, 0.0), (1.0, 1.0)) for _ in range(3))
    combined, widest = (((0, 0),), ((0, 1),), ((1, 0),)), ((1, 1),) * 3
    pipeline = Pipeline(2, (2, 1), combined, times, times, "shared", in_flight=2, widest=widest)
    urgent, patient = QueueRules(9, due_s=1.0), QueueRules(9, due_s=5.0)
    record = Simulation(
        pipeline, [urgent, patient], trace((0.0, 0), (0.1, 0), (0.2, 1), (0.2, 1)), 9.0, compiled=False
    ).run()
    assert record.launched_s == [0.0, 0.1, 0.2, 2.0]
    assert [run.start_s for run in record.runs if run.combined == 2] == [0.2, 2.0]


def test_runs_take_no_more_lanes_than_are_worth_it() -> None:
    """Of four idle lanes a run alone takes as many as the pipeline says; of those that share them, their part."""
    times = tuple(((0.0,) * 4, (4.0, 3.0, 2.0, 1.0)) for _ in range(2))
    pipeline = Pipeline(4, (1, 1), (((0, 0),), ((1, 0),)), times, times, "shared", widest=((4, 3), (4, 1)))
    for rows, lanes in ((((0.0, 0),), [3]), (((0.0, 1),), [1]), (((0.0, 0), (0.0, 1)), [2, 1])):
        record = Simulation(pipeline, [OPEN, OPEN], trace(*rows), 9.0, compiled=False).run()
        assert [run.lanes for run in record.runs] == lanes
        assert [run.finish_s for run in record.runs] == [float(5 - used) for used in lanes]


def test_blocks_of_a_combined_block_work_on_different_tasks() -> None:
    """B equal blocks in one combined block that overlap: 1 / t tasks a second, each for B t."""
    times = (tuple((float(present > 0),) for present in range(8)),)
    pipeline = Pipeline(1, (3,), (((0, 0), (0, 1), (0, 2)),), times, times, "all")
    assert _latencies(pipeline, *map(float, range(20))) == [3.0] * 20


def test_blocks_that_do_not_overlap_gain_nothing() -> None:
    """The same where their times add up: 1 / (B t) tasks a second."""
    times = (tuple((float(present.bit_count()),) for present in range(8)),)
    pipeline = Pipeline(1, (3,), (((0, 0), (0, 1), (0, 2)),), times, times, "all")
    tasks = trace(*((0.0, 0) for _ in range(100)))
    record = Simulation(pipeline, [OPEN], tasks, 1000.0, compiled=False).run()
    assert max(record.finish_s) == 300.0


def _chosen(
    waiting: dict[tuple[int, int], tuple[int, float]], now: float = 0.0, max_wait_s: float = math.inf
) -> list[tuple[int, int]]:
    """The runs, by combined block and present sub-blocks, of TOP.md's example with some instances."""
    combined = (((0, 0), (1, 0)), ((0, 1), (1, 1)), ((1, 2),))
    times = tuple(tuple((1.0,) for _ in range(1 << len(members))) for members in combined)
    pipeline = Pipeline(1, (2, 3), combined, times, times, "all", max_wait_s=max_wait_s)
    simulation = _waiting(pipeline, waiting)
    state = simulation.state
    rounds: list[tuple[int, int]] = []
    state.clock[0] = now
    while True:
        state.numbers[0], before = 1, simulation.runs
        state.running[:], state.going[:] = [0] * len(state.running), [-1] * len(state.going)
        start_all(simulation.given, state)
        if simulation.runs == before:
            return rounds
        rounds.append((simulation.record().runs[-1].combined, simulation.record().runs[-1].present))


def _waiting(pipeline: Pipeline, waiting: dict[tuple[int, int], tuple[int, float]]) -> Simulation:
    """A simulation in which instances of these tasks have waited before these blocks since then."""
    tasks = trace(*((50.0, model) for model in range(len(pipeline.blocks)) for _ in range(9)))
    simulation = Simulation(pipeline, [OPEN] * len(pipeline.blocks), tasks, 100.0, compiled=False)
    for (model, block), (task, since) in waiting.items():
        simulation.state.clock[0] = since
        _put(simulation.given, simulation.state, simulation.given.rules.first_block[model] + block, task)
    return simulation


def test_highest_ratio_first() -> None:
    """TOP.md section 3: a ratio of 1/1 comes before 1/2, which runs with what is there; 0/2 never runs."""
    assert _chosen({(0, 1): (0, 0.0), (1, 0): (5, 0.0), (1, 2): (4, 0.0)}) == [(2, 1), (1, 1), (0, 2)]


def test_ties_go_by_age() -> None:
    """Of equal ratios the one with the oldest task runs first (D3)."""
    assert _chosen({(0, 1): (5, 0.0), (1, 0): (0, 0.0)}) == [(0, 2), (1, 1)]


def test_what_waits_too_long_goes_first() -> None:
    """Beyond ``max_wait`` age counts, not the ratio (D3)."""
    waiting = {(0, 1): (3, 1.0), (1, 2): (4, 9.0)}
    assert _chosen(waiting, now=10.0) == [(2, 1), (1, 1)]
    assert _chosen(waiting, now=10.0, max_wait_s=5.0) == [(1, 1), (2, 1)]


def test_full_slots_hold_back() -> None:
    """D6: a block whose successor has no room does not run, unless the successor runs with it."""
    full = {(0, 0): (1, 0.0), (0, 1): (0, 0.0)}
    assert _chosen(full)[0] == (1, 1)
    combined = (((0, 0), (0, 1)),)
    times = (((1.0,),) * 4,)
    simulation = _waiting(Pipeline(1, (2,), combined, times, times, "all"), {(0, 1): (0, 0.0), (0, 0): (1, 0.0)})
    start_all(simulation.given, simulation.state)
    assert [run.present for run in simulation.record().runs] == [3]


def test_launcher_lets_one_task_out_at_a_tick() -> None:
    """An interval of a second caps the rate at one task a second, and missed ticks are lost (D2)."""
    tasks = trace(*((0.0, 0) for _ in range(4)), (10.5, 0), (10.5, 0))
    record = Simulation(server(0.25), [QueueRules(100, interval_s=1.0)], tasks, 100.0, compiled=False).run()
    assert record.finish_s == [0.25, 1.25, 2.25, 3.25, 11.25, 12.25]


def test_tick_with_full_slot_does_nothing() -> None:
    """D2: while the slot is full, ticks pass; nothing is made up for."""
    tasks = trace(*((0.0, 0) for _ in range(5)))
    record = Simulation(server(2.5), [QueueRules(100, interval_s=1.0)], tasks, 100.0, compiled=False).run()
    # Tasks leave the queue at 0, 1, 3, 6 and 8: the other ticks find the slot full.
    assert [run.start_s for run in record.runs] == [0.0, 2.5, 5.0, 7.5, 10.0]
    assert record.queued_s[0] == pytest.approx(0 + 1 + 3 + 6 + 8)


@pytest.mark.parametrize(("drop_oldest", "dropped"), [(False, [3, 4, 5]), (True, [1, 2, 3])])
def test_full_queues_drop(drop_oldest: bool, dropped: list[int]) -> None:
    """A queue for two while a task runs: of five that come at once, the newest or the oldest are dropped."""
    tasks = trace((0.0, 0), (0.5, 0), (0.5, 0), (0.5, 0), (0.5, 0), (0.5, 0))
    record = Simulation(server(1.0), [QueueRules(2, drop_oldest)], tasks, 100.0, compiled=False).run()
    assert [task for task, state in enumerate(record.state) if state == DROPPED] == dropped
    assert record.state.count(COMPLETED) == 3


def test_deadline_passes_in_the_queue() -> None:
    """A task expires exactly at its deadline, even if nothing else happens then; one that runs does not."""
    tasks = trace((0.0, 0), (0.5, 0), (0.5, 0))
    record = Simulation(server(10.0), [QueueRules(9, deadline_s=2.0)], tasks, 100.0, compiled=False).run()
    assert record.state == [COMPLETED, COMPLETED, EXPIRED]
    assert record.finish_s[2] == 2.5
    assert record.queued_s == [2.0]


def test_work_at_the_end_is_counted_as_left() -> None:
    """What is in the queue or in flight at the end is neither completed nor lost, and lanes were busy until then."""
    tasks = trace((0.0, 0), (0.0, 0), (0.0, 0))
    simulation = Simulation(server(2.0), [OPEN], tasks, 3.0, compiled=False)
    simulation.run()
    counted = simulation.outcome()
    assert (counted.tallies[0].completed, counted.tallies[0].in_flight, counted.tallies[0].waiting) == (1, 2, 0)
    assert counted.busy_s == 3.0


def test_variance_of_queues_over_time() -> None:
    """Three queues, of which one holds x tasks, have the variance 2 x^2 / 9 (D1)."""
    pipeline = chains([1.0], [1.0], [1.0])
    held = QueueRules(1000, interval_s=1000.0)
    tasks = trace(*((0.5, 2) for _ in range(9)))
    record = Simulation(pipeline, [held] * 3, tasks, 1.5, compiled=False).run()
    assert record.variance_s == pytest.approx(2 * 81 / 9)
