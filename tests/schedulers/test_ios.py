"""IOS: its search space against the published numbers, its schedules against brute force."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.networks import inception_v3, nasnet_large, randwire, squeezenet
from hios import Costs, Graph, HiosError, Problem, Schedule, evaluate, schedule, violations
from hios.core.evaluate import latency_ms
from hios.core.problem import Stage
from hios.core.schedule import StagedPlan
from hios.errors import ArtifactError
from hios.profiling.stage_requests import RecordingProblem
from hios.report.terminal import summary
from hios.schedulers import ios as ios_module
from hios.schedulers.ios import blocks, ios, search_space, searching_once
from hios.schedulers.ios_search import SearchedBlock, StageTimes
from tests.convolution_graphs import Conv, conv_problem
from tests.core.test_merging import conv_problems
from tests.external_data import data_folder
from tests.problems import problem, problems

#: Transitions without pruning and with r = 3, s = 8, and schedules without pruning, by block.
INCEPTION = {
    "A": (1, 1017, 1016, 59892),
    "B": (4, 80, 79, 232),
    "C": (5, 3648, 3104, 4598400),
    "D": (9, 248, 228, 3344),
    "E": (10, 4871, 4616, 3757392),
}


@pytest.mark.parametrize("name", sorted(INCEPTION))
def test_inception_blocks(name: str) -> None:
    """The blocks of Inception-v3 have the transitions and schedules that the authors' program searches."""
    block, transitions, pruned, schedules = INCEPTION[name]
    space = search_space(inception_v3(), block)
    assert (space.transitions, space.schedules) == (transitions, schedules)
    assert search_space(inception_v3(), block, r=3, s=8).transitions == pruned


def _randwire() -> Graph:
    return randwire(data_folder("randwire"))


@pytest.mark.parametrize(
    ("build", "block", "transitions", "pruned", "schedules"),
    [
        pytest.param(squeezenet, 1, 51, 47, "1.310e+02", id="fire module of SqueezeNet"),  # IOS table 1: 51 and 1.3e2
        pytest.param(nasnet_large, 3, 307841, 233842, "7.151e+12", id="first cell of NASNet"),  # 3.1e5 and 7.2e12
        pytest.param(nasnet_large, 4, 258676, 229695, "4.145e+11", id="normal cell of NASNet"),
        pytest.param(nasnet_large, 9, 118081, 86682, "5.894e+12", id="reduction cell of NASNet"),
        pytest.param(_randwire, 3, 1170663, 774186, "9.197e+22", id="largest stage of RandWire"),  # 9.2e22
    ],
)
def test_blocks_of_the_papers_networks(
    build: Callable[[], Graph], block: int, transitions: int, pruned: int, schedules: str
) -> None:
    """Blocks have the published number of transitions and schedules, and those of the released program with pruning."""
    space = search_space(build(), block)
    assert space.transitions == transitions
    assert f"{space.schedules:.3e}" == schedules
    assert search_space(build(), block, r=3, s=8).transitions == pruned


@pytest.mark.parametrize(
    ("build", "transitions", "pruned"),
    [
        (inception_v3, 27742, 25022),
        (squeezenet, 284, 260),
        (nasnet_large, 5284405, 4494507),
        (_randwire, 2859662, 1781101),
    ],
)
def test_whole_networks(build: Callable[[], Graph], transitions: int, pruned: int) -> None:
    """Transitions add up over the blocks of a network."""
    graph = build()
    assert search_space(graph).transitions == transitions
    assert search_space(graph, r=3, s=8).transitions == pruned


def test_schedules_of_a_network_multiply() -> None:
    """A network's schedules are the combinations of those of its blocks; states add up."""
    blocks = [search_space(squeezenet(), number) for number in range(12)]
    whole = search_space(squeezenet())
    assert whole.schedules == math.prod(block.schedules for block in blocks)
    assert whole.states == sum(block.states for block in blocks)


def test_figure_5() -> None:
    """The example of figure 5, a -> b beside c, has six states and twelve transitions."""
    graph = problem({"a": 1.0, "b": 1.0, "c": 1.0}, {("a", "b"): 0.0}).graph
    space = search_space(graph)
    assert (space.states, space.transitions) == (6, 12)


