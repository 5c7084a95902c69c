"""The topological order that graphs, blocks and plans share."""

from __future__ import annotations

from hios.graph import topological_order


def test_ties_go_by_number() -> None:
    """A node comes after its predecessors, and before others that could come next if its number is smaller."""
    assert topological_order([[3], [3], [0], []]) == [1, 2, 0, 3]


def test_ties_go_by_preference() -> None:
    """Of the nodes that could come next, the first of the preference does."""
    assert topological_order([[2], [2], [], []], [3, 1, 2, 0]) == [3, 1, 0, 2]


def test_parallel_edges_count_each() -> None:
    """A node that has two edges from one predecessor comes after it, once."""
    assert topological_order([[], [0, 0]]) == [1, 0]


def test_cycles_are_left_out() -> None:
    """Nodes on a cycle and after it are missing; those before it are not."""
    assert topological_order([[1], [2], [1, 3], [], []]) == [0, 4]


def test_no_nodes() -> None:
    """An empty graph has an empty order."""
    assert topological_order([]) == []
