"""The search of hios-opt, also with operators on several devices: chains as evaluated, bounds, indices."""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
import random
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hios import ALGORITHMS, Costs, Edge, Graph, Operator, Problem, Schedule, evaluate, schedule, violations
from hios.core.costs import Demand
from hios.core.evaluate import latency_ms, staged_times
from hios.core.problem import Stage, positions
from hios.core.schedule import StagedPlan
from hios.schedulers import opt
from hios.schedulers.hios_wide import WEIGHTS, list_schedule
from hios.schedulers.opt import annealing, lower_bounds, staged_kernel, wide_kernel
from hios.schedulers.opt import moves as search_moves
from hios.schedulers.opt.annealing import StagedChain, WideChain, fastest_in_sequence, fits, groups
from hios.schedulers.opt.lower_bounds import interval_bound_ms, proven_bound_ms, trade_off_bound_ms
from hios.schedulers.opt.moves import SOURCES, Search
from hios.schedulers.opt.staged_kernel import MOST_MEMBERS, SPARE
from hios.verify.consistency import bound_problems
from tests.problems import in_sequence, problem, problems, sharing_problems, wide_problems
from tests.wide_plans import least_latency

#: Progress of annealing, and beyond its beginning: there every move is kept.
_TEMPERATURES = [-3.0, 0.0, 0.5, 1.0]
#: Moves of a slice: between slices the list is sorted and looked at.
_SLICES = [1, 2, 5, 30]


def _members(problem: Problem, rng: random.Random) -> Stage:
    """Groups of random operators."""
    count = rng.randint(1, min(5, len(problem)))
    place = positions(problem.order)
    return groups(problem, sorted(rng.sample(range(len(problem)), count), key=place.__getitem__))


@st.composite
def measured(draw: st.DrawFn, largest: int = 10) -> Problem:
    """Problems with measured stages: faster and slower than the model, and of orders that cannot run.

    Operators blend or share resources, with overheads.
    """
    instance = draw(st.one_of(problems(largest), sharing_problems(largest)))
    rng = random.Random(draw(st.integers(0, 1000)))
    for _ in range(draw(st.integers(0, 8))):
        stage = _members(instance, rng)
        if len(stage) > 1:
            shuffled = frozenset(tuple(rng.sample(group, len(group))) for group in stage)
            instance.measured[shuffled] = instance.modeled_stage_ms(stage) * rng.choice([0.0, 0.5, 0.9, 1.5])
    return instance


def _start(problem: Problem, devices: int, algorithm: str) -> StagedPlan:
    """The plan of an algorithm, if a chain can start from it."""
    plan = ALGORITHMS[algorithm].solve(problem, devices).plan
    return plan if isinstance(plan, StagedPlan) and fits(problem, plan) else in_sequence(problem, devices)


def _current(problem: Problem, chain: StagedChain) -> tuple[StagedPlan, list[list[int]]]:
    """The candidate as a plan, and the numbers of its stages."""
    place = positions(problem.order)
    rows: list[list[Stage]] = [[] for _ in chain._search.devices]
    numbers: list[list[int]] = [[] for _ in chain._search.devices]
    for number in chain._search.order[: chain._state["count"]]:
        stage = chain._search.items[number]
        stage_groups = groups(problem, sorted(stage["members"][: stage["size"]].tolist(), key=place.__getitem__))
        # The order in which it was measured, if it was.
        rows[stage["device"]].append(chain._as_measured.get(frozenset(stage_groups), (0.0, stage_groups))[1])
        numbers[stage["device"]].append(int(number))
    return StagedPlan(tuple(map(tuple, rows))), numbers


