"""hios-opt where operators may take several devices: optimal on small problems, with bounds that hold."""

from __future__ import annotations

import copy
import hashlib
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hios import ALGORITHMS, Costs, Edge, Graph, Operator, Problem, Schedule, evaluate, schedule, violations
from hios.core.evaluate import latency_ms
from hios.schedulers.hios_wide import WEIGHTS, list_schedule
from hios.schedulers.opt import annealing, lower_bounds
from hios.schedulers.opt.annealing import WideChain, fastest_in_sequence
from hios.schedulers.opt.lower_bounds import interval_bound_ms, proven_bound_ms, trade_off_bound_ms
from hios.verify.consistency import bound_problems
from tests.problems import problem, wide_problems
from tests.wide_plans import least_latency

_LONG = 600.0


def _opt(instance: Problem, devices: int, moves: int = 300, **parameters: Any) -> Schedule:
    return schedule(instance, "hios-opt", devices, {"time_limit": _LONG, "moves": moves, **parameters})


def _random(seed: int, operators: int = 30, *, wide: bool = True) -> Problem:
    """A random graph whose operators gain from up to 4 devices (Amdahl's law), each by its own share."""
    draw = random.Random(seed)
    names = [f"v{number}" for number in range(operators)]
    pairs = [(source, target) for target in range(operators) for source in range(max(0, target - 8), target)]
    ends = draw.sample(pairs, 2 * operators)
    times = {name: draw.uniform(0.1, 4.0) for name in names}
    serial = {name: draw.uniform(0.0, 0.4) for name in names}
    widths = {
        name: {k: time * (serial[name] + (1 - serial[name]) / k) for k in (2, 3, 4)} for name, time in times.items()
    }
    graph = Graph(
        "random",
        tuple(Operator(name, "task") for name in names),
        tuple(Edge(names[source], names[target]) for source, target in ends),
    )
    transfers = {(names[source], names[target]): 0.1 * times[names[source]] for source, target in ends}
    return Problem(graph, Costs(times, transfers, wide_ms=widths if wide else {}))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(instance=wide_problems(largest=3, devices=3), devices=st.integers(2, 3))
def test_optimal_on_small_problems(instance: Problem, devices: int) -> None:
    """As good as the best of all orders and choices of devices; the bounds hold and are what `hios verify` expects."""
    best = least_latency(instance, devices)
    scheduled = _opt(instance, devices, moves=1500)
    assert violations(instance, scheduled) == []
    assert scheduled.latency_ms <= best * (1 + 1e-9)
    assert max(interval_bound_ms(instance, devices), trade_off_bound_ms(instance, devices)) <= best * (1 + 1e-9)
    assert scheduled.lower_bound_ms == proven_bound_ms(instance, devices) <= scheduled.latency_ms * (1 + 1e-9)
    assert bound_problems(scheduled, instance, [scheduled]) == []


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_multipliers_prove_a_bound(data: st.DataObject) -> None:
    """The bound does not rest on the solver: whatever multipliers it returns, no schedule is faster."""
    devices = data.draw(st.integers(1, 3))
    instance = data.draw(wide_problems(largest=3, devices=3)).on(devices)
    rows = lower_bounds._rows(instance, devices)
    multipliers = data.draw(
        st.lists(st.one_of(st.just(0.0), st.floats(-0.5, 2.0)), min_size=len(rows), max_size=len(rows))
    )
    assert lower_bounds._certified(instance, rows, multipliers) <= least_latency(instance, devices) * (1 + 1e-9)


def test_the_trade_off_by_hand() -> None:
    """Two chains side by side: path alone says 3 ms, area alone 4 ms; both together leave 4.8 ms."""
    # Each chain: 8 ms on one device, 3 ms on four, which cost 12 ms of area. A share x of each on four devices:
    # path 8 - 5x, area (2 * (8 + 4x)) / 4 = 4 + 2x; equal at x = 4/7.
    wide = {"a": {4: 3.0}, "b": {4: 3.0}}
    instance = problem({"a": 8.0, "b": 8.0}, {}, wide=wide)
    assert trade_off_bound_ms(instance, 4) == pytest.approx(4 + 8 / 7)
    assert interval_bound_ms(instance, 4) == 4.0
    assert _opt(instance, 4).latency_ms == 6.0


