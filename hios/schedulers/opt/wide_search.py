"""The search with operators on several devices: chains with one device an operator, then with several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hios.core.bounds import least_ms
from hios.core.contraction import Contraction
from hios.core.evaluate import evaluate, latency_ms
from hios.core.problem import Problem
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.schedulers.hios_wide import WideList
from hios.schedulers.opt import wide_kernel
from hios.schedulers.opt.annealing import Chain, StagedChain, apart, edges_of
from hios.schedulers.opt.moves import DEVICE
from hios.schedulers.opt.parallel_search import CHAINS, Clock, anneal
from hios.schedulers.opt.wide_kernel import MOST_DEVICES, OPERATOR, OPTION, STATE, TOUCHED, WideSearch

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
    best that has an operator on several devices. Where a plan with merges is better than all without, the first of
    them starts from that one and keeps its merges, as operators of a problem of its own (`Contraction`). Beyond
    ``MOST_DEVICES`` devices there is the first part alone.

    ``plans`` (at least one) and ``staged``, which chains with stages can start from, are by ascending latency;
    ``bound`` is in milliseconds; ``moves`` are those of each chain, 0 for no limit.
    """
    narrow = [
        StagedChain(problem, devices, staged[min(number, len(staged) - 1)], seed * CHAINS + number)
        for number in range(CHAINS)
    ]
    several = devices <= MOST_DEVICES
    anneal(narrow, bound, clock, moves, _FIRST if several else 1.0)
    plans_found: list[Plan] = [chain.plan() for chain in narrow]
    if not several:
        return plans_found, sum(chain.moves for chain in narrow)
    lists = sorted(_lists(problem, [*plans, *plans_found]), key=lambda each: each.latency_ms)
    first, second = lists[0], next((each for each in lists if max(each.widths) > 1), lists[0])
    wide = [WideChain(problem, devices, start, seed * CHAINS + number) for number, start in enumerate((first, second))]
    merged = next((plan for plan in plans if isinstance(plan, StreamPlan) and plan.merges), None)
    contraction = None
    if merged is not None and latency_ms(evaluate(problem, merged)) < first.latency_ms:
        contraction = Contraction(problem, merged.merges)
        (start,) = _lists(contraction.problem, [contraction.contracted(merged)])
        wide[0] = WideChain(contraction.problem, devices, start, seed * CHAINS)
    anneal(wide, bound, clock, moves, 1.0)
    plans_wide = [chain.best().plan(devices) for chain in wide]
    if contraction is not None:
        plans_wide[0] = contraction.expanded(plans_wide[0])
    plans_found += plans_wide
    return plans_found, sum(chain.moves for chain in narrow) + sum(chain.moves for chain in wide)


def compile_search(problem: Problem, devices: int) -> None:
    """Compile the search, which takes some seconds on first use."""
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
    """Plans as lists of operators, those of a stage one after another.

    Plans of several streams a device or with streams of merged operators are left out.
    """
    lists = []
    for plan in plans:
        if isinstance(plan, StreamPlan) and (plan.merges or any(len(streams) > 1 for streams in plan.devices)):
            continue
        rows = evaluate(problem, apart(plan) if isinstance(plan, StagedPlan) else plan)
        index = problem.graph.index
        held: list[tuple[int, ...]] = [()] * len(problem)
        for row in rows:
            held[index[row.operator]] = row.held_devices
        lists.append(WideList(latency_ms(rows), tuple(index[row.operator] for row in rows), tuple(held)))
    return lists


class WideChain(Chain):
    """A chain over operators that starts from a list schedule.

    The problem has the times on ``devices``, at most ``MOST_DEVICES``.
    """

    def __init__(self, problem: Problem, devices: int, start: WideList, seed: int) -> None:
        n = len(problem)
        rows = [[(1, problem.time[v]), *problem.wide_ms.get(v, {}).items()] for v in range(n)]
        options = np.array([option for row in rows for option in row], OPTION)
        operators = np.zeros(n + 1, OPERATOR)
        operators["changed"] = operators["marked"] = -1
        inputs, outputs = edges_of(operators, problem)
        operators["first_option"][1:] = np.cumsum([len(row) for row in rows])
        for operator in reversed(problem.order):
            after = [operators["tail"][w] + least_ms(problem, w) for w, _ in problem.successors[operator]]
            operators["tail"][operator] = max(after, default=0.0)
        order = np.array(start.order, np.int64)
        operators["position"][order] = np.arange(n)
        for operator, held in enumerate(start.devices):
            option = operators["first_option"][operator] + [width for width, _ in rows[operator]].index(len(held))
            operators["option"][operator] = option
            operators["duration"][operator] = options["time"][option]
            operators["device"][operator] = held[0]
            operators["held"][operator] = sum(1 << device for device in held)
        self._search = WideSearch(
            operators,
            inputs,
            outputs,
            options=options,
            order=order,
            best_operators=operators[:n].copy(),
            best_order=order.copy(),
            devices=np.zeros(devices, DEVICE),
            touched=np.zeros(n, TOUCHED),
            critical=np.zeros(n, np.int64),
            states=np.zeros(1, STATE),
            starts=np.zeros(n),
        )
        super().__init__(problem, self._search.states[0], seed)
        self._time_start()

    def _time_start(self) -> None:
        search, state = self._search, self._state
        state["iteration"], state["last"], state["moved"] = 1, len(search.order), -1
        search.operators["finish"] = -1.0
        search.operators["marked"] = 1
        latency = wide_kernel.timed(search, np.inf)
        wide_kernel.keep(search, latency)
        state["best"] = latency
        search.best_operators[:] = search.operators[:-1]

    def _anneal(self, temperature_ms: float, moves: int) -> tuple[Any, Any, Any]:
        wide_kernel.anneal_wide(self._search, temperature_ms, moves)
        return self._search.operators, self._search.order, self._search.starts

    def best(self) -> WideList:
        """The best list so far."""
        operators, number_of_devices = self._search.best_operators, len(self._search.devices)
        held = []
        for first, bits in zip(operators["device"].tolist(), operators["held"].tolist(), strict=True):
            others = [device for device in range(number_of_devices) if bits >> device & 1 and device != first]
            held.append((first, *others))
        return WideList(self.latency_ms, tuple(self._search.best_order.tolist()), tuple(held))