# Brute force. It shares nothing with the algorithm: it goes from the first stage on, knows a stage only as a set of
# names, finds its groups as connected parts, and tries every set.


def _stages(instance: Problem, left: frozenset[int], r: int, s: int) -> Iterator[Stage]:
    """Every first stage of the operators left: nothing left is before it, each group has one root."""
    before = {operator: {u for u, _ in instance.predecessors[operator]} for operator in left}
    for size in range(1, len(left) + 1):
        for chosen in itertools.combinations(sorted(left), size):
            if any(before[operator] & (left - set(chosen)) for operator in chosen):
                continue
            parts = _connected(chosen, before)
            rooted = all(sum(not before[operator] & part for operator in part) == 1 for part in parts)
            if rooted and len(parts) <= s and all(len(part) <= r for part in parts):
                yield tuple(tuple(operator for operator in instance.order if operator in part) for part in parts)


def _connected(chosen: Sequence[int], before: Mapping[int, set[int]]) -> list[set[int]]:
    parts: list[set[int]] = []
    for operator in chosen:
        touched = [p for p in parts if p & before[operator] or any(operator in before[other] for other in p)]
        parts = [p for p in parts if p not in touched] + [{operator}.union(*touched)]
    return parts


def _cost(instance: Problem, stage: Stage, mode: str) -> float:
    cost = math.inf if mode == "merge" and len(stage) > 1 else instance.stage_ms(stage)
    if mode != "parallel" and len(stage) > 1 and all(len(group) == 1 for group in stage):
        merged = instance.merge_ms(group[0] for group in stage)
        cost = min(cost, math.inf if merged is None else merged)
    return cost


def _optimum(instance: Problem, *, r: int = 3, s: int = 8, mode: str = "both") -> float:
    known: dict[frozenset[int], float] = {frozenset(): 0.0}

    def best(left: frozenset[int]) -> float:
        if left not in known:
            known[left] = min(
                _cost(instance, stage, mode) + best(left.difference(*stage)) for stage in _stages(instance, left, r, s)
            )
        return known[left]

    return best(frozenset(range(len(instance))))


def _latency(instance: Problem, *, r: int = 3, s: int = 8, mode: str = "both", states: int = 4096) -> float:
    """Latency of the schedule of IOS, which has to be valid."""
    scheduled = schedule(instance, "ios", parameters={"r": r, "s": s, "mode": mode, "states": states})
    assert violations(instance, scheduled) == []
    return scheduled.latency_ms


def _measured(instance: Problem, chance: random.Random, share: float = 0.5) -> Problem:
    """The same problem, with a share of all stages that can be measured at random times."""
    stages: dict[frozenset[tuple[int, ...]], float] = {}
    seen = set()
    waiting = [frozenset(range(len(instance)))]
    while waiting:
        left = waiting.pop()
        for stage in _stages(instance, left, 3, 8):
            rest = left.difference(*stage)
            if rest not in seen:
                seen.add(rest)
                waiting.append(rest)
            if len(stage) > 1 and frozenset(stage) not in stages and chance.random() < share:
                stages[frozenset(stage)] = chance.uniform(0.2, 1.0) * sum(
                    instance.time[operator] for group in stage for operator in group
                )
    copied = copy.copy(instance)
    copied.measured = stages
    return copied


def _graphs(size: int) -> list[set[tuple[int, int]]]:
    """The edges of every directed acyclic graph of so many operators, without those that are one of them renumbered."""
    pairs = list(itertools.combinations(range(size), 2))
    seen: set[frozenset[tuple[int, int]]] = set()
    graphs = []
    for count in range(len(pairs) + 1):
        for edges in itertools.combinations(pairs, count):
            if frozenset(edges) not in seen:
                graphs.append(set(edges))
                orders = itertools.permutations(range(size))
                seen |= {frozenset((order[a], order[b]) for a, b in edges) for order in orders}
    return graphs


