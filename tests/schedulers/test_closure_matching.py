"""Matchings over sets of bits are those over lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hios.schedulers.closure_matching import bits, closure_matching
from hios.schedulers.matching import maximum_matching


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[int]], list[int], int]:
    """Neighbors of up to 12 left vertices among as many right ones: some listed in any order, some as bits."""
    right = draw(st.integers(1, 12))
    vertices = st.integers(0, right - 1)
    count = draw(st.integers(0, 12))
    listed = draw(st.lists(st.lists(vertices, unique=True, max_size=3), min_size=count, max_size=count))
    sets = draw(st.lists(st.integers(0, (1 << right) - 1), min_size=count, max_size=count))
    return listed, sets, right


@given(graph=graphs())
def test_pairs_are_the_same(graph: tuple[list[list[int]], list[int], int]) -> None:
    """Enlarging a matching of what is listed pairs every vertex as over the whole lists."""
    listed, sets, right = graph
    start = maximum_matching(listed, right)
    whole = [[*row, *bits(more)] for row, more in zip(listed, sets, strict=True)]
    assert closure_matching(listed, sets, right, start) == maximum_matching(whole, right, start)


@given(graph=graphs())
def test_pairs_from_nothing_are_the_same(graph: tuple[list[list[int]], list[int], int]) -> None:
    """The same without a matching to begin with, over more phases."""
    listed, sets, right = graph
    whole = [[*row, *bits(more)] for row, more in zip(listed, sets, strict=True)]
    assert closure_matching(listed, sets, right, [-1] * len(sets)) == maximum_matching(whole, right)


def test_long_augmenting_path() -> None:
    """A path through all of 3000 vertices is no matter of recursion."""
    count = 3000
    sets = [3 << left for left in range(count - 1)] + [1]
    start = [*range(count - 1), -1]
    assert closure_matching([[]] * count, sets, count, start) == [*range(1, count), 0]