def _check(problem: Problem, chain: StagedChain) -> None:
    """Everything that a chain keeps up to date against the evaluator."""
    state, stages = chain._state, chain._search.items
    listed = chain._search.order[: state["count"]].tolist()
    spare = chain._search.lists[SPARE, : state["spares"]].tolist()
    assert sorted(listed + spare) == list(range(len(problem) + 1))
    assert stages["position"][listed].tolist() == list(range(len(listed)))
    for number in listed:
        members = stages[number]["members"][: stages[number]["size"]]
        assert set(chain._search.operators["item"][members]) == {number}
    assert stages["size"][listed].sum() == len(problem)
    home = chain._search.operators["item"]
    for operator in range(len(problem)):
        for successor, _ in problem.successors[operator]:
            before, after_it = stages["position"][home[operator]], stages["position"][home[successor]]
            assert before < after_it or home[operator] == home[successor]
    critical = chain._search.critical[: state["criticals"]].tolist()
    assert len(set(critical)) == len(critical)

    plan, numbers = _current(problem, chain)
    times = staged_times(problem, plan)
    latency = max(finish for _, finish, _, _ in times)
    after: dict[int, float] = {}
    for _, finish, device, index in reversed(times):
        number, stage = numbers[device][index], plan.devices[device][index]
        paths = [0.0]
        if index + 1 < len(numbers[device]):
            following = numbers[device][index + 1]
            paths.append(stages[following]["duration"] + after[following])
        for group in stage:
            for operator in group:
                for successor, transfer in problem.successors[operator]:
                    target = int(chain._search.operators[successor]["item"])
                    if target != number:
                        transfer = transfer if stages[target]["device"] != device else 0.0
                        paths.append(transfer + stages[target]["duration"] + after[target])
        after[number] = max(paths)
        assert stages[number]["duration"] == pytest.approx(problem.stage_ms(stage), rel=1e-9, abs=1e-9)
        assert stages[number]["finish"] == pytest.approx(finish, rel=1e-9, abs=1e-9)
        assert stages[number]["after"] == pytest.approx(after[number], rel=1e-9, abs=1e-9)
    assert state["latency"] == pytest.approx(latency, rel=1e-9, abs=1e-9)
    assert chain.latency_ms <= state["latency"]
    assert chain.latency_ms == pytest.approx(latency_ms(evaluate(problem, chain.plan())), rel=1e-9, abs=1e-9)


class _Array(np.ndarray):
    """An array that refuses negative indices; those beyond its end numpy refuses."""

    def __getitem__(self, index: Any) -> Any:
        _refuse_negative(index)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        _refuse_negative(index)
        super().__setitem__(index, value)


def _refuse_negative(index: Any) -> None:
    for number in index if isinstance(index, tuple) else (index,):
        if isinstance(number, (int, np.integer)) and number < 0:
            raise IndexError(f"index {number}")


class _Record:
    """A record whose fields are attributes, as numba has it; those of numpy's own clash with fields."""

    def __init__(self, record: Any) -> None:
        object.__setattr__(self, "_record", record)

    def __getattr__(self, name: str) -> Any:
        value = self._record[name]
        return value.view(_Array) if isinstance(value, np.ndarray) else value

    def __setattr__(self, name: str, value: Any) -> None:
        self._record[name] = value