def test_other_models_of_contention_leave_it_out() -> None:
    """Where the area says nothing of the latency there is no such bound."""
    instance = problem({"a": 8.0, "b": 8.0}, {}, wide={"a": {4: 3.0}}, contention="none")
    assert trade_off_bound_ms(instance, 4) == 0.0
    assert proven_bound_ms(instance, 4) == 8.0


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("seed", range(2))
def test_never_worse_than_narrow_or_wide(seed: int, devices: int) -> None:
    """At most the latency of every other algorithm, of hios-opt without widths, and of all-wide in sequence."""
    instance = _random(seed)
    scheduled = _opt(instance, devices, moves=20_000)
    assert violations(instance, scheduled) == []
    narrow = _opt(_random(seed, wide=False), devices, moves=20_000)
    sequence = latency_ms(evaluate(instance.on(devices), fastest_in_sequence(instance.on(devices), devices)))
    assert scheduled.latency_ms <= min(narrow.latency_ms, sequence) * (1 + 1e-9)
    assert devices == 2 or scheduled.latency_ms < narrow.latency_ms
    for name, entry in ALGORITHMS.items():
        if name != "hios-opt":
            other = schedule(instance, name, devices if entry.several_devices else 1)
            assert scheduled.latency_ms <= other.latency_ms * (1 + 1e-9)
    assert scheduled.latency_ms <= 1.25 * scheduled.lower_bound_ms


def test_equal_seeds_give_equal_schedules() -> None:
    """With a number of moves the schedule depends on the seed alone."""
    instance = _random(5)
    first, again = _opt(instance, 4, moves=3000, seed=3), _opt(instance, 4, moves=3000, seed=3)
    assert first.placements == again.placements
    assert first.notes == again.notes


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), devices=st.integers(1, 4), slices=st.integers(1, 4))
def test_times_of_the_search_are_those_of_the_evaluator(seed: int, devices: int, slices: int) -> None:
    """However a chain got there: each move is timed in part, and the result is what its plan takes."""
    instance = _random(seed, operators=12).on(devices)
    chain = WideChain(instance, devices, list_schedule(instance, devices, WEIGHTS[0], [1] * len(instance)), seed)
    for _ in range(slices):
        chain.run(0.2, 300)
    assert latency_ms(evaluate(instance, chain.best().plan(devices))) == pytest.approx(chain.latency_ms, rel=1e-12)
    current = chain._search.operators[:-1]
    held = [
        (first, *(d for d in range(devices) if bits >> d & 1 and d != first))
        for first, bits in zip(current["device"].tolist(), current["held"].tolist(), strict=True)
    ]
    plan = type(chain.best())(0.0, tuple(chain._search.order.tolist()), tuple(held)).plan(devices)
    finish = {row.operator: row.finish_ms for row in evaluate(instance, plan)}
    assert [finish[name] for name in instance.ids] == pytest.approx(current["finish"].tolist(), rel=1e-12)


def test_more_devices_than_sets_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more than 64 devices, the search gives every operator one device; hios-wide may still give it several."""
    monkeypatch.setattr(annealing, "MOST_DEVICES", 1)
    instance = _random(1)
    scheduled = _opt(instance, 4, moves=500)
    assert violations(instance, scheduled) == []
    assert scheduled.latency_ms <= schedule(instance, "hios-wide", 4).latency_ms


def test_without_widths_nothing_changed() -> None:
    """The schedule of a seed and a number of moves, stages and all, as it was before widths came."""
    instance = copy.copy(_random(7, wide=False))
    instance.utilization = [0.5 + 0.5 * (number % 2) for number in range(len(instance))]
    digests = []
    for devices in (1, 3):
        contents = _opt(instance, devices, moves=2000, seed=1).to_json()
        del contents["scheduling_time_s"]
        digests.append(hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:16])
    assert digests == ["14be2e3986fd8cf7", "4819eec48e08db30"]
