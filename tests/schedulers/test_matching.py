"""Matchings and vertex covers of bipartite graphs, listed or as sets of bits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hios.core.problem import members
from hios.schedulers.nimble import maximum_matching, minimum_vertex_cover


@st.composite
def bipartite(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    """Neighbors of up to 7 left vertices among up to 7 right ones."""
    right = draw(st.integers(0, 7))
    neighbors = st.lists(st.integers(0, right - 1), unique=True) if right else st.just([])
    return draw(st.lists(neighbors, max_size=7)), right


def _check_optimal(adjacency: list[list[int]], matched: list[int]) -> None:
    """A matching and a cover of the same size prove each other optimal."""
    used = [right for right in matched if right >= 0]
    assert len(set(used)) == len(used)
    assert all(right in adjacency[left] for left, right in enumerate(matched) if right >= 0)
    lefts, rights = minimum_vertex_cover(adjacency, matched)
    assert all(left in lefts or right in rights for left, row in enumerate(adjacency) for right in row)
    assert len(lefts) + len(rights) == len(used)


@given(graph=bipartite())
def test_matching_is_maximum(graph: tuple[list[list[int]], int]) -> None:
    """Matching and cover fit the graph and have the same size."""
    adjacency, right = graph
    _check_optimal(adjacency, maximum_matching(adjacency, right))


@given(graph=bipartite(), data=st.data())
def test_enlarging_keeps_vertices(graph: tuple[list[list[int]], int], data: st.DataObject) -> None:
    """Any matching is extended to a maximum one, in which all matched vertices stay matched."""
    adjacency, right = graph
    start, taken = [], set()
    for row in adjacency:
        partner = data.draw(st.sampled_from([-1, *(r for r in row if r not in taken)]))
        start.append(partner)
        taken.add(partner)
    matched = maximum_matching(adjacency, right, start)
    _check_optimal(adjacency, matched)
    assert all(new >= 0 for old, new in zip(start, matched, strict=True) if old >= 0)
    assert taken - {-1} <= set(matched)


def test_long_augmenting_path() -> None:
    """A path through all of 5000 vertices, listed or as sets of bits, is no matter of recursion."""
    count = 5000
    sets = [3 << left for left in range(count - 1)] + [1]
    start = [*range(count - 1), -1]
    for matched in (
        maximum_matching([members(row) for row in sets], count, start),
        maximum_matching([[]] * count, count, start, sets),
    ):
        assert matched == [*range(1, count), 0]


@st.composite
def dense_graphs(draw: st.DrawFn) -> tuple[list[list[int]], list[int], int]:
    """Neighbors of up to 12 left vertices among as many right ones: some listed in any order, some as bits."""
    right = draw(st.integers(1, 12))
    vertices = st.integers(0, right - 1)
    count = draw(st.integers(0, 12))
    listed = draw(st.lists(st.lists(vertices, unique=True, max_size=3), min_size=count, max_size=count))
    sets = draw(st.lists(st.integers(0, (1 << right) - 1), min_size=count, max_size=count))
    return listed, sets, right


@given(graph=dense_graphs())
def test_pairs_are_the_same(graph: tuple[list[list[int]], list[int], int]) -> None:
    """Enlarging a matching of the listed edges, or none over more phases, gives the same pairs as the whole lists."""
    listed, sets, right = graph
    whole = [[*row, *members(more)] for row, more in zip(listed, sets, strict=True)]
    for start in (maximum_matching(listed, right), [-1] * len(sets)):
        assert maximum_matching(listed, right, start, sets) == maximum_matching(whole, right, start)