class _Records:
    """An array of such records."""

    def __init__(self, records: Any) -> None:
        self._records, self.shape = records, records.shape

    def __getitem__(self, index: Any) -> Any:
        _refuse_negative(index)
        return _Record(self._records[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        _refuse_negative(index)
        self._records[index] = value._record


def _wrapped(value: Any) -> Any:
    if isinstance(value, Search):
        return Search(*map(_wrapped, value))
    if not isinstance(value, np.ndarray):
        return value
    return _Records(value) if value.dtype.names else value.view(_Array)


def _on_wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            return function(*map(_wrapped, arguments))

    return run


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The kernel without numba, which checks no bounds of arrays; chains use it."""
    kernel = _without_numba()
    for name in _CALLED:
        monkeypatch.setattr(kernel, name, _on_wrapped(getattr(kernel, name)))
    monkeypatch.setattr(annealing, "staged_kernel", kernel)
    return kernel


#: What chains call.
_CALLED = ("anneal", "stage_key")


def _without_numba() -> ModuleType:
    """The kernel imported again, with the functions that it shares, so that nothing in it is compiled."""
    modules = (staged_kernel, search_moves)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba.config, "DISABLE_JIT", True)
        for module in modules:
            patch.delitem(sys.modules, module.__name__)
        kernel = importlib.import_module(staged_kernel.__name__)
        for module in modules:
            patch.delitem(sys.modules, module.__name__)
    for module in modules:  # importing made others the package's
        setattr(opt, module.__name__.rpartition(".")[2], module)
    return kernel


class Judge:
    """What `judged` needs to know of the chain that runs."""

    problem: Problem
    chain: StagedChain
    moves = 0

    def run(self, problem: Problem, chain: StagedChain, temperature: float, moves: int) -> None:
        """Run the chain."""
        self.problem, self.chain = problem, chain
        chain.run(temperature, moves)
        _check(problem, chain)


@pytest.fixture
def judged(interpreted: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Every move is timed again by the evaluator."""
    judge = Judge()
    shared = interpreted.attempt.__globals__
    given_up = shared["timed"]

    def timed(*arguments: Any) -> float:
        bound, limit = given_up(*arguments), arguments[-1]
        judge.moves += 1
        plan = _current(judge.problem, judge.chain)[0]
        true = max(finish for _, finish, _, _ in staged_times(judge.problem, plan))
        if bound == np.inf:
            assert true > limit - 1e-9 * (1 + limit)
        else:
            assert bound == pytest.approx(true, rel=1e-9, abs=1e-9)
        return float(bound)

    monkeypatch.setitem(shared, "timed", timed)
    return judge


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    instance=measured(8),
    devices=st.sampled_from([1, 2, 3, 16]),
    temperature=st.sampled_from(_TEMPERATURES),
    seed=st.integers(0, 1000),
)
def test_indices_and_limits(judged: Judge, instance: Problem, devices: int, temperature: float, seed: int) -> None:
    """No index leaves its array; a move is given up exactly if its latency is beyond the limit, else timed right."""
    instance = instance.on(devices)
    chain = StagedChain(instance, devices, in_sequence(instance, devices), seed)
    for moves in (1, 15, 15):
        judged.run(instance, chain, temperature, moves)
    assert judged.moves or len(instance) == 1


_HARD = {
    # c waits for what b makes; b joins a stage that ends as before.
    "joined stage as long as before": (
        problem({"a": 5.0, "w": 9.0, "b": 1.0, "c": 1.0}, {("b", "c"): 0.0}, contention="none"),
        StagedPlan(((((0,),),), (((1,),), ((2,),)), (((3,),),))),
    ),
    # The longest path after the stage of a and b is that of a, which leaves it for a place before it.
    "left stage later than before": (
        problem({"a": 2.0, "b": 1.0, "c": 10.0}, {("a", "c"): 5.0}, contention="none"),
        StagedPlan(((((0,), (1,)),), (((2,),),))),
    ),
    # Operators that run together sooner than each would alone: no path says how long they take.
    "measured stage faster than its operators": (
        problem(
            {"p": 1.0, "a": 50.0, "b": 50.0, "q": 1.0, "z": 1.0, "y": 9.0},
            {("p", "a"): 0.5, ("a", "q"): 0.0},
            stages={frozenset({("a",), ("b",)}): 0.1},
        ),
        StagedPlan(((((0,),), ((1,), (2,)), ((3,),)), (((4,),),), (((5,),),))),
    ),
    # a ends as before on the device of c, which waits no longer for a transfer; x before c does not change.
    "moved stage that ends as before": (
        problem({"a": 1.0, "w": 3.0, "x": 1.0, "c": 1.0}, {("w", "x"): 0.0, ("a", "c"): 9.0}),
        StagedPlan(((((0,),),), (((2,),), ((3,),)), (((1,),),))),
    ),
    # What b makes is used inside its stage; the path after it begins behind the stage.
    "group of operators that depend on each other": (
        problem(
            {"z": 1.0, "a": 1.0, "b": 3.0, "c": 3.0, "d": 2.0, "e": 1.0},
            {("a", "b"): 0.0, ("b", "c"): 0.0, ("c", "e"): 0.0},
            utilization=dict.fromkeys("zabcde", 0.5),
        ),
        StagedPlan(((((0,),), ((1,),), ((2, 3), (4,)), ((5,),)), ())),
    ),
}


@pytest.mark.parametrize("case", sorted(_HARD))
def test_single_moves(judged: Judge, case: str) -> None:
    """Single moves from plans in which they are hard to time."""
    instance, plan = _HARD[case]
    for seed in range(300):
        chain = StagedChain(instance, len(plan.devices), plan, seed)
        judged.run(instance, chain, 0.0 if seed % 2 else 1.0, 1)


@pytest.mark.parametrize("contention", ["blend", "resources"])
def test_compiled_and_interpreted_do_the_same(interpreted: ModuleType, contention: str) -> None:
    """The kernel makes the same moves with and without numba."""
    instance = _fan(12, contention)
    one = StagedChain(instance, 3, in_sequence(instance, 3), 5)
    one.run(0.0, 200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annealing, "staged_kernel", staged_kernel)
        other = StagedChain(instance, 3, in_sequence(instance, 3), 5)
        other.run(0.0, 200)
    assert one.plan() == other.plan()
    assert (one._search.lists == other._search.lists).all()


def _fan(count: int, contention: str = "blend") -> Problem:
    """One operator feeds all others; stages gain much."""
    times = {f"v{number}": 1.0 + number % 3 for number in range(count)}
    edges = {("v0", f"v{number}"): 0.5 for number in range(1, count)}
    kinds = (Demand(slots=0.3, compute=0.2, memory=0.9), Demand(slots=0.4, compute=0.8, memory=0.1))
    demand = {name: kinds[number % 2] for number, name in enumerate(times)}
    return problem(times, edges, utilization=dict.fromkeys(times, 0.1), alpha=0.1, contention=contention, demand=demand)


def test_the_search_pairs_what_needs_different_resources() -> None:
    """Of four equal operators on one device, those for memory run beside those for arithmetic, at no loss."""
    memory, arithmetic = Demand(slots=0.3, compute=0.1, memory=0.9), Demand(slots=0.3, compute=0.9, memory=0.1)
    demand = {"a": memory, "b": memory, "c": arithmetic, "d": arithmetic}
    instance = problem(dict.fromkeys("abcd", 1.0), {}, contention="resources", demand=demand)
    chain = StagedChain(instance, 1, in_sequence(instance, 1), 0)
    chain.run(0.0, 2000)
    assert instance.stage_ms(((0,), (1,))) == pytest.approx(1.8)
    assert chain.latency_ms == pytest.approx(2.0)


def test_stages_have_a_largest_size(interpreted: ModuleType) -> None:
    """A full stage takes no further operator, and no plan with a larger one is started from."""
    most = MOST_MEMBERS
    instance = problem({f"v{number}": 1.0 for number in range(most + 1)}, {}, contention="none")
    alone = tuple((number,) for number in range(most + 1))
    for seed in range(40):
        chain = StagedChain(instance, 1, StagedPlan(((alone[:-1], alone[-1:]),)), seed)
        chain.run(1.0, 10)
        _check(instance, chain)
    assert not fits(instance, StagedPlan(((alone,),)))


def test_measured_in_another_order() -> None:
    """A stage measured with its operators in another order than the graph's is used as it was measured."""
    stage = frozenset({("b", "a", "c"), ("d",)})
    instance = problem(
        {"a": 1.0, "b": 1.0, "c": 1.0, "d": 3.0}, {("a", "c"): 0.0, ("b", "c"): 0.0}, stages={stage: 0.5}
    )
    chain = StagedChain(instance, 1, in_sequence(instance, 1), 0)
    chain.run(0.0, 2000)
    assert chain.latency_ms == 0.5
    assert latency_ms(evaluate(instance, chain.plan())) == 0.5
    impossible = frozenset({("c", "a", "b"), ("d",)})
    instance = problem(
        {"a": 1.0, "b": 1.0, "c": 1.0, "d": 3.0}, {("a", "c"): 0.0, ("b", "c"): 0.0}, stages={impossible: 0.5}
    )
    chain = StagedChain(instance, 1, in_sequence(instance, 1), 0)
    chain.run(0.0, 2000)
    assert chain.latency_ms == latency_ms(evaluate(instance, chain.plan())) > 0.5


def test_groups_are_what_depends_on_each_other() -> None:
    """Operators share a group if edges between members of the stage join them, in topological order."""
    instance = problem(dict.fromkeys("abcdef", 1.0), {("a", "c"): 0, ("b", "c"): 0, ("c", "d"): 0, ("e", "f"): 0})
    assert groups(instance, [0, 1, 2, 4]) == ((0, 1, 2), (4,))
    assert groups(instance, [0, 1, 3, 4, 5]) == ((0,), (1,), (3,), (4, 5))


def test_what_fits() -> None:
    """A chain starts from stages whose groups it would make itself, and from no merges."""
    instance = problem(dict.fromkeys("abc", 1.0), {("a", "b"): 0.0})
    assert fits(instance, StagedPlan(((((0, 1), (2,)),),)))
    assert not fits(instance, StagedPlan(((((0, 1, 2),),),)))  # one after another without need
    assert not fits(instance, StagedPlan(((((0,),), ((1,), (2,))),), frozenset({frozenset({1, 2})})))


@settings(max_examples=200)
@given(
    instance=measured(),
    devices=st.sampled_from([1, 2, 3, 4, 16]),
    algorithm=st.sampled_from(["sequential", "greedy", "heft", "hios-lp", "ios"]),
    temperature=st.sampled_from(_TEMPERATURES),
    slices=st.lists(st.sampled_from(_SLICES), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
)
def test_state_is_a_fresh_evaluation(
    instance: Problem, devices: int, algorithm: str, temperature: float, slices: list[int], seed: int
) -> None:
    """After moves kept and taken back, times, places, spare stages and paths are those of the candidate's plan."""
    if not ALGORITHMS[algorithm].several_devices:
        devices = 1
    instance = instance.on(devices)
    chain = StagedChain(instance, devices, _start(instance, devices, algorithm), seed)
    _check(instance, chain)
    for moves in slices:
        chain.run(temperature, moves)
        _check(instance, chain)


def test_sorting_keeps_the_list_runnable() -> None:
    """A start worked out from a finish is rounded, and may fall below that of an operator of no time before it."""
    finish, time = 0.1, 0.4
    assert (finish + time) - time < finish  # the rounding that the test is about
    instance = problem({"a": finish, "none": 0.0, "b": time}, {("none", "b"): 0.0})
    for plan in (
        in_sequence(instance, 1),
        StagedPlan(((((0,),), ((1,),)), (((2,),),))),  # b waits for it on another device
    ):
        chain = StagedChain(instance, len(plan.devices), plan, 0)
        chain.run(1.0, 0)
        assert _current(instance, chain)[0] == plan
        _check(instance, chain)


def test_what_is_kept_on_disk_knows_the_sources_of_what_it_calls(tmp_path: Path) -> None:
    """An edit of any file of the search gives functions on disk other types of arguments: they are compiled anew."""
    instance = _fan(4)
    StagedChain(instance, 2, in_sequence(instance, 2), 0).run(0.0, 1)
    for function in (staged_kernel.anneal, search_moves.set_after):
        assert all(SOURCES[0] in str(signature) for signature in function.signatures)
    copy = shutil.copytree(Path(search_moves.__file__).parent, tmp_path / "copy")
    assert runpy.run_path(str(copy / "moves.py"))["SOURCES"] == SOURCES
    with (copy / "staged_kernel.py").open("a") as file:
        file.write("# another\n")
    assert runpy.run_path(str(copy / "moves.py"))["SOURCES"] != SOURCES


def _opt(instance: Problem, devices: int, moves: int = 300, **parameters: Any) -> Schedule:
    return schedule(instance, "hios-opt", devices, {"time_limit": 600.0, "moves": moves, **parameters})


def _random(seed: int, operators: int = 30, *, wide: bool = True) -> Problem:
    """A random graph whose operators gain from up to 4 devices (Amdahl's law), each by its own share."""
    draw = random.Random(seed)
    names = [f"v{number}" for number in range(operators)]
    pairs = [(source, target) for target in range(operators) for source in range(max(0, target - 8), target)]
    ends = draw.sample(pairs, 2 * operators)
    times = {name: draw.uniform(0.1, 4.0) for name in names}
    serial = {name: draw.uniform(0.0, 0.4) for name in names}
    widths = {
        name: {k: time * (serial[name] + (1 - serial[name]) / k) for k in (2, 3, 4)} for name, time in times.items()
    }
    graph = Graph(
        "random",
        tuple(Operator(name, "task") for name in names),
        tuple(Edge(names[source], names[target]) for source, target in ends),
    )
    transfers = {(names[source], names[target]): 0.1 * times[names[source]] for source, target in ends}
    return Problem(graph, Costs(times, transfers, wide_ms=widths if wide else {}))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(instance=wide_problems(largest=3, devices=3), devices=st.integers(2, 3))
def test_optimal_on_small_problems(instance: Problem, devices: int) -> None:
    """As good as the best of all orders and choices of devices; the bounds hold and are what `hios verify` expects."""
    best = least_latency(instance, devices)
    scheduled = _opt(instance, devices, moves=1500)
    assert violations(instance, scheduled) == []
    assert scheduled.latency_ms <= best * (1 + 1e-9)
    assert max(interval_bound_ms(instance, devices), trade_off_bound_ms(instance, devices)) <= best * (1 + 1e-9)
    assert scheduled.lower_bound_ms == proven_bound_ms(instance, devices) <= scheduled.latency_ms * (1 + 1e-9)
    assert bound_problems(scheduled, instance, [scheduled]) == []


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_multipliers_prove_a_bound(data: st.DataObject) -> None:
    """The bound does not rest on the solver: whatever multipliers it returns, no schedule is faster."""
    devices = data.draw(st.integers(1, 3))
    instance = data.draw(wide_problems(largest=3, devices=3)).on(devices)
    rows = lower_bounds._rows(instance, devices)
    multipliers = data.draw(
        st.lists(st.one_of(st.just(0.0), st.floats(-0.5, 2.0)), min_size=len(rows), max_size=len(rows))
    )
    assert lower_bounds._certified(instance, rows, multipliers) <= least_latency(instance, devices) * (1 + 1e-9)


def test_the_trade_off_by_hand() -> None:
    """Two chains side by side: path alone says 3 ms, area alone 4 ms; both together leave 4.8 ms."""
    # Each chain: 8 ms on one device, 3 ms on four, which cost 12 ms of area. A share x of each on four devices:
    # path 8 - 5x, area (2 * (8 + 4x)) / 4 = 4 + 2x; equal at x = 4/7.
    wide = {"a": {4: 3.0}, "b": {4: 3.0}}
    instance = problem({"a": 8.0, "b": 8.0}, {}, wide=wide)
    assert trade_off_bound_ms(instance, 4) == pytest.approx(4 + 8 / 7)
    assert interval_bound_ms(instance, 4) == 4.0
    assert _opt(instance, 4).latency_ms == 6.0


def test_the_trade_off_after_transfers_by_hand() -> None:
    """The same two after z, which takes values of x and y: waiting for a transfer is longer than sharing a device."""
    times, wide = {"x": 1.0, "y": 1.0, "z": 1.0, "a": 8.0, "b": 8.0}, {"a": {4: 3.0}, "b": {4: 3.0}}
    edges = {("x", "z"): 10.0, ("y", "z"): 10.0, ("z", "a"): 0.0, ("z", "b"): 0.0}
    instance = problem(times, edges, wide=wide)
    assert interval_bound_ms(instance, 4) == pytest.approx(2 + 1 + 4)
    assert trade_off_bound_ms(instance, 4) == pytest.approx(2 + 1 + 4 + 8 / 7)
    assert _opt(instance, 4).latency_ms == pytest.approx(2 + 1 + 6)


def test_other_models_of_contention_leave_it_out() -> None:
    """Where the area says nothing of the latency there is no such bound."""
    instance = problem({"a": 8.0, "b": 8.0}, {}, wide={"a": {4: 3.0}}, contention="none")
    assert trade_off_bound_ms(instance, 4) == 0.0
    assert proven_bound_ms(instance, 4) == 8.0


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("seed", range(2))
def test_never_worse_than_narrow_or_wide(seed: int, devices: int) -> None:
    """At most the latency of every other algorithm, of hios-opt without widths, and of all-wide in sequence."""
    instance = _random(seed)
    scheduled = _opt(instance, devices, moves=20_000)
    assert violations(instance, scheduled) == []
    narrow = _opt(_random(seed, wide=False), devices, moves=20_000)
    sequence = latency_ms(evaluate(instance.on(devices), fastest_in_sequence(instance.on(devices), devices)))
    assert scheduled.latency_ms <= min(narrow.latency_ms, sequence) * (1 + 1e-9)
    assert devices == 2 or scheduled.latency_ms < narrow.latency_ms
    for name, entry in ALGORITHMS.items():
        if name != "hios-opt":
            other = schedule(instance, name, devices if entry.several_devices else 1)
            assert scheduled.latency_ms <= other.latency_ms * (1 + 1e-9)
    assert scheduled.latency_ms <= 1.25 * scheduled.lower_bound_ms


def test_equal_seeds_give_equal_schedules() -> None:
    """With a number of moves the schedule depends on the seed alone."""
    instance = _random(5)
    first, again = _opt(instance, 4, moves=3000, seed=3), _opt(instance, 4, moves=3000, seed=3)
    assert first.placements == again.placements
    assert first.notes == again.notes


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), devices=st.integers(1, 4), slices=st.integers(1, 4))
def test_times_of_the_search_are_those_of_the_evaluator(seed: int, devices: int, slices: int) -> None:
    """However a chain got there: each move is timed in part, and the result is what its plan takes."""
    instance = _random(seed, operators=12).on(devices)
    chain = WideChain(instance, devices, list_schedule(instance, devices, WEIGHTS[0], [1] * len(instance)), seed)
    for _ in range(slices):
        chain.run(0.2, 300)
    assert latency_ms(evaluate(instance, chain.best().plan(devices))) == pytest.approx(chain.latency_ms, rel=1e-12)
    current = chain._search.operators[:-1]
    held = [
        (first, *(d for d in range(devices) if bits >> d & 1 and d != first))
        for first, bits in zip(current["device"].tolist(), current["held"].tolist(), strict=True)
    ]
    plan = type(chain.best())(0.0, tuple(chain._search.order.tolist()), tuple(held)).plan(devices)
    finish = {row.operator: row.finish_ms for row in evaluate(instance, plan)}
    assert [finish[name] for name in instance.ids] == pytest.approx(current["finish"].tolist(), rel=1e-12)


