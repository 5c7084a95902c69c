"""The page of the papers in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hios.study import registry
from tests.report.browser import PAPER, WINDOWS, needs_chromium, opens_clean, scrolled, visited
from tests.report.paper_pages import DRAWN, write_page, write_results

pytestmark = [needs_chromium, pytest.mark.slow]
pytest.importorskip("altair", reason="needs the extra report")
pytest.importorskip("numba", reason="needs the extra opt")

CHARTS = [name for name in DRAWN if registry.figure(name).chart is not None]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with figures."""
    return write_page(write_results(tmp_path_factory.mktemp("papers")))


@pytest.mark.parametrize(("width", "scheme"), WINDOWS)
def test_page_with_figures_opens_clean(browser: Any, path: Path, width: int, scheme: str) -> None:
    """No message, no request, no sideways scrolling, nothing that axe calls serious."""
    visit = visited(browser, path, width=width, scheme=scheme)
    assert opens_clean(visit, path, width)


def test_every_id_is_there_once(browser: Any, path: Path) -> None:
    """Addresses lead to the figures, which have the ids of the registry."""
    ids = visited(browser, path).tab.evaluate("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert set(CHARTS) <= set(ids)
    assert sorted(set(ids)) == sorted(ids)


def test_figures_are_complete_without_scripts(browser: Any, path: Path) -> None:
    """Every chart is drawn, figures without one show their table, and nothing is collapsed."""
    visit = visited(browser, path, scripts=False)
    for name in CHARTS:
        box = visit.tab.locator(f"article.paper svg#{name}-chart").bounding_box()
        assert box["width"] > 200
        assert box["height"] > 50
    for name in set(DRAWN) - set(CHARTS):
        assert visit.tab.locator(f"article#{name} table.rows tbody tr").first.is_visible()
    assert visit.tab.locator("article.paper button:visible").count() == 0
    assert visit.tab.locator("details.folded:not([open])").count() == 0
    assert visit.tab.locator("article.paper:visible").count() == len(registry.ids())
    assert visit.errors == []


def test_figures_tell_at_the_pointer_and_sort(browser: Any, path: Path) -> None:
    """A point says what it is; the table of a figure opens and sorts by its numbers."""
    visit = visited(browser, path)
    point = visit.tab.locator("article#hios_fig8 [data-hover]").first
    point.scroll_into_view_if_needed()
    scrolled(visit.tab)
    point.hover()
    visit.expect(visit.tab.locator(".tip")).to_have_text(point.get_attribute("data-hover"))
    figure = visit.tab.locator("article#hios_fig8")
    figure.locator("details.rows > summary").click()
    figure.get_by_role("button", name="mean ms").click()
    column = figure.locator("thead th").all_text_contents().index("mean ms") + 1
    cells = figure.locator(f"tbody td:nth-child({column})")
    values = [float(value) for value in cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")]
    assert values == sorted(values)
    assert len(set(values)) > 1


def test_folds_open_by_link_and_for_paper(browser: Any, path: Path) -> None:
    """What has no result is closed until a link leads to it, by click or address; paper has all of it."""
    visit = visited(browser, path)
    tab = visit.tab
    closed = tab.locator("details.folded:not([open])")
    count = closed.count()
    assert count > 5
    articles = tab.locator("article.paper:visible")
    assert articles.count() == len(DRAWN)
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert closed.count() == 0
    assert articles.count() == len(registry.ids())
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert closed.count() == count
    card = tab.locator("article#hios_fig12")
    tab.evaluate("location.hash = 'hios_fig12'")
    visit.expect(card).to_be_in_viewport()
    card.get_by_role("link", name="published and found").click()
    visit.expect(tab.locator("tbody#said-hios_fig12")).to_be_in_viewport()
    assert closed.count() == count - 2
    assert visit.errors == []


def test_folds_keep_the_page_short(browser: Any, path: Path) -> None:
    """Cards and their statements take most of the whole height, and little of it until they are opened."""
    height = "document.documentElement.scrollHeight"
    short = visited(browser, path).tab.evaluate(height)
    whole = visited(browser, path, scripts=False).tab.evaluate(height)
    assert short < whole / 2


def test_figures_fit_on_paper(browser: Any, path: Path) -> None:
    """In print no chart is wider or taller than a sheet, and none breaks across two."""
    tab = visited(browser, path, width=PAPER[0], scheme="dark").tab
    tab.emulate_media(media="print")
    for name in CHARTS:
        figure = tab.locator(f"article#{name} figure")
        box = figure.bounding_box()
        assert box["height"] < PAPER[1]
        assert box["x"] + box["width"] <= PAPER[0]
        drawing = tab.locator(f"svg#{name}-chart").bounding_box()
        assert drawing["x"] + drawing["width"] <= PAPER[0]
        assert figure.evaluate("element => getComputedStyle(element).breakInside") == "avoid"
