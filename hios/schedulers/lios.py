"""LIOS: latency-based heuristic list scheduling on the streams of one device, and its three random variants."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from hios.core.problem import Problem
from hios.core.schedule import StreamPlan
from hios.schedulers.registry import Parameter, register

_PAPER = "LIOS (Ping et al., IEEE TSC 2024)"
_STREAMS = Parameter("streams", 8, "number x of streams that may be used", minimum=1)
_SEED = Parameter("seed", 0, "seed of the random choices", minimum=0)


@register(
    "lios",
    paper=f"{_PAPER}, Algorithm 1",
    summary="the longest operator that can run, again and again, on the stream where it finishes first",
    several_devices=False,
    parameters=(_STREAMS,),
)
def lios(problem: Problem, devices: int, *, streams: int = 8) -> StreamPlan:
    """Algorithm 1; see ``steps``. The paper's experiments use 8 streams. O(|V| (x + width) + |E|)."""
    return _plan(problem, streams)


@register(
    "lios-rand1",
    paper=f"{_PAPER}, research question 3",
    summary="LIOS with a random operator instead of the longest, on the stream where it finishes first",
    several_devices=False,
    parameters=(_STREAMS, _SEED),
)
def lios_rand1(problem: Problem, devices: int, *, streams: int = 8, seed: int = 0) -> StreamPlan:
    """Algorithm 1 with a random operator of the wait list in Line 6; equal seeds give equal plans."""
    return _plan(problem, streams, operator_draw=random.Random(seed))


@register(
    "lios-rand2",
    paper=f"{_PAPER}, research question 3",
    summary="LIOS with the longest operator on a random stream",
    several_devices=False,
    parameters=(_STREAMS, _SEED),
)
def lios_rand2(problem: Problem, devices: int, *, streams: int = 8, seed: int = 0) -> StreamPlan:
    """Algorithm 1 with a random stream in Line 10; equal seeds give equal plans."""
    return _plan(problem, streams, stream_draw=random.Random(seed))


@register(
    "lios-rand",
    paper=f"{_PAPER}, research question 3",
    summary="LIOS with a random operator on a random stream",
    several_devices=False,
    parameters=(_STREAMS, _SEED),
)
def lios_rand(problem: Problem, devices: int, *, streams: int = 8, seed: int = 0) -> StreamPlan:
    """Algorithm 1 with random choices in Lines 6 and 10; equal seeds give equal plans."""
    draw = random.Random(seed)
    return _plan(problem, streams, operator_draw=draw, stream_draw=draw)


class LiosStep(NamedTuple):
    """One iteration of Algorithm 1, a row of table III. Streams count from 0, times are in milliseconds.

    Attributes:
        waiting: the wait list, operators by number.
        operator: the operator selected.
        est: its earliest start time EST on every stream (equation 1).
        stream: the stream selected.
        start_ms: ST, which is its EST there.
        finish_ms: FT, which is its EFT there (equation 2).
    """

    waiting: tuple[int, ...]
    operator: int
    est: tuple[float, ...]
    stream: int
    start_ms: float
    finish_ms: float


def steps(
    problem: Problem,
    streams: int,
    *,
    operator_draw: random.Random | None = None,
    stream_draw: random.Random | None = None,
) -> Iterator[LiosStep]:
    """Lines 2-15 of Algorithm 1: select an operator, then a stream, until the wait list is empty.

    Rank is the weight of the operator (equation 5). Of equals the first in the wait list and the first stream are
    taken (section IV-B and IV-C). Operators join the wait list in topological order, those that one operator made
    ready at the same time; the paper has a single entry, here all operators without predecessors are in the list
    at first. The times are those of the paper's latency model, in which operators do not slow each other.

    Streams x beyond the number of operators are left out. Draws are where the operator comes from instead of its rank
    (LIOS-Rand1, LIOS-Rand), and the stream instead of the earliest finish (LIOS-Rand2, LIOS-Rand).
    """
    free = [0.0] * min(streams, len(problem))
    finish = [0.0] * len(problem)
    missing = [len(row) for row in problem.predecessors]
    waiting = [operator for operator in problem.order if missing[operator] == 0]
    while waiting:
        if operator_draw is None:
            operator = max(waiting, key=problem.time.__getitem__)
        else:
            operator = operator_draw.choice(waiting)
        ready = max((finish[predecessor] for predecessor, _ in problem.predecessors[operator]), default=0.0)
        est = tuple(max(time, ready) for time in free)
        # EFT is EST plus the same weight on every stream, so the smallest of one is the smallest of the other.
        stream = est.index(min(est)) if stream_draw is None else stream_draw.randrange(len(est))
        finish[operator] = free[stream] = est[stream] + problem.time[operator]
        yield LiosStep(tuple(waiting), operator, est, stream, est[stream], finish[operator])
        waiting.remove(operator)
        for successor, _ in problem.successors[operator]:
            missing[successor] -= 1
            if missing[successor] == 0:
                waiting.append(successor)


def _plan(problem: Problem, streams: int, **draws: random.Random) -> StreamPlan:
    """The plan of Algorithm 1; operators are launched in the order in which they were selected."""
    rows: list[list[int]] = [[] for _ in range(min(streams, len(problem)))]
    launch = []
    for step in steps(problem, streams, **draws):
        rows[step.stream].append(step.operator)
        launch.append(step.operator)
    return StreamPlan((tuple(tuple(row) for row in rows if row),), tuple(launch))
