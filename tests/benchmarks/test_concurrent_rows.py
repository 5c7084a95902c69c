"""The published speedups of schedules that predictions are compared with."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.concurrent_validation import Row, rows, summary

_RANGE = Row("IOS", "v100-sxm2", "resnet50", 1, 0.9, "ios", 1.02, most=1.05)
_OVER = Row("HIOS", "a40", "nasnet_large", 1, 0.9, "hios-lp", 1.1, most=1.2, over="hios-mr", devices=2)


def test_the_rows_of_the_documents() -> None:
    """As many as docs/gpus.md says, each once, and every fitted GPU is that of one paper."""
    every = rows()
    assert (len(every), sum(row.fitted for row in every)) == (83, 34)
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
    both = replace(_RANGE, published=0.9, most=1.1)  # tells nothing of sides
    assert "right side of 1 1/1" in summary([_RANGE, both, _OVER], [1.01, 0.95, 1.3])


def test_hios_by_image_size() -> None:
    """What follows from the printed cuts: HIOS-MR over sequential, and at 331 px HIOS-LP behind IOS."""
    own = {(row.network, row.name): row for row in rows() if row.paper == "HIOS"}
    assert own["inception_v3", "hios-mr"].published == pytest.approx((1 - 0.168) / (1 - 0.061))
    assert own["inception_v3", "hios-mr"].most == pytest.approx((1 - 0.109) / (1 - 0.197))
    assert own["nasnet_large", "hios-lp over ios"].published == pytest.approx(1 / 1.054)
    assert own["inception_v3-1024", "hios-lp-inter"].most == pytest.approx(1 / (1 - 0.982 * 0.197))
    assert own["inception_v3-1024", "ios"].most == pytest.approx(1 / (1 - 0.197 / 9.9))
