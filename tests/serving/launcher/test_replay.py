"""The replay buffer."""

from __future__ import annotations

import numpy as np

from hios.serving.launcher.replay import Replay


def _filled(capacity: int, count: int) -> Replay:
    replay = Replay(capacity, 2, 1, 3)
    for number in range(count):
        measures = None if number % 2 else np.full(3, float(number))
        replay.add(np.full(2, number), np.array([number]), measures, np.full(2, number + 1))
    return replay


def test_keeps_the_last_transitions() -> None:
    """Once it is full, the oldest goes."""
    assert [(_filled(4, count).full, len(_filled(4, count))) for count in (3, 4, 6)] == [
        (False, 3),
        (True, 4),
        (True, 4),
    ]
    batch = _filled(4, 6).drawn(200, np.random.default_rng(0))
    assert set(batch.actions[:, 0]) == {2, 3, 4, 5}


def test_transitions_stay_together() -> None:
    """A row of a batch is one transition; a superblock has no measures."""
    batch = _filled(8, 5).drawn(100, np.random.default_rng(0))
    assert (batch.next_states == batch.states + 1).all()
    assert (batch.states[:, :1] == batch.actions).all()
    assert (batch.superblock == (batch.actions[:, 0] % 2 == 1)).all()
    assert (batch.measures[batch.superblock] == 0).all()
    assert (batch.measures[~batch.superblock] == batch.actions[~batch.superblock]).all()
    assert sorted(_filled(8, 5).measured()[:, 0]) == [0, 2, 4]
