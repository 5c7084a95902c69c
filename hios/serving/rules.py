"""What may start now, and what is next: the rules of a pipeline, for the simulator and for lanes that run for real.

TOP section VI-A, with what the paper leaves open decided as docs/serving.md says (D3, D6). All functions are pure, and
run on lists as they are; where there is much to simulate, numba compiles them for arrays. ``held`` and
``running`` are, by block of all models, the numbers of its instances that wait for it and that run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from hios.serving.pipeline import Pipeline

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Functions that numba can compile, by name.
KERNELS: dict[str, Callable[..., Any]] = {}

#: What decides between combined blocks that could run, the least first: minus the share of its sub-blocks that are
#: present, the least time that one of the tasks has left, the oldest task, and since when an instance has waited.
Rank = tuple[float, float, float, float]


def kernel(function: _Function) -> _Function:
    """Mark a function that numba can compile."""
    KERNELS[function.__name__] = function
    return function


class Rules(NamedTuple):
    """A pipeline as numbers in rows. W models, B blocks of all models, C combined blocks, m sub-blocks of all."""

    first_block: Sequence[int]  # (W,): number of the model's first block among all
    last: Sequence[int]  # (B,): 1 for the last block of its model, else 0
    first_member: Sequence[int]  # (C + 1,): where the sub-blocks of a combined block begin in member
    member: Sequence[int]  # (m,): number of the block among all
    left: Sequence[float]  # (B,): time that a task has left before a block; 0 where that does not count
    slots: int
    in_flight: int  # 0: no limit
    strict: bool
    several: bool


def rules_of(pipeline: Pipeline, row: Callable[[str, Sequence[float]], Any]) -> Rules:
    """The rules of a pipeline; ``row`` makes a row of numbers of a type: ``q``, whole ones, or ``d``."""
    first = list(accumulate(pipeline.blocks, initial=0))[:-1]  # by model, the number of its first block among all
    lasts = set(accumulate(pipeline.blocks))
    count = sum(pipeline.blocks)
    left = [time for own in pipeline.left_s for time in own] or [0.0] * count
    return Rules(
        row("q", first),
        row("q", [block + 1 in lasts for block in range(count)]),
        row("q", list(accumulate(map(len, pipeline.combined), initial=0))),
        row("q", [first[model] + block for members in pipeline.combined for model, block in members]),
        row("d", left),
        pipeline.slots,
        pipeline.in_flight or 0,
        pipeline.strict,
        pipeline.several,
    )


@kernel
def has_room(rules: Rules, held: Sequence[int], in_flight: int, model: int) -> bool:
    """Whether the first block of a model has a free slot, and the pipeline takes another task."""
    if rules.in_flight > 0 and in_flight >= rules.in_flight:
        return False
    return held[rules.first_block[model]] < rules.slots


@kernel
def could_start(rules: Rules, held: Sequence[int], running: Sequence[int], model: int) -> bool:
    """Whether a task of a model could start at once, were it not for the limit of tasks in flight."""
    block = rules.first_block[model]
    if rules.in_flight == 0 or rules.strict or held[block] > 0 or (running[block] > 0 and not rules.several):
        return False
    return rules.last[block] > 0 or held[block + 1] < rules.slots


@kernel
def ready(rules: Rules, held: Sequence[int], running: Sequence[int], combined: int) -> int:
    """The sub-blocks of a combined block that could run now, as bits; 0 where a strict run would wait for others.

    A sub-block can run if it has an instance and the one after it has room for the result, also if that itself takes
    its input out in this very run (D6).
    """
    first, end = rules.first_member[combined], rules.first_member[combined + 1]
    present, following = 0, -1
    for place in range(end - 1, first - 1, -1):
        block = rules.member[place]
        if held[block] == 0 or (running[block] > 0 and not rules.several):
            continue
        if rules.last[block] > 0 or held[block + 1] < rules.slots or following == block + 1:
            present |= 1 << (place - first)
            following = block
    if rules.strict and present != (1 << (end - first)) - 1:
        return 0
    return present


@kernel
def rank(rules: Rules, oldest: Sequence[float], since: Sequence[float], combined: int, present: int) -> Rank:
    """What decides between a run and others.

    ``oldest``: by block, age of the task whose instance is the first to wait for it: the less, the older. ``since``: by
    block, since when that instance has waited. ``present``: sub-blocks that could run, as bits; at least one.
    """
    first, end = rules.first_member[combined], rules.first_member[combined + 1]
    count, left, age, begin = 0, math.inf, math.inf, math.inf
    for place in range(first, end):
        if present >> (place - first) & 1:
            block = rules.member[place]
            count += 1
            left = min(left, rules.left[block])
            age = min(age, float(oldest[block]))
            begin = min(begin, since[block])
    return -count / (end - first), left, age, begin


@kernel
def shared_lanes(most: int, idle: int, due: int, crowd: int) -> int:
    """Lanes of a run with ``shared`` lanes, which takes at most so many of the idle ones.

    ``due`` combined blocks could run; while at most ``crowd`` could, one of them still takes all lanes.
    """
    return min(most, idle, max(1, idle * crowd // due))
