"""Pages of large studies: what they leave out, and the processes that draw them."""

from __future__ import annotations

import os
import re
import shutil
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path

import altair
import pytest

from hios.charts.rendering import to_svg
from hios.report import page as large_pages
from tests.report.test_report import COMPETITORS, PageTables, make_results, make_several, page_of, read_csv
from tests.workers.processes import children


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The report of two networks where a page holds next to nothing; links to rows and files are left."""
    for name in ("_CHARTS", "_ROWS", "_PICTURES"):
        monkeypatch.setattr(large_pages, name, 1)
    return page_of(tmp_path, *make_several(tmp_path, "first", "second"))


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


def _numbered(number: int, part: str) -> tuple[int, str, int]:
    return number, part, os.getpid()


def _inverse(_: int, part: int) -> float:
    return 1 / part


@pytest.fixture
def before() -> set[int]:
    """Processes of this one, that which multiprocessing leaves behind among them."""
    resource_tracker.ensure_running()
    return set(children())


def test_results_are_in_order_and_nobody_is_left(before: set[int]) -> None:
    """Every part is made once, in other processes than this, which are gone afterwards."""
    made = large_pages.made("abcdefgh", _numbered, 2)
    assert [(number, part) for number, part, _ in made] == list(enumerate("abcdefgh", start=1))
    assert os.getpid() not in {process for _, _, process in made}
    assert set(children()) <= before


@pytest.mark.parametrize(("parts", "processes"), [(1, 2), (8, 1)])
def test_few_parts_are_made_here(parts: int, processes: int) -> None:
    """Starting processes would take longer."""
    assert large_pages.made(range(parts), lambda *_: os.getpid(), processes) == [os.getpid()] * parts


def test_threads_of_this_process_are_no_harm() -> None:
    """Drawing leaves threads with locks behind, which processes must not begin with."""
    chart = altair.Chart(altair.InlineData([{"x": 1}]), description="A point").mark_point().encode(x="x:Q")
    assert to_svg(chart, "here")
    assert large_pages.made(range(8), partial(_drawn, chart), 2) == ["<svg"] * 8


def _drawn(chart: altair.Chart, number: int, _: int) -> str:
    return to_svg(chart, f"chart-{number}")[:4]


def test_what_is_raised_arrives(before: set[int]) -> None:
    """An error is that of the part, and ends the others."""
    with pytest.raises(ZeroDivisionError):
        large_pages.made(range(8), _inverse, 2)
    assert set(children()) <= before


@pytest.mark.slow
def test_the_page_is_the_same(tmp_path: Path) -> None:
    """However many processes draw it."""
    first = make_results(tmp_path / "net", "net", seed=0)
    models = [Path(shutil.copytree(first, tmp_path / f"net{number}")) for number in range(8)]
    assert page_of(tmp_path, *models, processes=1) == page_of(tmp_path, *models, processes=2)
