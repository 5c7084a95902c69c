"""Actions: intervals of [0, 1] to combined blocks, and to intervals of the queues; the state and its samples."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from hios.errors import HiosError
from hios.serving.launcher.actions import ActionSpace, bounds, row, sampled, squeezed, state_size
from hios.serving.launcher.launcher_settings import LauncherSettings
from hios.serving.simulator import Simulation
from tests.serving.scenarios import OPEN, scenario, served, server, trace

_SPACE = ActionSpace((2, 3), 5, (0.001, 0.01), (10.0, 20.0))


def test_blocks_in_the_same_part_are_combined() -> None:
    """The example of the specification: five parts, two models with two and three blocks; 1 is in the last part."""
    decision = _SPACE.decision([0.0, 1.0, 0.05, 0.61, 0.10, 0.65, 0.99])
    assert decision.combined == (((0, 0), (1, 0)), ((0, 1), (1, 1)), ((1, 2),))
    assert decision.largest == 2
    assert _SPACE.decision([0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]).largest == 5
    assert _SPACE.sizes == (2, 2, 3)
    assert bounds(_SPACE.sizes) == [(0, 2), (2, 4), (4, 7)]


def test_intervals() -> None:
    """On a log scale from the shortest one to 1 s; linear as the paper has them, but above 0."""
    blocks = [0.5] * 5
    assert _SPACE.decision([0.0, 1.0, *blocks]).intervals_s == pytest.approx((0.001, 1.0))
    assert _SPACE.decision([0.5, 0.5, *blocks]).intervals_s == pytest.approx((0.001**0.5, 0.1))
    linear = dataclasses.replace(_SPACE, log=False)
    assert linear.decision([0.25, 0.001, *blocks]).intervals_s == pytest.approx((0.25, 0.001))
    assert linear.decision([0.0, 1.0, *blocks]).intervals_s == pytest.approx((0.0001, 1.0))
    for space in (_SPACE, linear):
        for number in (0.2, 0.9):
            (interval_s, _) = space.decision([number, 0.0, *blocks]).intervals_s
            assert space.number_of(0, interval_s) == pytest.approx(number)


def test_of_a_scenario() -> None:
    """As many parts as blocks; the shortest interval is a quarter of the time that all lanes need for a task."""
    given = scenario(served("a", [[2.0, 2.0], [4.0]], 10.0), served("b", [[1.0]], 40.0), lanes=2)
    space = ActionSpace.of(given, LauncherSettings())
    assert (space.blocks, space.parts, space.rates) == ((2, 1), 3, (10.0, 40.0))
    assert space.shortest_s == pytest.approx((0.001, 0.000125))
    assert ActionSpace.of(given, LauncherSettings(intervals=7)).parts == 7


def test_the_first_policy_combines_nothing() -> None:
    """Every block is a combined block, and queues are emptied twice as fast as tasks arrive."""
    decision = _SPACE.decision(_SPACE.alone())
    assert decision.largest == 1
    assert len(decision.combined) == 5
    assert decision.intervals_s == pytest.approx((0.05, 0.025))


def test_random_decisions_are_no_superblocks() -> None:
    """They hold every block once, at most so many together, and differ."""
    chance = random.Random(0)
    drawn = [_SPACE.drawn(chance, 2) for _ in range(50)]
    for decision in drawn:
        assert sorted(member for own in decision.combined for member in own) == _SPACE.members
        assert decision.largest <= 2
        assert all(0.001 <= interval <= 1.0 for interval in decision.intervals_s)
    assert len({decision.combined for decision in drawn}) > 5


def test_numbers_of_a_decision() -> None:
    """Actions that are made of a decision mean that decision."""
    chance = random.Random(1)
    for _ in range(20):
        decision = _SPACE.drawn(chance, 3)
        decoded = _SPACE.decision(_SPACE.numbers(decision))
        assert sorted(decoded.combined) == sorted(decision.combined)
        assert decoded.intervals_s == pytest.approx(decision.intervals_s)


@pytest.mark.parametrize(("parts", "most"), [(15, 2), (13, 3), (10, 3), (30, 1), (29, 2), (3, 10)])
def test_fewer_parts_than_blocks(parts: int, most: int) -> None:
    """Blocks are spread evenly over the parts, so the first decision is no superblock; and actions mean decisions."""
    space = dataclasses.replace(_SPACE, blocks=(13, 5, 12), parts=parts, shortest_s=(0.001,) * 3, rates=(10.0,) * 3)
    first = space.decision(space.alone())
    assert first.largest <= most
    chance = random.Random(parts)
    for _ in range(20):
        decision = space.decision([chance.random() for _ in range(space.total)])
        assert sorted(space.decision(space.numbers(decision)).combined) == sorted(decision.combined)


def test_too_few_parts_are_refused() -> None:
    """Where combined blocks would always have more than H sub-blocks: one line with what is allowed."""
    given = scenario(*(served(label, [[1.0]] * 15, 10.0) for label in ("a", "b")))
    for intervals, most, least in ((13, 2, 15), (14, 2, 15), (1, 10, 3), (29, 1, 30)):
        with pytest.raises(HiosError, match=f"intervals: found {intervals} for 30 blocks; allowed: at least {least}, "):
            ActionSpace.of(given, LauncherSettings(intervals=intervals, most=most))
        settings = LauncherSettings(intervals=least, most=most)
        space = ActionSpace.of(given, settings)
        assert space.decision(space.alone()).largest <= most


def test_a_row() -> None:
    """The example of the specification: w1 in block 2, w2 in blocks 1 and 3, five tasks and one."""
    assert row([False, True, True, False, True], [5, 1]) == [0, 1, 1, 0, 1, 2, -2]


def test_size() -> None:
    """Samples x (W + sum B): 330 numbers for the paper's three models of 13, 5 and 12 blocks."""
    assert state_size((13, 5, 12), 10) == 330


def test_samples_are_of_random_moments_within_the_step() -> None:
    """About half of them fall into the half of a step in which the one block runs."""
    steps = Simulation(server(5.0), [OPEN], trace((0.0, 0)), 10.0, compiled=False)
    steps.run_to(0.0)
    state = sampled(steps, 10.0, 400, random.Random(1))
    assert state.shape == (800,)
    assert steps.now == 10.0
    busy = state.reshape(400, 2)[:, 0]
    assert 0.4 < busy.mean() < 0.6
    assert set(busy) == {0.0, 1.0}
    assert list(busy) == sorted(busy, reverse=True)  # in the order of time


def test_squeezed() -> None:
    """Large deviations shrink, signs stay."""
    assert np.allclose(squeezed(np.array([0.0, 1.0, -100.0])), [0.0, np.log(2), -np.log(101)])
