"""Which convolutions the benchmark of merges selects, and what it prints about them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import wide_merges
from benchmarks.wide_merges import Merge, alike, mergeable, side_by_side_ms, summary
from tests.convolution_graphs import Conv, conv_graph

_MEMBERS = {
    "one": Conv(),
    "three": Conv((3, 3), (1, 1)),
    "again": Conv(),
    "other": Conv(stride=(2, 2)),  # of another output size
    "later": Conv(value="one"),
    "last": Conv(value="one"),
}
_MERGE = Merge(
    ("a", "b"),
    count=2,
    whole=True,
    narrow=[(3.0, 4.0), (2.0, 5.0), (4.0, 6.0)],
    wide=[(1.0, 2.0), (1.5, 3.0), (2.0, 4.0)],
    alone=[[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]],
)


def test_what_can_be_merged() -> None:
    """All convolutions of a value that fit together, and all pairs of them."""
    assert list(mergeable(conv_graph(_MEMBERS))) == [
        (("one", "three", "again"), True),
        (("one", "three"), False),
        (("one", "again"), False),
        (("three", "again"), False),
        (("later", "last"), True),
    ]


def test_the_same_computation_is_measured_once() -> None:
    """Whichever operators do it; a pair that is a whole counts apart from one that is not."""
    assert alike(conv_graph(_MEMBERS)) == [
        (("one", "three", "again"), True, 1),
        (("one", "three"), False, 2),
        (("one", "again"), False, 1),
        (("later", "last"), True, 1),
    ]


def test_side_by_side() -> None:
    """The best division of the operators between two cores."""
    assert side_by_side_ms([1.0, 5.0, 3.0, 2.0]) == 6.0
    assert side_by_side_ms([4.0, 1.0]) == 4.0


def test_rows() -> None:
    """Medians, the ratio of pairs with its interval, and the least on two cores; sums are of the shortest."""
    assert _MERGE.times(min) == [4.0, 2.0, 2.0, 1.0, 3.0]
    row = _MERGE.row().split()
    assert row[:8] == ["2", "x", "a", "5.00", "3.00", "3.00", "1.50", "4.00"]
    assert row[8:] == ["0.50", "(0.50", "to", "0.50)", "merged,", "2", "times"]
    part = Merge(("a",), 1, False, _MERGE.narrow, _MERGE.wide, _MERGE.alone)
    slower = Merge(("a", "b"), 1, True, [(5.0, 1.0)], [(5.0, 1.0)], [[0.5], [0.5]])
    assert summary([_MERGE, part, slower]).split()[4:] == ["9.00", "5.00", "5.00", "3.00", "6.50", "0.60"]


def test_networks_without_merges_are_refused(tmp_path: Path) -> None:
    """One line says that there is nothing to measure."""
    conv_graph({"one": Conv()}).write(tmp_path / "graph.json")
    with pytest.raises(SystemExit, match="no convolutions of convolutions can be merged"):
        wide_merges.main([str(tmp_path)])


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_merges_are_measured(tmp_path: Path) -> None:
    """Every merge has times of all runs, on one core and on two."""
    graph = conv_graph(_MEMBERS)
    graph.write(tmp_path / "graph.json")
    measured = wide_merges.measure(tmp_path, alike(graph), runs=2)
    assert [merge.operators for merge in measured] == [operators for operators, _, _ in alike(graph)]
    for merge in measured:
        assert len(merge.narrow) == len(merge.wide) == 2
        assert [len(own) for own in merge.alone] == [2] * len(merge.operators)
        assert min(merge.times(min)) > 0