@pytest.mark.parametrize(
    ("size", "count"), [(1, 1), (2, 2), (3, 6), (4, 31), pytest.param(5, 302, marks=pytest.mark.slow)]
)
def test_optimal_on_all_small_graphs(size: int, count: int) -> None:
    """On every directed acyclic graph of up to five operators IOS is as good as brute force, stages measured or not."""
    chance, graphs = random.Random(size), _graphs(size)
    assert len(graphs) == count
    for pairs in graphs:
        edges = {(f"v{a}", f"v{b}"): 0.0 for a, b in sorted(pairs)}
        names = [f"v{number}" for number in range(size)]
        instance = problem(
            {name: chance.choice([0.0, 1.0, chance.uniform(0.1, 3.0)]) for name in names},
            edges,
            utilization={name: chance.uniform(0.1, 1.0) for name in names},
        )
        for costs in (instance, _measured(instance, chance)):
            assert _latency(costs) == pytest.approx(_optimum(costs))
            assert _latency(costs, r=1, s=2) == pytest.approx(_optimum(costs, r=1, s=2))


@settings(max_examples=60)
@given(
    problems(largest=7),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from(["both", "parallel", "merge"]),
    st.one_of(st.none(), st.integers(0, 1000)),
)
def test_optimal_on_random_graphs(instance: Problem, r: int, s: int, mode: str, seed: int | None) -> None:
    """Up to seven operators, any r, s and mode, measured stages or not: IOS is as good as brute force."""
    if seed is not None:
        instance = _measured(instance, random.Random(seed))
    expected = _optimum(instance, r=r, s=s, mode=mode)
    assert _latency(instance, r=r, s=s, mode=mode) == pytest.approx(expected)


@settings(max_examples=60)
@given(conv_problems(), st.integers(1, 4), st.sampled_from(["both", "parallel", "merge"]))
def test_optimal_with_merges(instance: Problem, s: int, mode: str) -> None:
    """Also where operators can be merged, at modelled and measured times."""
    assert _latency(instance, s=s, mode=mode) == pytest.approx(_optimum(instance, s=s, mode=mode))


def _plan(instance: Problem, *, r: int = 3, s: int = 8, mode: str = "both") -> StagedPlan:
    plan = ios(instance, 1, r=r, s=s, mode=mode).plan
    assert isinstance(plan, StagedPlan)
    return plan


def test_groups_run_in_topological_order() -> None:
    """A group is a root and all its descendants, in an order in which they can run."""
    instance = problem({"c": 1.0, "b": 1.0, "a": 1.0, "x": 3.0}, {("a", "b"): 0.0, ("b", "c"): 0.0}, contention="none")
    plan = _plan(instance)
    assert plan.devices == ((((2, 1, 0), (3,)),),)


def test_pruning() -> None:
    """The operators of a group are at most r, the groups of a stage at most s."""
    chains = {(f"{name}1", f"{name}2"): 0.0 for name in "abc"}
    instance = problem({f"{name}{number}": 1.0 for name in "abc" for number in (1, 2)}, chains, contention="none")
    assert [len(stage) for stage in _plan(instance).devices[0]] == [3]
    assert max(len(stage) for stage in _plan(instance, s=2).devices[0]) == 2
    assert max(len(group) for stage in _plan(instance, r=1).devices[0] for group in stage) == 1
    assert [_latency(instance, s=s) for s in (1, 2, 3)] == [6.0, 3.0, 2.0]


PAIR = {"a": Conv((1, 1)), "b": Conv((1, 1)), "c": Conv((3, 3), (1, 1), value="a"), "d": Conv((1, 1), value="b")}


def test_modes() -> None:
    """Modes allow merged operators, groups side by side, or both; each stage takes the faster of the two."""
    times = dict.fromkeys(PAIR, 1.0)
    instance = conv_problem(
        PAIR,
        times,
        merges={frozenset("ab"): 1.2},
        stages={frozenset({("c",), ("d",)}): 1.3, frozenset({("a",), ("b",)}): 1.4},
    )
    assert _latency(instance, mode="both", r=1) == pytest.approx(2.5)
    assert _latency(instance, mode="parallel", r=1) == pytest.approx(2.7)
    assert _latency(instance, mode="merge", r=1) == pytest.approx(3.2)
    assert _plan(instance, r=1).merges == {frozenset({0, 1})}
    assert _plan(instance, r=1, mode="parallel").merges == frozenset()
    assert schedule(instance, "ios", parameters={"r": 1}).merges == (("a", "b"),)
    with pytest.raises(HiosError, match="parameter mode: found 'all'; allowed: one of both, parallel, merge"):
        schedule(instance, "ios", parameters={"mode": "all"})


