"""Endings by number against endings listed, and the numbers of the paper's networks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.networks import inception_v3, squeezenet
from hios import Graph, Problem
from hios.core.problem import Stage
from hios.schedulers.ios_search import SearchedBlock, block_space
from hios.schedulers.policy.endings import LARGEST, CombinedState, combined, independent_sets, index_of, sub_blocks
from tests.problems import predecessors_of, problem, problems, synthetic_problem

R, S = 3, 8


def _predecessors(graph: Graph) -> list[list[int]]:
    return predecessors_of(synthetic_problem(graph))


def _start(operators: Sequence[int], predecessors: Sequence[Sequence[int]], r: int = R, s: int = S) -> CombinedState:
    labels = [0] * len(predecessors)
    return combined(sub_blocks(operators, predecessors, labels, r, s))


def _blocks(graph: Graph) -> list[list[int]]:
    return [[v for v in graph.order if graph.operators[v].id in block] for block in map(set, graph.blocks)]


def _largest(start: CombinedState) -> CombinedState:
    """The state with most endings among all that schedules reach."""
    waiting, seen, most = [start], {start.key}, start
    while waiting:
        state = waiting.pop()
        most = max(most, state, key=lambda candidate: candidate.count)
        for index in range(state.count):
            left = state.ending(index).left
            if left.key not in seen:
                seen.add(left.key)
                waiting.append(left)
    return most


def _check_all_states(operators: Sequence[int], predecessors: Sequence[Sequence[int]], r: int, s: int) -> int:
    """See that in every state the endings by number are those listed, each once; returns the number of transitions."""
    block = SearchedBlock.of(operators, predecessors)
    start = _start(operators, predecessors, r, s)
    whole = (1 << len(operators)) - 1
    waiting: dict[int, CombinedState] = {whole: start}
    transitions, checked = 0, set()
    while waiting:
        left, state = waiting.popitem()
        checked.add(left)
        listed = {_named(block, ending) for ending in block.endings(left, r, s)}
        endings = [state.ending(index) for index in range(state.count)]
        assert len(endings) == len(listed)
        assert {frozenset(frozenset(group) for group in ending.stage) for ending in endings} == listed
        transitions += len(endings)
        for ending in endings:
            rest = _left(block, left, ending.stage)
            if rest and rest not in checked:
                waiting[rest] = ending.left
            assert (ending.left.count == 0) == (rest == 0)
    return transitions


def _named(block: SearchedBlock, ending: int) -> frozenset[frozenset[int]]:
    return frozenset(frozenset(block.operators[place] for place in group) for group in block.groups(ending))


def _left(block: SearchedBlock, left: int, stage: Stage) -> int:
    for operator in (v for group in stage for v in group):
        left &= ~(1 << block.operators.index(operator))
    return left


@given(instance=problems(12), r=st.integers(1, 4), s=st.integers(1, 8))
@settings(max_examples=40)
def test_numbers_are_a_bijection(instance: Problem, r: int, s: int) -> None:
    """In every state of a block of up to 12 operators, endings by number are those that IOS lists, each once."""
    predecessors = predecessors_of(instance)
    operators = instance.order
    if len(SearchedBlock.of(operators, predecessors).states()) > 300:
        operators = operators[:8]
    _check_all_states(operators, predecessors, r, s)


@pytest.mark.parametrize("build", [inception_v3, squeezenet])
def test_blocks_of_the_papers_networks(build: object) -> None:
    """All transitions of all blocks of at most 12 operators."""
    graph = build()  # type: ignore[operator]
    for operators in _blocks(graph):
        if len(operators) <= 12:
            expected = block_space(SearchedBlock.of(operators, _predecessors(graph)), R, S).transitions
            assert _check_all_states(operators, _predecessors(graph), R, S) == expected


def test_first_states_of_the_papers_networks() -> None:
    """Numbers of endings of whole blocks."""
    for graph, expected in (
        (inception_v3(), [3, 8, 8, 8, 5, 8, 8, 8, 8, 6, 8, 8, 1]),
        (squeezenet(), [2, 5, 4, 5, 1, 4, 5, 4, 5, 1, 4, 2]),
    ):
        assert [_start(operators, _predecessors(graph)).count for operators in _blocks(graph)] == expected


def test_largest_states_of_combined_blocks() -> None:
    """One to four Inception E blocks have up to 149, 20612, 1021264 and 16163410 endings in a state."""
    graph = inception_v3()
    most = _largest(_start(_blocks(graph)[10], _predecessors(graph)))
    counts = [CombinedState(most.states * copies).count for copies in (1, 2, 3, 4)]
    assert counts == [149, 20612, 1021264, 16163410]


def test_two_fire_modules() -> None:
    """Two fire modules, one of them with a bypass convolution, together: bijection and 3431 transitions."""
    graph = squeezenet()
    blocks = _blocks(graph)
    assert _check_all_states([*blocks[1], *blocks[3]], _predecessors(_cut(graph)), R, S) == 3431


def _cut(graph: Graph) -> Graph:
    """The graph without edges between blocks."""
    home = {name: number for number, block in enumerate(graph.blocks) for name in block}
    edges = tuple(edge for edge in graph.edges if home[edge.source] == home[edge.target])
    return Graph(graph.name, graph.operators, edges, blocks=graph.blocks)


def test_hundreds_of_parallel_operators_are_not_listed() -> None:
    """200 operators side by side have some 5e13 endings; the last is one of eight groups."""
    instance = problem({f"v{number}": 1.0 for number in range(200)}, {})
    start = _start(instance.order, [[] for _ in instance.order])
    assert start.count == sum(math.comb(200, groups) for groups in range(1, 9))
    assert len(start.ending(start.count - 1).stage) == 8
    assert len(start.ending(0).stage) == 1
    with pytest.raises(IndexError, match="endings"):
        start.ending(start.count)


@pytest.mark.parametrize("count", [1, 7, 2**53, 2**53 + 1, 2**1100 - 1])
def test_every_number_of_endings_has_its_indices(count: int) -> None:
    """From the first to the last, also where there are more than floats reach."""
    indices = [index_of(action, count) for action in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert (indices[0], indices[-1]) == (0, count - 1)
    assert indices == sorted(indices)
    assert abs(4 * indices[1] - count) <= max(4, count >> 50)


def test_many_groups_in_conflict() -> None:
    """Where groups overlap in one long row, some of several operators are left out, and none of one."""
    count = 2 * LARGEST
    edges = {(f"above{n}", f"leaf{m}"): 0.0 for n in range(count) for m in (n, n + 1)}
    names = [*(f"above{n}" for n in range(count)), *(f"leaf{n}" for n in range(count + 1))]
    instance = problem(dict.fromkeys(names, 1.0), edges)
    state = _start(instance.order, predecessors_of(instance))
    assert state.states[0].counts[1] > count + 1
    first = {state.ending(index).stage for index in range(state.states[0].counts[1])}
    assert len(first) == state.states[0].counts[1]
    assert sum(len(stage[0]) == 1 for stage in first) == count + 1


def test_hundreds_of_groups_in_conflict() -> None:
    """Leaving out hundreds of groups takes no recursion; each operator alone can still be chosen."""
    count = 600
    alone = [1 << n for n in range(count)]
    sets = independent_sets([*alone, *(1 | group for group in alone[1:])], S)
    chosen = {sets.choice(1, index) for index in range(sets.counts[1])}
    assert {(n,) for n in range(count)} < chosen


@given(instance=problems(10), shuffled=st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_numbers_do_not_depend_on_names(instance: Problem, shuffled: object) -> None:
    """With operators told apart, the ending of a number is the same however they are numbered."""
    order = list(instance.order)
    renumbered = list(range(len(order)))
    shuffled.shuffle(renumbered)  # type: ignore[attr-defined]
    predecessors = predecessors_of(instance)
    other: list[list[int]] = [[] for _ in order]
    for v, before in enumerate(predecessors):
        other[renumbered[v]] = [renumbered[u] for u in before]
    labels = list(range(len(order)))
    others = [0] * len(order)
    for v, label in enumerate(labels):
        others[renumbered[v]] = label
    one = combined(sub_blocks(order, predecessors, labels, R, S))
    two = combined(sub_blocks([renumbered[v] for v in order], other, others, R, S))
    assert one.count == two.count
    for index in range(0, one.count, max(1, one.count // 20)):
        renamed = {frozenset(renumbered[v] for v in group) for group in one.ending(index).stage}
        assert renamed == {frozenset(group) for group in two.ending(index).stage}
