"""Traces of arrivals: rates, seeds, and what does not change them."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import pytest

from hios.serving.scenario import Scenario, draw
from tests.serving.scenarios import scenario, served, written

_A, _B = served("a", [[1.0]], 50.0), served("b", [[1.0]], 100.0)


def test_periodic_arrivals() -> None:
    """A task of each model every 1 / rate seconds, from 0; tasks of one moment by label."""
    arrivals = draw(scenario(_B, _A, arrivals="periodic", duration_s=0.04))
    assert list(arrivals.times_s) == pytest.approx([0.0, 0.0, 0.01, 0.02, 0.02, 0.03])
    assert list(arrivals.models) == [1, 0, 0, 1, 0, 0]


def test_poisson_arrivals() -> None:
    """Gaps of a model are exponential with mean 1 / rate: their spread equals their mean."""
    arrivals = draw(scenario(_A, _B, duration_s=200.0))
    for number, rate in enumerate((50.0, 100.0)):
        times = [time for time, model in zip(arrivals.times_s, arrivals.models, strict=True) if model == number]
        gaps = [after - before for before, after in itertools.pairwise(times)]
        assert statistics.mean(gaps) == pytest.approx(1 / rate, rel=0.03)
        assert statistics.stdev(gaps) == pytest.approx(1 / rate, rel=0.05)
    assert list(arrivals.times_s) == sorted(arrivals.times_s)
    assert max(arrivals.times_s) < 200.0


def test_seeds() -> None:
    """Equal seeds give equal tasks, other seeds and repeats others; a model's tasks do not depend on the others."""
    one = draw(scenario(_A, _B, duration_s=5.0))
    assert draw(scenario(_A, _B, duration_s=5.0)) == one
    assert draw(scenario(_A, _B, duration_s=5.0, seed=1)) != one
    assert draw(scenario(_A, _B, duration_s=5.0), repeat=1) != one
    alone = draw(scenario(_A, duration_s=5.0))
    assert list(alone.times_s) == [t for t, model in zip(one.times_s, one.models, strict=True) if model == 0]


def test_arrivals_from_a_file(tmp_path: Path) -> None:
    """Rows in any order become tasks by time; those after the end are left out, rates follow from the rest."""
    text = "time_s,model\n3,left\n0.5,right\n9,left\n0.5,left\n"
    (tmp_path / "trace.csv").write_text(text, encoding="utf-8")
    given = Scenario.read(written(tmp_path, arrivals="trace.csv"))
    arrivals = draw(given)
    assert (list(arrivals.times_s), list(arrivals.models)) == ([0.5, 0.5, 3.0], [0, 1, 0])
    assert [model.rate for model in given.models] == [0.4, 0.2]
    assert draw(given, repeat=3) == arrivals
