"""Pages of studies too large for a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hios.report import page_limits, write_report
from tests.report.test_report import COMPETITORS, PageTables, make_results, read_csv


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The report of two networks where a page holds next to nothing; links to rows and files are left."""
    for name in ("_CHARTS", "_ROWS", "_PICTURES"):
        monkeypatch.setattr(page_limits, name, 1)
    models = [make_results(tmp_path / name, name, seed=seed) for seed, name in enumerate(("first", "second"))]
    write_report(models, tmp_path / "report.html", tmp_path)
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def test_charts_of_the_fastest_are_left(page: str) -> None:
    """A Gantt chart of each network, no picture of a graph, no files inside; the page says so."""
    assert len(re.findall(r'<figure class="gantt"', page)) == 2
    assert "operators by block" not in page
    assert "download=" not in page
    for text in ("too large for one page", "hios show --html", "hios draw", "latency.csv"):
        assert text in page


def test_rows_that_say_most_are_left(page: str, tmp_path: Path) -> None:
    """The tables have the fastest and the sequential schedules and every row that is linked to; the file has all."""
    tables = PageTables(page).tables
    labels = [row[1] for row in tables["schedules"][1:]]
    assert sum("lowest median" in label for label in labels) == 2
    assert sum(label.startswith("sequential") for label in labels) == 2
    assert len(labels) < 2 * len(COMPETITORS)
    links = set(re.findall(r'href="#((?:measured|predicted)-\d+-\d+)"', page))
    assert links
    assert links <= set(re.findall(r'<tr id="([^"]+)"', page))
    rows = [row for row in read_csv(tmp_path / "latency.csv") if row["kind"] == "schedule"]
    assert len(rows) == 2 * len(COMPETITORS)
