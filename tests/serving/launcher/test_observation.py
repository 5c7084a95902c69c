"""The state: its rows, its size, and the moments at which it is sampled."""

from __future__ import annotations

import random

import numpy as np

from hios.serving.launcher.actions import row, sampled, squeezed, state_size
from hios.serving.simulator import Simulation
from tests.serving.scenarios import OPEN, server, trace


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
