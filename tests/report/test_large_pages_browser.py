"""The page of a large study in Chromium: little is laid out at first; links, paper and scrolling reach all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hios.report import page, write_report
from tests.report.browser import PAPER, needs_chromium, opens_clean, visited
from tests.report.test_report import make_several
from tests.workers.processes import eventually

pytestmark = [needs_chromium, pytest.mark.slow]

NAMES = ("first", "second", "third", "fourth")
#: Whether the browser draws an element, or skips it as it is far from the window or in what is closed.
_DRAWN = "element => element.checkVisibility({contentVisibilityAuto: true})"
_INSIDE = (
    "element => { const {top, bottom} = element.getBoundingClientRect(); return bottom > 0 && top < innerHeight; }"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of four networks where a page holds next to nothing."""
    folder = tmp_path_factory.mktemp("large")
    models = make_several(folder, *NAMES)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_CHARTS", "_ROWS", "_PICTURES"):
            patch.setattr(page, name, 1)
        write_report(models, folder / "report.html", folder / "tables")
    return folder / "report.html"


def _is_drawn(places: Any) -> bool:
    """Whether the first of some elements is drawn, or is in the next frames, as what comes near the window is."""
    return eventually(lambda: bool(places.first.evaluate(_DRAWN)))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), pytest.param(360, "dark", marks=pytest.mark.slow)])
def test_large_page_opens_clean(browser: Any, path: Path, width: int, scheme: str) -> None:
    """As small ones do, when all of it has been near the window."""
    visit = visited(browser, path, width=width, scheme=scheme)
    for element in visit.tab.locator(".model, .gantts, #tables > .scroll").all():
        element.scroll_into_view_if_needed()
        assert _is_drawn(element.locator("td, text, summary"))
    assert opens_clean(visit, path, width)


def test_what_is_far_is_not_laid_out(browser: Any, path: Path) -> None:
    """The summary is drawn; the last network's chart, all Gantt charts and the tables wait."""
    tab = visited(browser, path).tab
    assert tab.locator("table.models td").first.evaluate(_DRAWN)
    for place in ("#model-4 svg.chart", "figure.gantt", "table.schedules"):
        assert not any(element.evaluate(_DRAWN) for element in tab.locator(place).all())
    assert tab.locator("details.schedule[open], .gantt .controls").count() == 0


def _comes_into_the_window(tab: Any, place: str) -> bool:
    """Asked from here: what polls in the page is evaluated as text, which the page's policy forbids."""
    return eventually(lambda: bool(tab.locator(place).first.evaluate(_INSIDE)))


def test_links_lead_to_what_is_far(browser: Any, path: Path) -> None:
    """A network and a table's row come into the window and are drawn; so they do by an address from outside."""
    tab = visited(browser, path).tab
    row = tab.locator(".headlines a").first.get_attribute("href")
    assert row.startswith("#measured-")
    for address, shown in (("#model-4", "#model-4 h3"), (row, row)):
        tab.locator(f'a[href="{address}"]').first.click()
        assert _comes_into_the_window(tab, shown)
        assert _is_drawn(tab.locator(shown))
        outside = tab.context.new_page()
        outside.goto(f"{path.as_uri()}{address}")
        assert _comes_into_the_window(outside, shown)
        assert _is_drawn(outside.locator(shown))


def test_chart_of_a_large_page_opens(browser: Any, path: Path) -> None:
    """The Gantt chart of the last network opens by its summary and has its buttons."""
    visit = visited(browser, path)
    schedule = visit.tab.locator("details.schedule").last
    schedule.locator("> summary").click()
    schedule.locator(".gantt svg.chart").scroll_into_view_if_needed()
    visit.expect(schedule.get_by_role("button", name="zoom in")).to_be_visible()
    assert schedule.locator("[data-hover]").first.bounding_box()["width"] > 0


def test_paper_of_a_large_page_has_all(browser: Any, path: Path) -> None:
    """In print every chart is expanded and drawn, wherever the window is."""
    tab = visited(browser, path, width=PAPER[0]).tab
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    drawn = [chart.evaluate(_DRAWN) for chart in tab.locator("svg.chart").all()]
    assert drawn == [True] * 2 * len(NAMES)
    assert tab.locator("table.schedules td").first.evaluate(_DRAWN)


def test_large_page_is_complete_without_scripts(browser: Any, path: Path) -> None:
    """Every chart is open, and is drawn once the window comes near."""
    visit = visited(browser, path, scripts=False)
    charts = visit.tab.locator("svg.chart").all()
    assert len(charts) == 2 * len(NAMES)
    for chart in charts:
        chart.scroll_into_view_if_needed()
        assert chart.bounding_box()["width"] > 100
    assert visit.tab.locator("button:visible, select:visible").count() == 0
    assert visit.errors == []
