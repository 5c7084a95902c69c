"""hios-opt: an anytime search over placement, order and grouping, with a proven bound. Our own algorithm."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hios.core.bounds import lower_bound_ms
from hios.core.evaluate import evaluate, latency_ms
from hios.core.problem import Problem
from hios.core.schedule import Plan, Solution, StagedPlan, StreamPlan
from hios.errors import HiosError
from hios.schedulers.deadline import check_deadline, until
from hios.schedulers.hios_wide import best_list
from hios.schedulers.opt.search_limits import CHAINS, Clock, is_open
from hios.schedulers.registry import ALGORITHMS, Parameter, register

NAME = "hios-opt"
#: Only a list schedule if operators take one device each.
_WIDE = "hios-wide"
#: Algorithms whose plans it does not start from: itself, and one that is only a slower search without trained weights.
_NO_STARTS = (NAME, "gpg")
#: Share of the time limit after which no further algorithm is run for a starting plan, and the share of annealing if
#: constraint programming follows.
_STARTS, _ANNEALING = 0.5, 0.4
#: Share of the remaining time for the solver, which needs some to set up and to stop.
_SOLVER = 0.9


@register(
    NAME,
    paper="hios; simulated annealing, heads and tails, CP-SAT (no paper)",
    summary="searches from the best of all others but gpg until the time is up or the gap to a proven bound is closed",
    several_devices=True,
    demand="slots, arithmetic and bandwidth, in t(S)",
    parameters=(
        Parameter("seed", 0, "seed of the random numbers", minimum=0),
        Parameter("time_limit", 10.0, "seconds of search; it ends earlier when the gap is closed", minimum=0),
        Parameter(
            "moves",
            0,
            "moves of each chain, which makes results reproducible; 0: no limit",
            minimum=0,
        ),
    ),
    threads=CHAINS,
)
def hios_opt(problem: Problem, devices: int, *, seed: int = 0, time_limit: float = 10.0, moves: int = 0) -> Solution:
    """Starts from the plans of all other algorithms but `gpg`, improves the best, and proves how good the result is.

    1. Every other algorithm of hios but `gpg`, which searches longer on one device, runs with its defaults (those for
       one device on one), unless a bound says that it cannot be better. Their best plan is the first candidate: the
       result is never worse than any of them; `gpg` alone may find a better one. Algorithms without a plan after
       half of the time are left out, and the notes name them.
    2. Two chains of simulated annealing work on one list of stages with their devices. A move takes an operator
       into a stage of its own or into another stage, takes a stage or a few connected ones to another device, or
       lets two devices exchange what they run from some position on. Stages may hold operators that depend on each
       other; these form a group. Measured stages cost what was measured. Each move is timed from the first stage
       that it changes, only as far as it has an effect and can still be kept (`hios.schedulers.opt.moves`).
    3. The lower bound is `interval_bound_ms`, which holds for all schedules. Where grouping gains nothing, staged
       schedules of whole times end at whole times, so their bound is rounded up; and where there are no transfers
       either, CP-SAT takes the last part of the time to find a shorter staged schedule or to prove that there is
       none. Streams may be shorter, as operators that share a device there preempt each other; so this is a bound
       of its own, ``staged_lower_bound_ms`` of the schedule.

    Where operators may take several devices at once (``wide_ms`` of the costs), the starts are also every operator on
    as many devices as it takes least time on, one after another, so the result is never worse than the better of
    one device each and that. After the first third of the time, spent as above, two chains give operators several
    devices: a move takes an operator to another place in the list, or to other devices, or to another number of them;
    stages of several operators are not formed there. The bound is the best of the above and `trade_off_bound_ms`, which
    weighs the path against the area; nothing is rounded up and CP-SAT is not asked. Where merges make the plan of
    ``hios-wide`` the best, one of these chains starts from it and keeps its merges, each of which it moves as a single
    operator; the other one has none. See `hios.schedulers.opt.annealing`.

    It ends early when the gap between latency and the bound for staged schedules is closed. With ``time_limit`` the
    machine's speed decides how many moves are made; with ``moves`` a seed gives the same schedule everywhere, as
    long as neither the time limit nor CP-SAT interferes. Compiling the search takes some seconds on first use and is
    not counted; it is kept on disk.

    Not searched: which operators to merge, and streams (plans that use them are kept if they are best).

    Raises:
        ModuleNotFoundError: numba or OR-tools are not installed (extra ``opt``).
    """
    from hios.schedulers.opt.annealing import StagedChain, compile_search, fits, search_wide
    from hios.schedulers.opt.lower_bounds import proven_bound_ms, staged_bound_ms

    whole = StagedPlan((tuple(((operator,),) for operator in problem.order), *((),) * (devices - 1)))
    clock = Clock(time.perf_counter(), time_limit)
    bound = proven_bound_ms(problem, devices)
    staged_bound = 0.0 if problem.has_widths else staged_bound_ms(problem, bound)
    starts, left_out = _starts(problem, devices, bound, clock)
    best = starts[0]
    notes = {"start": f"{best.name}, {best.latency_ms:.6g} ms"}
    if left_out:
        notes["not compared"] = ", ".join(left_out)
    if is_open(best.latency_ms, max(bound, staged_bound)):
        plans = [start.plan for start in starts]
        staged = [plan for plan in plans if isinstance(plan, StagedPlan) and fits(problem, plan)] or [whole]
        began = clock.spent()
        StagedChain(problem, devices, whole, seed).run(0.0, 1)  # compiles, which the clock does not count
        if problem.has_widths:
            compile_search(problem, devices)
        clock = Clock(clock.began + clock.spent() - began, time_limit)
        if problem.has_widths:
            wide, made = search_wide(problem, devices, plans, staged, bound, clock, moves=moves, seed=seed)
            results = [_Start(NAME, plan, latency_ms(evaluate(problem, plan))) for plan in wide]
        else:
            result, made, staged_bound = _search_staged(
                problem, devices, staged, staged_bound, clock, moves=moves, seed=seed
            )
            results = [result]
        notes["search"] = f"{made} moves"
        best = min([best, *results], key=lambda each: each.latency_ms)
    return Solution(best.plan, bound, notes, staged_bound)


@dataclass(frozen=True, slots=True)
class _Start:
    name: str
    plan: Plan
    latency_ms: float


def _search_staged(
    problem: Problem,
    devices: int,
    staged: Sequence[StagedPlan],
    bound: float,
    clock: Clock,
    *,
    moves: int,
    seed: int,
) -> tuple[_Start, int, float]:
    """The best of what chains from staged plans find, the number of their moves, and a bound on staged schedules.

    ``bound`` is the one known before.
    """
    from hios.schedulers.opt.annealing import apart, search_staged
    from hios.schedulers.opt.lower_bounds import provable, prove

    proving = provable(problem)
    share = _ANNEALING if proving else 1.0
    chains = search_staged(problem, devices, staged, bound, clock, share, moves=moves, seed=seed)
    plan = min(chains, key=lambda chain: chain.latency_ms).plan()
    latency = latency_ms(evaluate(problem, plan))
    if proving and is_open(latency, bound):
        plan, latency, bound = prove(
            problem, devices, apart(plan), latency, bound, time_limit=_SOLVER * clock.left(), seed=seed
        )
    return _Start(NAME, plan, latency), sum(chain.moves for chain in chains), bound


def _starts(problem: Problem, devices: int, bound: float, clock: Clock) -> tuple[list[_Start], list[str]]:
    """Plans of the other algorithms but `gpg` by latency, and the names of those that ran out of time.

    Where operators may take several devices, also each at its fastest in sequence, and ``hios-wide`` without merges.
    """
    starts: list[_Start] = []
    left_out: list[str] = []
    bound_of_one = max(bound, lower_bound_ms(problem, 1))
    # Algorithms of others stay out: which of them are registered depends on what was asked for before.
    # What is quick or good first: IOS and HIOS-MR take longest on large graphs.
    entries = sorted(
        filter(lambda entry: entry.is_own, ALGORITHMS.values()),
        key=lambda entry: (entry.name == "ios", entry.name.startswith("hios-mr"), not entry.several_devices),
    )
    for entry in entries:
        least = bound if entry.several_devices else bound_of_one
        if entry.name in _NO_STARTS or (entry.name == _WIDE and not problem.has_widths):
            continue
        if starts and not is_open(min(start.latency_ms for start in starts), least):
            continue
        try:
            with until(clock.began + _STARTS * clock.limit if starts else math.inf):
                check_deadline()
                plan = entry.solve(problem, devices if entry.several_devices else 1).plan
        except HiosError:  # no time, or blocks that IOS cannot use
            left_out.append(entry.name)
            continue
        rows: Any = (*plan.devices, *((),) * (devices - len(plan.devices)))  # further devices are idle
        starts.append(_Start(entry.name, replace(plan, devices=rows), latency_ms(evaluate(problem, plan))))
    if problem.has_widths:
        from hios.schedulers.opt.annealing import fastest_in_sequence

        if any(isinstance(start.plan, StreamPlan) and start.plan.merges for start in starts):
            apart = best_list(problem, devices)[0]
            starts.append(_Start(f"{_WIDE} without merges", apart.plan(devices), apart.latency_ms))
        sequence = fastest_in_sequence(problem, devices)
        latency = latency_ms(evaluate(problem, sequence))
        starts.append(_Start("each operator at its fastest, in sequence", sequence, latency))
    return sorted(starts, key=lambda start: start.latency_ms), left_out
