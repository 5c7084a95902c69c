"""Instances before their blocks: what could run is known after every change without looking at all blocks again."""

from __future__ import annotations

import functools
import random
from concurrent.futures import Future

import pytest

from hios.serving.admission import LiveTask
from hios.serving.instances import Instances, LiveRun
from hios.serving.pipeline import Pipeline, SubBlock

_BLOCKS = (3, 4, 1)


def _pipeline(chance: random.Random, *, strict: bool, several: bool, slots: int) -> Pipeline:
    """Blocks of three models in combined blocks at random."""
    members: list[SubBlock] = [(model, block) for model, count in enumerate(_BLOCKS) for block in range(count)]
    chance.shuffle(members)
    combined = []
    while members:
        size = chance.randint(1, 3)
        combined.append(tuple(sorted(members[:size])))
        members = members[size:]
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


def _rank(pipeline: Pipeline, instances: Instances, combined: int, present: int) -> tuple[float, ...]:
    members = [member for place, member in enumerate(pipeline.combined[combined]) if present >> place & 1]
    tasks = [instances._waiting[sum(_BLOCKS[:model]) + block][0] for model, block in members]
    return (
        -len(members) / len(pipeline.combined[combined]),
        min(pipeline.left_s[model][block] for model, block in members) if pipeline.left_s else 0.0,
        min(task.arrived_s for task in tasks),
        min(task.since_s for task in tasks),
    )


def _ready(pipeline: Pipeline, instances: Instances, combined: int) -> int:
    """The rule in words: a block runs that has an instance, and room after it, also if the one after it makes room."""
    first = [sum(_BLOCKS[:model]) for model in range(len(_BLOCKS))]
    ready, able = 0, set()
    for place, (model, block) in reversed(list(enumerate(pipeline.combined[combined]))):
        number = first[model] + block
        busy = instances._running[number] and not pipeline.several
        last = block + 1 == _BLOCKS[model]
        has_room = last or len(instances._waiting[number + 1]) < pipeline.slots or (model, block + 1) in able
        if instances._waiting[number] and not busy and has_room:
            able.add((model, block))
            ready |= 1 << place
    return 0 if pipeline.strict and len(able) < len(pipeline.combined[combined]) else ready


def _next(pipeline: Pipeline, instances: Instances, due: list[tuple[int, int]], now: float) -> tuple[int, int]:
    """The rule in words: what has waited too long by age, else the highest ratio, ties by time left, then by age."""
    ranks = {entry: _rank(pipeline, instances, *entry) for entry in due}
    late = [entry for entry in due if now - ranks[entry][3] > pipeline.max_wait_s]
    return min(late, key=lambda entry: ranks[entry][2:]) if late else min(due, key=lambda entry: ranks[entry])


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
        every = [(c, _ready(pipeline, instances, c)) for c in range(len(pipeline.combined))]
        assert due == [entry for entry in every if entry[1]]
        if due and len(runs) < 2:
            chosen = instances.first(due, now)
            assert chosen == _next(pipeline, instances, due, now)
            runs.append(instances.start(*chosen, now))
            started += 1
    instances.drain()
    assert instances.due() == []
    assert started > 50
