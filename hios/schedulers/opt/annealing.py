"""Chains of simulated annealing: a problem and a plan as arrays, and back.

With operators on several devices, chains with one device an operator come first, then chains with several.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from hios.core.bounds import least_ms
from hios.core.contraction import Contraction
from hios.core.evaluate import evaluate, latency_ms, staged_times
from hios.core.problem import Group, Problem, Stage, members
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.core.sums import add_up
from hios.schedulers.hios_wide import WideList
from hios.schedulers.opt import staged_kernel, wide_kernel
from hios.schedulers.opt.moves import DEVICE, EDGE, MOST_DEVICES, STATE, TOUCHED, Search, keep, set_after, timed
from hios.schedulers.opt.search_limits import CHAINS, Clock, is_open
from hios.schedulers.opt.staged_kernel import MEASURED, MOST_MEMBERS, OPERATOR, SAVED_ORDER, SPARE, STAGE
from hios.schedulers.opt.wide_kernel import OPTION

#: Temperatures at the beginning and at the end, in mean times of an operator; chosen by measurement.
_HOTTEST, _COLDEST = 0.2, 0.001
#: Approximate number of operators timed between two checks of the clock: a few milliseconds.
_SLICE = 1_000_000


class Chain(ABC):
    """A chain of simulated annealing over the items of a list; equal seeds make equal moves.

    Operators, items and ``order`` are arrays of a `Search`, and so is whatever only some searches have.
    """

    def __init__(
        self, problem: Problem, devices: int, operators: Any, items: Any, order: Any, seed: int, **more: Any
    ) -> None:
        operators["first_input"][1:] = _ends(problem.predecessors)
        operators["first_output"][1:] = _ends(problem.successors)
        inputs, outputs = (
            np.array([pair for row in rows for pair in row], EDGE)
            for rows in (problem.predecessors, problem.successors)
        )
        items["changed"] = items["marked"] = -1
        self._search = Search(
            operators,
            inputs,
            outputs,
            items,
            order,
            best_items=items.copy(),
            best_order=order.copy(),
            devices=np.zeros(devices, DEVICE),
            touched=np.zeros(len(items), TOUCHED),
            critical=np.zeros(len(problem), np.int64),
            states=np.zeros(1, STATE),
            starts=np.zeros(len(items)),
            **more,
        )
        self._problem, self._state = problem, self._search.states[0]
        # Random numbers must not begin with 0; neighboring seeds give distant states.
        self._state["random"] = (seed * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) % 2**64 or 1
        #: Moves made so far.
        self.moves = 0
        #: Moves between two checks of the clock.
        self.slice = max(1, _SLICE // len(problem))

    @property
    def latency_ms(self) -> float:
        """Latency of the best candidate so far, in milliseconds."""
        return float(self._state["best"])

    def run(self, progress: float, moves: int) -> None:
        """Try moves at the temperature of a progress between 0 (hottest) and 1; releases the interpreter lock.

        Before 0 it is hotter still.
        """
        mean = add_up(self._problem.time) / len(self._problem)
        self._anneal(mean * _HOTTEST * float((_COLDEST / _HOTTEST) ** progress), moves)
        count = self._state["count"]
        order, starts = self._search.order[:count], self._search.starts[:count]
        # In the order of start times, neighbors in the list are neighbors in time.
        order[:] = order[np.argsort(starts, kind="stable")]  # stable: the list stays an order in which all can run
        self._search.items["position"][order] = np.arange(count)
        self.moves += moves

    @abstractmethod
    def _anneal(self, temperature_ms: float, moves: int) -> None:
        """Try moves; ``starts`` are then the starts of each place of the list."""


def anneal(chains: Sequence[Chain], bound: float, clock: Clock, moves: int, share: float) -> None:
    """Run chains side by side until the gap is closed or their moves or their share of the time is spent.

    ``bound`` is in milliseconds; ``moves`` are those of each chain, independently of the others, 0 for no limit;
    ``share`` is the share of the time limit at which they end.
    """
    end = share * clock.limit
    began = clock.spent()
    stop = threading.Event()

    def run(chain: Chain) -> None:
        while not stop.is_set() and is_open(
            chain.latency_ms if moves else min(other.latency_ms for other in chains), bound
        ):
            spent = clock.spent()
            if spent >= end or (moves and chain.moves >= moves):
                break
            if moves:
                chain.run(chain.moves / moves, min(chain.slice, moves - chain.moves))
            else:
                chain.run((spent - began) / (end - began), chain.slice)

    with ThreadPoolExecutor(len(chains)) as pool:
        try:
            for done in [pool.submit(run, chain) for chain in chains]:
                done.result()
        finally:
            stop.set()  # Ctrl-C reaches only the main thread; the pool waits for the others


def _ends(rows: Sequence[Sequence[Any]]) -> Any:
    return np.cumsum([len(row) for row in rows])


class StagedChain(Chain):
    """A chain over stages that starts from a plan; `fits` says whether the stages of one can be represented."""

    def __init__(self, problem: Problem, devices: int, plan: StagedPlan, seed: int) -> None:
        n = len(problem)
        self._as_measured = _as_measured(problem)
        super().__init__(
            problem,
            devices,
            _operators(problem),
            np.zeros(n + 1, STAGE),
            np.full(n + 1, -1),
            seed,
            measured=_measured(self._as_measured),
            saved=np.zeros(2, STAGE),
            lists=np.zeros((SAVED_ORDER + 1, n + 1), np.int64),
            room=np.zeros((4, MOST_MEMBERS), np.int64),
            progress=np.zeros((5, MOST_MEMBERS)),
        )
        self._state["alpha"] = -1.0 if problem.alpha is None else problem.alpha
        self._state["barrier"] = problem.barrier_ms
        self._start(plan)

    def _start(self, plan: StagedPlan) -> None:
        times = staged_times(self._problem, plan)
        state, stages, order = self._state, self._search.items, self._search.order
        for number, (_, finish, device, index) in enumerate(times):
            members = [operator for group in plan.devices[device][index] for operator in group]
            stage = stages[number]
            stage["position"], stage["device"], stage["size"] = number, device, len(members)
            stage["members"][: len(members)] = members
            stage["duration"], stage["finish"] = self._problem.stage_ms(plan.devices[device][index]), finish
            self._search.operators["item"][members] = number
        order[: len(times)] = np.arange(len(times))
        spares = len(stages) - len(times)
        self._search.lists[SPARE, :spares] = np.arange(len(times), len(stages))
        state["count"], state["spares"] = len(times), spares
        state["latency"] = state["best"] = max(finish for _, finish, _, _ in times)
        set_after(self._search)
        self._search.best_items[:], self._search.best_order[:] = stages, order

    def _anneal(self, temperature_ms: float, moves: int) -> None:
        staged_kernel.anneal(self._search, temperature_ms, moves)

    def plan(self) -> StagedPlan:
        """The best plan so far."""
        rows: list[list[Stage]] = [[] for _ in self._search.devices]
        best = self._search.best_order
        for number in best[best >= 0]:
            stage = self._search.best_items[number]
            members = stage["members"][: stage["size"]].tolist()
            own = groups(self._problem, sorted(members, key=self._problem.place.__getitem__))
            rows[stage["device"]].append(self._as_measured.get(frozenset(own), (0.0, own))[1])
        return StagedPlan(tuple(map(tuple, rows)))


def groups(problem: Problem, members: list[int]) -> Stage:
    """The groups of a stage: operators that depend on each other, directly or through others of it, share one.

    ``members`` are in topological order.
    """
    merged: list[list[int]] = []
    for operator in members:
        before = {predecessor for predecessor, _ in problem.predecessors[operator]}
        joined = [group for group in merged if before.intersection(group)]
        merged = [group for group in merged if group not in joined]
        # The groups that meet here do not depend on each other, so any order of them is one.
        merged.append([*sorted(member for group in joined for member in group), operator])
    return tuple(tuple(sorted(group, key=problem.place.__getitem__)) for group in merged)


def apart(plan: StagedPlan) -> StagedPlan:
    """The plan with every operator in a stage of its own: no longer if grouping gains nothing."""
    return StagedPlan(
        tuple(tuple(((operator,),) for stage in row for group in stage for operator in group) for row in plan.devices)
    )


def fits(problem: Problem, plan: StagedPlan) -> bool:
    """Whether a chain can start from a plan: no merges, stages not too large, groups as `groups` makes them."""
    if plan.merges:
        return False
    for row in plan.devices:
        for stage in row:
            members = sorted((operator for group in stage for operator in group), key=problem.place.__getitem__)
            if len(members) > MOST_MEMBERS:
                return False
            if len(members) > 1 and len(stage) > 1 and set(groups(problem, members)) != set(stage):
                return False
            if len(stage) == 1 and len(groups(problem, members)) > 1:
                return False
    return True


def _operators(problem: Problem) -> Any:
    records = np.zeros(len(problem) + 1, OPERATOR)
    records["time"][:-1] = problem.time
    records["work"][:-1] = records["time"][:-1] * problem.utilization
    records["demand"][:-1] = problem.demand or 0.0
    records["place"][:-1] = problem.place
    if not problem.measured:  # a measured stage may be shorter than its operators, so there is no bound
        tail = records["tail"]
        for operator in reversed(problem.order):
            after = [tail[successor] + problem.time[successor] for successor, _ in problem.successors[operator]]
            tail[operator] = max(after, default=0.0)
    return records


def _as_measured(problem: Problem) -> dict[frozenset[Group], tuple[float, Stage]]:
    """Measured stages of several groups, by their groups as `groups` makes them: their time, and as they were measured.

    A group may have been measured in other orders than that, in which it can run as well; the fastest counts.
    """
    fastest: dict[frozenset[Group], tuple[float, Stage]] = {}
    for measured, time in problem.measured.items():
        if len(measured) == 1 or sum(map(len, measured)) > MOST_MEMBERS:
            continue
        stage = tuple(tuple(sorted(group, key=problem.place.__getitem__)) for group in sorted(measured))
        key = frozenset(stage)
        if key not in fastest:
            fastest[key] = (problem.measured.get(key, problem.modeled_stage_ms(stage)), stage)
        if time < fastest[key][0] and all(_can_run(problem, group) for group in measured):
            fastest[key] = (time, tuple(sorted(measured)))
    return fastest


def _can_run(problem: Problem, group: Group) -> bool:
    """Whether no operator of a group stands before one that it depends on."""
    return not any(
        predecessor in group[place:]
        for place, operator in enumerate(group)
        for predecessor, _ in problem.predecessors[operator]
    )


def _measured(stages: Mapping[frozenset[Group], tuple[float, Stage]]) -> Any:
    rows = np.array([(_key(key), time) for key, (time, _) in stages.items()], MEASURED)
    return rows[np.argsort(rows["key"])]


def _key(stage: Iterable[Group]) -> Any:
    operators = np.array([operator for group in stage for operator in group], np.int64)
    numbers = np.array([number for number, group in enumerate(stage) for _ in group], np.int64)
    return staged_kernel.stage_key(numbers, operators, len(operators))


def search_staged(
    problem: Problem,
    devices: int,
    staged: Sequence[StagedPlan],
    bound: float,
    clock: Clock,
    share: float,
    *,
    moves: int,
    seed: int,
) -> list[StagedChain]:
    """Chains over stages from the first plans, which are by ascending latency, after their search as in `anneal`."""
    chains = [
        StagedChain(problem, devices, staged[min(number, len(staged) - 1)], seed * CHAINS + number)
        for number in range(CHAINS)
    ]
    anneal(chains, bound, clock, moves, share)
    return chains


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
    several = devices <= MOST_DEVICES
    narrow = search_staged(problem, devices, staged, bound, clock, _FIRST if several else 1.0, moves=moves, seed=seed)
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
        operators = np.zeros(n + 1, wide_kernel.OPERATOR)
        operators["item"] = operators["members"][:, 0] = np.arange(n + 1)
        operators["size"] = 1
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
        super().__init__(problem, devices, operators, operators, order, seed, options=options)
        self._time_start()

    def _time_start(self) -> None:
        search, state = self._search, self._state
        state["iteration"], state["count"], state["last"], state["moved"] = 1, len(search.order), len(search.order), -1
        search.items["finish"] = -1.0
        search.items["marked"] = 1
        latency = timed(search, np.inf)
        keep(search, latency)
        state["best"] = latency
        search.best_items[:] = search.items

    def _anneal(self, temperature_ms: float, moves: int) -> None:
        wide_kernel.anneal_wide(self._search, temperature_ms, moves)

    def best(self) -> WideList:
        """The best list so far."""
        operators = self._search.best_items[:-1]
        held = []
        for first, devices in zip(operators["device"].tolist(), operators["held"].tolist(), strict=True):
            held.append((first, *(device for device in members(devices) if device != first)))
        return WideList(self.latency_ms, tuple(self._search.best_order.tolist()), tuple(held))
