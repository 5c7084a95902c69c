"""Blocks of a graph: found from cut vertices, or as a model declares them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.networks import googlenet, inception_v3, squeezenet
from hios import Edge, Graph, Operator
from hios.core.blocks import declared_blocks, found_blocks
from hios.errors import HiosError


def _graph(operators: str, *edges: str) -> Graph:
    return Graph("test", tuple(Operator(name, "task") for name in operators), tuple(Edge(*edge) for edge in edges))


@pytest.mark.parametrize("build", [inception_v3, squeezenet, googlenet], ids=lambda build: build.__name__)
def test_blocks_of_the_papers(build: object) -> None:
    """The blocks that the papers count are those between cut vertices."""
    graph = build()  # type: ignore[operator]
    assert found_blocks(replace(graph, blocks=())) == graph.blocks


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (_graph("a"), ["a"]),
        (_graph("abc", "ab", "bc"), ["abc"]),
        (_graph("abcd", "ab", "ac", "bd", "cd"), ["a", "bcd"]),
        (_graph("abcde", "ab", "ac", "bd", "cd", "de"), ["a", "bcd", "e"]),
        # b is on every path but for the value that goes past it from a to c
        (_graph("abcd", "ab", "bc", "ac", "cd"), ["a", "bc", "d"]),
        # two sources, two sinks
        (_graph("abcde", "ac", "bc", "cd", "ce"), ["abc", "de"]),
        # nothing between them
        (_graph("ab"), ["ab"]),
    ],
)
def test_found_blocks(graph: Graph, expected: list[str]) -> None:
    """Cut vertices end blocks; those that follow one another directly are one block."""
    assert ["".join(block) for block in found_blocks(graph)] == expected


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_blocks_end_at_cut_vertices(drawn: tuple[int, set[tuple[int, int]]]) -> None:
    """On any graph: blocks hold each operator once, and what leaves a block is its last operator, for the next one."""
    count, pairs = drawn
    names = "abcdefghi"[:count]
    graph = _graph(names, *(names[u] + names[v] for u, v in sorted(pairs) if u < v))
    parts = found_blocks(graph)
    assert sorted(itertools.chain(*parts)) == list(names)
    home = {operator: number for number, block in enumerate(parts) for operator in block}
    for edge in graph.edges:
        source, target = home[edge.source], home[edge.target]
        assert source == target or (source + 1 == target and edge.source == parts[source][-1])


def test_declared_blocks() -> None:
    """Operators of a declared module, or of modules inside it, are a block; so is each run of operators outside."""
    graph = _graph("abcdefg", "ab", "bc", "cd", "de", "ef", "fg")
    modules = {"a": ["stem"], "b": ["cells.1"], "c": ["cells.1.conv"], "d": ["cells.10"], "e": ["", "cells.2"]}
    modules |= {"f": [""], "g": []}
    parts = declared_blocks(graph, modules, ("cells.1", "cells.10", "cells.2"))
    assert ["".join(block) for block in parts] == ["a", "bc", "d", "e", "fg"]


def test_inner_blocks_come_first() -> None:
    """Of two declared modules, one inside the other, the inner one has the operator."""
    graph = _graph("abc", "ab", "bc")
    parts = declared_blocks(graph, {"a": ["m"], "b": ["m.inner.conv"], "c": ["n"]}, ("m", "m.inner", "n"))
    assert ["".join(block) for block in parts] == ["a", "b", "c"]


def test_declared_blocks_that_wait_for_each_other() -> None:
    """A module that is called again after another one that reads it cannot be a block."""
    graph = _graph("abc", "ab", "bc")
    with pytest.raises(HiosError, match=r"blocks that the model declares \(m, n\) cannot run one after another"):
        declared_blocks(graph, {"a": ["m"], "b": ["n"], "c": ["m"]}, ("m", "n"))