def test_an_operator_takes_devices_that_have_waited_least() -> None:
    """The other of two devices is mostly the one that is free last before the start."""
    instance = problem({"a": 1.0}, {}, wide={"a": {2: 0.5}})
    chain = WideChain(instance, 4, list_schedule(instance, 4, WEIGHTS[0], [1]), 0)
    chain._search.devices["free"] = [0.0, 5.0, 9.0, 20.0]
    held = [int(wide_kernel.with_others(chain._search, 0, 2, 2)) for _ in range(64)]
    assert held.count(0b0110) > 32


def test_more_devices_than_sets_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more than 64 devices, the search gives every operator one device; hios-wide may still give it several."""
    monkeypatch.setattr(annealing, "MOST_DEVICES", 1)
    instance = _random(1)
    scheduled = _opt(instance, 4, moves=500)
    assert violations(instance, scheduled) == []
    assert scheduled.latency_ms <= schedule(instance, "hios-wide", 4).latency_ms


def test_without_widths_nothing_changed() -> None:
    """The schedule of a seed and a number of moves, stages and all, as it was before widths came."""
    instance = copy.copy(_random(7, wide=False))
    instance.utilization = [0.5 + 0.5 * (number % 2) for number in range(len(instance))]
    digests = []
    for devices in (1, 3):
        contents = _opt(instance, devices, moves=2000, seed=1).to_json()
        del contents["scheduling_time_s"]
        digests.append(hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:16])
    assert digests == ["14be2e3986fd8cf7", "4819eec48e08db30"]