def test_merge_mode_without_merges_is_sequential() -> None:
    """Where nothing can be merged IOS-Merge gets what Sequential gets (section 6.1), and asks for no stage."""
    times = {"a": 1.0, "b": 2.0, "c": 1.0}
    instance = RecordingProblem(problem(times, {("a", "c"): 0.0}, utilization={"a": 0.1, "b": 0.1}))
    plan = _plan(instance, mode="merge")
    assert all(len(stage) == 1 for stage in plan.devices[0])
    assert latency_ms(evaluate(instance, plan)) == 4.0
    assert instance.asked == set()


def test_nothing_is_merged_or_grouped_without_gain() -> None:
    """At equal times operators run one after another: neither side by side nor merged."""
    instance = conv_problem({"a": Conv(), "b": Conv(), "c": Conv()}, {"a": 0.1, "b": 0.2, "c": 0.3})
    assert instance.merge_ms([0, 1, 2]) == pytest.approx(instance.stage_ms(((0,), (1,), (2,))))
    plan = _plan(instance)
    assert all(len(stage) == 1 for stage in plan.devices[0])
    assert plan.merges == frozenset()


def test_nothing_is_merged_that_runs_beside_as_fast() -> None:
    """A merge has to be faster than the same operators side by side."""
    stages: dict[frozenset[tuple[str, ...]], float] = {frozenset({("a",), ("b",)}): 1.2}
    for time, merges in ((1.2, frozenset[frozenset[int]]()), (1.1, frozenset({frozenset({0, 1})}))):
        members, times = {"a": Conv(), "b": Conv()}, {"a": 1.0, "b": 1.0}
        instance = conv_problem(members, times, merges={frozenset("ab"): time}, stages=stages)
        assert _plan(instance) == StagedPlan(((((0,), (1,)),),), merges)


@given(problems(largest=9))
def test_cutting_at_narrow_places_loses_nothing(instance: Problem) -> None:
    """Graphs without blocks are cut after operators that all others depend on: as good as one block."""
    whole = copy.copy(instance)
    whole.graph = dataclasses.replace(instance.graph, blocks=(tuple(instance.ids),))
    assert _latency(instance) == pytest.approx(_latency(whole))


def test_inception_needs_no_blocks() -> None:
    """The concatenations of Inception-v3 are where its blocks end, so the schedule is as good without them."""
    chance = random.Random(0)
    graph = inception_v3()
    costs = Costs(
        {operator.id: chance.uniform(0.1, 1.0) for operator in graph.operators},
        {(edge.source, edge.target): 0.0 for edge in graph.edges},
        {operator.id: chance.uniform(0.1, 1.0) for operator in graph.operators},
    )
    stated, bare = Problem(graph, costs), Problem(dataclasses.replace(graph, blocks=()), costs)
    assert _latency(stated) == pytest.approx(_latency(bare, states=1024))
    assert _latency(stated) < sum(stated.time)


def test_parts_have_few_states() -> None:
    """Wide graphs are cut into consecutive operators with at most so many states."""
    instance = problem({f"v{number}": 1.0 for number in range(20)}, {}, contention="none")
    assert _latency(instance, s=20, states=16) == 5.0  # 2^4 states: four operators a part
    assert _latency(instance, s=20, states=31) == 5.0
    assert _latency(instance, s=20, states=2) == 20.0
    assert _latency(instance, s=20, states=1024) == 2.0


def test_cuts_are_stated() -> None:
    """A schedule whose search was cut into pieces says at how many places, in schedule.json too; others say nothing."""
    instance = problem({f"v{number}": 1.0 for number in range(10)}, {}, contention="none")
    for states, cuts in ((16, 2), (2, 9), (1024, 0)):
        scheduled = schedule(instance, "ios", parameters={"s": 20, "states": states})
        assert scheduled.cuts == cuts
        assert scheduled.to_json().get("cuts", 0) == cuts
        assert Schedule.from_json(scheduled.to_json()).cuts == cuts
        assert ("Cuts" in dict(summary(scheduled))) == (cuts > 0)


