"""The published speedups of schedules that predictions are compared with."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.concurrent_validation import Row, rows, summary

_RANGE = Row("IOS", "v100-sxm2", "resnet50", 1, 0.9, "ios", 1.02, most=1.05)
_OVER = Row("HIOS", "a40", "nasnet_large", 1, 0.9, "hios-lp", 1.1, most=1.2, over="hios-mr", devices=2)


def test_the_rows_of_the_documents() -> None:
    """As many as docs/gpus.md says, each once, and every fitted GPU is that of one paper."""
    every = rows()
    assert (len(every), sum(row.fitted for row in every)) == (66, 34)
    assert max(Counter((row.paper, row.gpu, row.network, row.batch, row.name) for row in every).values()) == 1
    assert len({row.gpu for row in every if row.fitted}) == len({(row.gpu, row.paper) for row in every if row.fitted})
    sample = {row.algorithm: row.published for row in every if row.network == "ios_sample"}
    assert sample == {"ios": pytest.approx(0.486 / 0.333), "greedy": pytest.approx(0.486 / 0.37)}


def test_ranges() -> None:
    """Any number of a range is right, others count from its nearer end; the order is that of the other schedule."""
    assert [_RANGE.error(found) for found in (1.02, 1.04, 1.05)] == [0, 0, 0]
    assert _RANGE.error(1.26) == pytest.approx(0.2)
    assert _RANGE.error(0.51) == pytest.approx(-0.5)
    assert "right side of 1 1/1" in summary([_RANGE, _OVER], [1.01, 0.9])
    assert "pairs in order 0/1" in summary([_RANGE, _OVER], [1.01, 0.9])
    assert "pairs in order 1/1" in summary([_RANGE, _OVER], [1.01, 1.3])
