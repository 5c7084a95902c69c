"""The search where operators may take several devices: chains with one device an operator, then with several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hios.evaluate import evaluate, latency_ms
from hios.problem import Problem
from hios.schedule import Plan, StagedPlan, StreamPlan
from hios.schedulers.hios_wide import WideList
from hios.schedulers.opt.annealing import Chain
from hios.schedulers.opt.searching import CHAINS, Clock, anneal
from hios.schedulers.opt.wide_chain import WideChain
from hios.schedulers.opt.wide_kernel import MOST_DEVICES

#: Share of the time limit at which the first part of the search ends.
_FIRST = 1 / 3


def search_wide(
    problem: Problem,
    devices: int,
    plans: Sequence[Plan],
    staged: Sequence[StagedPlan],
    bound: float,
    clock: Clock,
    *,
    moves: int,
    seed: int,
) -> tuple[list[Plan], int]:
    """Plans that chains of simulated annealing find, and the number of their moves.

    In the first part of the time two chains give every operator one device and form stages, just as where operators
    may take no more. In the second part two others give operators several: from the best plan so far, and from the
    best that has an operator on several devices. Beyond ``MOST_DEVICES`` devices there is the first part alone.

    Args:
        problem: graph and costs, with the times on ``devices``.
        devices: number of devices.
        plans: plans by latency, ascending; at least one.
        staged: plans that chains with stages can start from, by latency.
        bound: milliseconds.
        clock: of the whole search.
        moves: of each chain; 0 for no limit.
        seed: of the random numbers.
    """
    narrow = [
        Chain(problem, devices, staged[min(number, len(staged) - 1)], seed * CHAINS + number)
        for number in range(CHAINS)
    ]
    several = devices <= MOST_DEVICES
    anneal(narrow, bound, clock, moves, _FIRST if several else 1.0)
    found: list[Plan] = [chain.plan() for chain in narrow]
    if not several:
        return found, sum(chain.moves for chain in narrow)
    lists = sorted(_lists(problem, [*plans, *found]), key=lambda each: each.latency_ms)
    starts = (lists[0], next((each for each in lists if max(each.widths) > 1), lists[0]))
    wide = [WideChain(problem, devices, start, seed * CHAINS + number) for number, start in enumerate(starts)]
    anneal(wide, bound, clock, moves, 1.0)
    found += [chain.best().plan(devices) for chain in wide]
    return found, sum(chain.moves for chain in narrow) + sum(chain.moves for chain in wide)


def compile_search(problem: Problem, devices: int) -> None:
    """Have the search compiled, which takes some seconds on first use."""
    if devices <= MOST_DEVICES:
        (start,) = _lists(problem, [fastest_in_sequence(problem, devices)])
        WideChain(problem, devices, start, 0).run(0.0, 1)


def fastest_in_sequence(problem: Problem, devices: int) -> StreamPlan:
    """One operator after another, each on as many devices as it takes least time on."""
    held = []
    for operator, alone in enumerate(problem.time):
        times = {1: alone, **problem.wide_ms.get(operator, {})}
        held.append(tuple(range(min(times, key=times.__getitem__))))
    return WideList(0.0, tuple(problem.order), tuple(held)).plan(devices)


def _lists(problem: Problem, plans: Iterable[Plan]) -> list[WideList]:
    """Plans as lists of operators, those of a stage one after another; without plans of several streams a device."""
    lists = []
    for plan in plans:
        if isinstance(plan, StreamPlan) and any(len(streams) > 1 for streams in plan.devices):
            continue
        rows = evaluate(problem, _single(plan) if isinstance(plan, StagedPlan) else plan)
        index = problem.graph.index
        held: list[tuple[int, ...]] = [()] * len(problem)
        for row in rows:
            held[index[row.operator]] = row.held_devices
        lists.append(WideList(latency_ms(rows), tuple(index[row.operator] for row in rows), tuple(held)))
    return lists


def _single(plan: StagedPlan) -> StagedPlan:
    return StagedPlan(
        tuple(tuple(((operator,),) for stage in row for group in stage for operator in group) for row in plan.devices)
    )