def test_borders_that_lose_nothing_are_no_cuts() -> None:
    """Borders of stated blocks, and after operators that are on every path, are not counted."""
    chain = problem({f"v{number}": 1.0 for number in range(6)}, {(f"v{k}", f"v{k + 1}"): 0.0 for k in range(5)})
    assert schedule(chain, "ios", parameters={"states": 2}).cuts == 0
    assert schedule(_block_problem([["f", "c"], ["b", "a"]], [("a", "c")]), "ios").cuts == 0


def _block_problem(blocks: Sequence[Sequence[str]], edges: Sequence[tuple[str, str]]) -> Problem:
    return problem(dict.fromkeys("abcdef", 1.0), dict.fromkeys(edges, 0.0), contention="none", blocks=blocks)


def test_block_borders_are_stage_borders() -> None:
    """No stage holds operators of two blocks, whatever the order in which blocks and operators are stated."""
    instance = _block_problem([["f", "c"], ["b", "a"]], [("a", "c"), ("c", "d"), ("d", "e")])
    stages = [{instance.ids[operator] for group in stage for operator in group} for stage in _plan(instance).devices[0]]
    assert stages == [{"a", "b"}, {"c", "f"}, {"d"}, {"e"}]


def test_blocks_too_large_to_search_are_cut() -> None:
    """A stated block of 3^12 states, twelve chains of two, is cut like a graph without blocks; one of 3^3 is not."""
    for chains, whole in ((3, True), (12, False)):
        names = [f"{chain}{end}" for chain in range(chains) for end in "ab"]
        edges = {(f"{chain}a", f"{chain}b"): 0.0 for chain in range(chains)}
        parts = blocks(problem(dict.fromkeys(names, 1.0), edges, blocks=[names]).graph, 1024)
        assert (len(parts) == 1) == whole
        assert sorted(operator for block in parts for operator in block.operators) == list(range(2 * chains))


def test_operators_in_no_block() -> None:
    """Operators in no block are scheduled between the blocks, together with their like."""
    instance = _block_problem([["a", "b"]], [("a", "c"), ("a", "d"), ("c", "e"), ("d", "f")])
    assert _plan(instance).devices[0] == (((0,), (1,)), ((2, 4), (3, 5)))


def test_bad_blocks_are_refused() -> None:
    """Blocks that share an operator or wait for each other are one-line errors."""
    with pytest.raises(ArtifactError, match="graph: blocks: operator b is in two blocks; allowed: one"):
        ios(_block_problem([["a", "b"], ["b", "c"]], []), 1)
    with pytest.raises(ArtifactError, match="graph: blocks: the block of operator a waits for others that wait for it"):
        ios(_block_problem([["a", "d"], ["b", "c"]], [("a", "b"), ("c", "d")]), 1)


def _twins(changes: Mapping[str, float], stages: Mapping[frozenset[tuple[str, ...]], float] | None = None) -> Problem:
    """Two equal blocks, one after the other."""
    names = ["a1", "b1", "c1", "a2", "b2", "c2"]
    edges = [("a1", "c1"), ("b1", "c1"), ("c1", "a2"), ("c1", "b2"), ("a2", "c2"), ("b2", "c2")]
    times = {**dict.fromkeys(names, 1.0), **changes}
    return problem(times, dict.fromkeys(edges, 0.0), stages=stages, blocks=[names[:3], names[3:]])


def test_alike_blocks_are_searched_once() -> None:
    """Only the first of two equal blocks asks for stages; the second gets the same schedule in its operators."""
    alike = RecordingProblem(_twins({}))
    plan = _plan(alike)
    assert alike.asked == {frozenset({(0,), (1,)})}
    half = len(plan.devices[0]) // 2
    moved = tuple(tuple(tuple(o + 3 for o in group) for group in stage) for stage in plan.devices[0][:half])
    assert plan.devices[0][half:] == moved


