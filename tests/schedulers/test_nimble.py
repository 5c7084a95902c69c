"""Nimble's stream assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import pytest
from hypothesis import given

from benchmarks.networks import googlenet, inception_v3, nasnet_large, randwire, resnet50, squeezenet
from hios import Graph, Problem, schedule
from hios.schedulers.nimble import assign_streams, transitive_reduction
from tests.external_data import data_folder
from tests.problems import problem, problems, synthetic_problem


def _sizes(graph: Graph) -> tuple[int, int]:
    assignment = assign_streams(synthetic_problem(graph))
    return len(assignment.streams), len(assignment.synchronizations)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (inception_v3, (6, 70)),
        (squeezenet, (3, 24)),
        (nasnet_large, (15, 316)),
        (resnet50, (2, 8)),
        # one stream fewer than with most of its maximum matchings
        pytest.param(lambda: randwire(data_folder("randwire")), (8, 106), id="randwire"),
    ],
)
def test_networks(build: Callable[[], Graph], expected: tuple[int, int]) -> None:
    """Streams and synchronizations of the papers' networks are those of the authors' program."""
    assert _sizes(build()) == expected


def test_googlenet() -> None:
    """GoogLeNet takes the 4 streams that the Opara paper prints for Nimble (section 5.2)."""
    assert _sizes(googlenet())[0] == 4


@pytest.fixture
def example() -> Problem:
    """Operators a to f, where a -> d and no other edge follows from the rest."""
    edges = [(edge[0], edge[1]) for edge in ("ab", "ac", "ad", "bd", "cd", "ce", "df", "ef")]
    return problem(dict.fromkeys("abcdef", 1.0), dict.fromkeys(edges, 0.0))


def test_example(example: Problem) -> None:
    """Seven edges are left by the reduction, four of them matched: 2 streams and 3 synchronizations."""
    reduced = transitive_reduction(example)
    assert ["".join(example.ids[target] for target in row) for row in reduced] == ["bc", "d", "de", "f", "f", ""]
    assignment = assign_streams(example)
    assert (len(assignment.streams), len(assignment.synchronizations)) == (2, 3)


def test_notes(example: Problem) -> None:
    """The schedule says how many synchronizations it needs, and launches operators in topological order."""
    scheduled = schedule(example, "nimble")
    assert scheduled.notes == {"synchronizations": "3"}
    assert [row.operator for row in scheduled.placements] == list("abcdef")


def _closure(count: int, pairs: Iterator[tuple[int, int]]) -> set[tuple[int, int]]:
    """All pairs that follow from the given ones."""
    closed = set(pairs)
    for middle in range(count):
        closed |= {(s, t) for s, m in closed if m == middle for n, t in closed if n == middle}
    return closed


def _dependencies(instance: Problem) -> set[tuple[int, int]]:
    edges = ((source, target) for source in range(len(instance)) for target, _ in instance.successors[source])
    return _closure(len(instance), edges)


@given(instance=problems())
def test_parallelism_and_synchronizations(instance: Problem) -> None:
    """Operators of a stream depend on each other in its order; synchronizations and streams keep every dependency."""
    dependencies = _dependencies(instance)
    assignment = assign_streams(instance)
    in_order = {pair for stream in assignment.streams for pair in combinations(stream, 2)}
    assert in_order <= dependencies
    assert _closure(len(instance), iter(in_order | set(assignment.synchronizations))) == dependencies
    assert in_order.isdisjoint(assignment.synchronizations)


def _partitions(operators: list[int]) -> Iterator[list[list[int]]]:
    if not operators:
        yield []
        return
    for parts in _partitions(operators[1:]):
        yield [[operators[0]], *parts]
        for number, part in enumerate(parts):
            yield [*parts[:number], [operators[0], *part], *parts[number + 1 :]]


@given(instance=problems(largest=6))
def test_nothing_is_better(instance: Problem) -> None:
    """Of all assignments that keep parallelism none has fewer synchronizations, or as few and fewer streams."""
    dependencies = _dependencies(instance)
    reduced = {(source, target) for source, row in enumerate(transitive_reduction(instance)) for target in row}
    best = (len(reduced), len(instance))
    for parts in _partitions(list(range(len(instance)))):
        together = {pair for part in parts for a, b in combinations(part, 2) for pair in ((a, b), (b, a))}
        if len(together & dependencies) == len(together) / 2:
            best = min(best, (len(reduced - together), len(parts)))
    assignment = assign_streams(instance)
    assert (len(assignment.synchronizations), len(assignment.streams)) == best
    assert _closure(len(instance), iter(reduced)) == dependencies
    assert all(_closure(len(instance), iter(reduced - {edge})) != dependencies for edge in reduced)
