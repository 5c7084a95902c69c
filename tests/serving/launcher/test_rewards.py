"""The rewards (2), by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hios.serving.launcher.rewards import Scores, rewards
from hios.serving.simulator import StepMeasures


def test_by_hand() -> None:
    """Zeros give 1; the example of the specification e^0.7; the launcher's latency is the mean of the models'."""
    assert rewards(np.zeros((1, 4))).tolist() == [[1.0, 1.0, 1.0]]
    assert rewards(np.array([[1.0, -1.0, 0.5]])).tolist() == [pytest.approx([math.exp(0.7)] * 2)]
    values = rewards(np.array([[1.0, -1.0, 2.0, 0.5]]))[0]
    assert values == pytest.approx([math.exp(0.4 - 0.4 * 0.5 - 0.1), math.exp(0.7), math.exp(0.4 - 0.8 - 0.1)])


def test_scores() -> None:
    """Z-scores with the mean and deviation of the steps, clipped or not; a value that never changes has the score 0."""
    rows = np.array([StepMeasures(0.5, (10.0, 20.0), variance).row for variance in (0.0, 2.0)])
    scores = Scores.of(rows)
    assert scores.normalized(rows, 3.0).tolist() == [[0.0, 0.0, 0.0, -1.0], [0.0, 0.0, 0.0, 1.0]]
    far = np.array([[0.5, 10.0, 20.0, 1e6]])
    assert scores.normalized(far, 3.0)[0, -1] == 3.0
    assert scores.normalized(far, 0.0)[0, -1] == 1e6 - 1
    assert np.isfinite(Scores.of(np.zeros((0, 4))).normalized(np.ones((1, 4)), 3.0)).all()


def test_rewards_are_finite() -> None:
    """Without a clip, single precision still has them."""
    assert np.isfinite(rewards(np.array([[0.0, -1e9, -1e9, 0.0]])).astype(np.float32)).all()