def test_problems_that_differ_in_transfers_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside `searching_once` the plan of one problem serves others, but not those that record what is asked."""
    searched: list[SearchedBlock] = []

    def counted(search: Any, block: SearchedBlock) -> Any:
        searched.append(block)
        return best(search, block)

    best = ios_module._Search.best
    monkeypatch.setattr(ios_module._Search, "best", counted)
    instance = _twins({"a2": 2.0})
    alone = _plan(instance)
    assert len(searched) == 2
    with searching_once():
        assert _plan(instance.on(1)) == _plan(instance.on(2)) == alone
        assert len(searched) == 4  # two blocks of the first
        _plan(instance, r=1)
        assert len(searched) == 6
        recording = RecordingProblem(instance)
        assert _plan(recording) == alone
        assert recording.asked == {frozenset({(0,), (1,)}), frozenset({(3,), (4,)})}
    _plan(instance)
    assert len(searched) == 10


@given(problems(), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["both", "parallel", "merge"]))
@settings(max_examples=60, deadline=None)
def test_modelled_times_are_those_of_the_problem(instance: Problem, r: int, s: int, mode: str) -> None:
    """Times added up group by group are those that the problem gives whole stages, to the last bit."""
    unmeasured = copy.copy(instance)
    unmeasured.measured = {}
    for block in blocks(unmeasured.graph, 1024):
        quick = StageTimes(unmeasured, block, mode)
        asking = StageTimes(RecordingProblem(unmeasured), block, mode)
        for state in reversed(block.states()[1:]):
            for ending in reversed(block.endings(state, r, s)):
                assert quick[ending] == asking[ending]


_FIRST, _SECOND = (frozenset({(f"a{number}",), (f"b{number}",)}) for number in (1, 2))


@pytest.mark.parametrize("instance", [_twins({"a2": 2.0}), _twins({}, {_FIRST: 1.0}), _twins({}, {_SECOND: 1.0})])
def test_blocks_of_other_costs_are_searched_again(instance: Problem) -> None:
    """Blocks whose times or measured stages differ are not alike."""
    assert _latency(instance) == pytest.approx(_optimum(instance))


def _merging(kernel: tuple[int, int], merges: Mapping[frozenset[str], float] | None = None) -> Problem:
    """Three blocks of two convolutions that can be merged; one kernel of the second block is to choose."""
    plain = Conv((3, 3), (1, 1))
    members = {
        "a": plain,
        "b": plain,
        "c": dataclasses.replace(plain, value="b"),
        "d": Conv(kernel, (kernel[0] // 2, kernel[1] // 2), value="b"),
        "e": dataclasses.replace(plain, value="d"),
        "f": dataclasses.replace(plain, value="d"),
    }
    times, half = dict.fromkeys(members, 1.0), dict.fromkeys(members, 0.5)
    return conv_problem(members, times, utilization=half, merges=merges or {}, blocks=["ab", "cd", "ef"])


def test_blocks_that_merge_otherwise_are_searched_again() -> None:
    """What can be merged, and at which measured time, tells blocks apart; the names of values do not."""
    first, second, third = (frozenset({number, number + 1}) for number in (0, 2, 4))
    alike = RecordingProblem(_merging((3, 3)))
    assert _plan(alike).merges == {first, second, third}
    assert alike.asked_merges == {first}
    assert _plan(_merging((1, 1))).merges == {first, third}
    assert _plan(_merging((3, 3), {frozenset("ab"): 5.0})).merges == {second, third}
    assert _plan(_merging((3, 3), {frozenset("cd"): 5.0})).merges == {first, third}


def test_measured_stages_are_not_asked_for() -> None:
    """If a profile has all stages that IOS needs, IOS asks for no further ones."""
    instance = RecordingProblem(_twins({}, {_FIRST: 1.0, _SECOND: 1.0}))
    assert isinstance(_plan(instance), StagedPlan)
    assert instance.asked == set()


@pytest.mark.slow
@given(problems(largest=14), st.integers(1, 4), st.integers(1, 4), st.sampled_from(["both", "parallel", "merge"]))
@settings(max_examples=100, deadline=None)
def test_compiled_search_chooses_the_same_stages(instance: Problem, r: int, s: int, mode: str) -> None:
    """The twin of the search in machine code gives the plan of the search in Python, ties included."""
    pytest.importorskip("numba", reason="needs the extra opt")
    unmeasured = copy.copy(instance)
    unmeasured.measured = {}
    for block in blocks(unmeasured.graph, 4096):
        in_python, compiled = (ios_module._Search(unmeasured, r, s, mode, twin).best(block) for twin in (False, True))
        assert in_python == compiled
