"""Instances before their blocks: what could run is known after every change without looking at all blocks again."""

from __future__ import annotations

import functools
import random
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import pytest

from hios.serving.admission import LiveTask
from hios.serving.instances import Instances, LiveRun
from hios.serving.pipeline import Pipeline, SubBlock
from tests.serving.reference_simulator import following, ready
from tests.serving.scenarios import random_partition

_BLOCKS = (3, 4, 1)


def _pipeline(chance: random.Random, *, strict: bool, several: bool, slots: int) -> Pipeline:
    """Blocks of three models in combined blocks at random."""
    members: list[SubBlock] = [(model, block) for model, count in enumerate(_BLOCKS) for block in range(count)]
    combined = random_partition(chance, members)
    nothing = tuple(((),) for _ in combined)
    return Pipeline(
        2,
        _BLOCKS,
        tuple(combined),
        nothing,
        nothing,
        "shared",
        strict=strict,
        several=several,
        slots=slots,
        max_wait_s=chance.choice([0.0, 5.0, 1e9]),
        left_s=tuple(tuple(chance.choice([1.0, 2.0]) for _ in range(count)) for count in _BLOCKS) if slots > 1 else (),
    )


def _by_block(values: Iterable[Any]) -> list[list[Any]]:
    """What all blocks have, by model and block."""
    own = iter(values)
    return [[next(own) for _ in range(count)] for count in _BLOCKS]


@pytest.mark.parametrize("seed", range(12))
def test_what_is_due_is_what_a_look_at_every_block_finds(seed: int) -> None:
    """Launches, starts, ends, failures and other combined blocks in random order."""
    chance = random.Random(seed)
    draw = functools.partial(_pipeline, chance, strict=seed % 4 == 1, several=seed % 4 == 2, slots=1 + seed % 2)
    pipeline = draw()
    instances, now, started = Instances(pipeline), 0.0, 0
    runs: list[LiveRun] = []
    for _ in range(600):
        now += chance.choice([0.0, 1.0])
        model = chance.randrange(len(_BLOCKS))
        if instances.has_room(model):
            instances.launch(LiveTask(model, (), Future(), now - chance.randint(0, 3)), now)
        if runs and chance.random() < 0.6:
            run = runs.pop(chance.randrange(len(runs)))
            if chance.random() < 0.1:
                run.fail((0,), "an operator raised")
            instances.finish(run, now)
        if chance.random() < 0.05:
            pipeline = draw()
            instances.change(pipeline)
        due = instances.due()
        slots = _by_block(deque((task.arrived_s, task.since_s) for task in own) for own in instances._waiting)
        busy = _by_block(count > 0 and not pipeline.several for count in instances._running)
        every = [(c, ready(pipeline, slots, busy, c)) for c in range(len(pipeline.combined))]
        assert due == [entry for entry in every if entry[1]]
        if due and len(runs) < 2:
            chosen = instances.first(due, now)
            assert chosen == following(pipeline, slots, due, now)[0]
            runs.append(instances.start(*chosen, now))
            started += 1
    instances.drain()
    assert instances.due() == []
    assert started > 50
