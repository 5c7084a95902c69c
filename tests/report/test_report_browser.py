"""The page of the report in Chromium: light and dark, narrow and wide, on paper, with and without scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hios
from hios import Costs, Edge, Graph, Operator, Problem, schedule
from hios.platforms.model.descriptions import gpu, link
from hios.platforms.model.devices import predicted_costs
from hios.report import write_picture, write_report, write_schedule
from tests.report.browser import PAPER, WINDOWS, needs_chromium, opens_clean, scrolled, visited
from tests.report.test_report import COMPETITORS, make_several

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two networks."""
    folder = tmp_path_factory.mktemp("browser")
    write_report(make_several(folder, "first", "second", operators=40), folder / "report.html", folder / "tables")
    return folder / "report.html"


@pytest.mark.parametrize(("width", "scheme"), WINDOWS)
def test_page_opens_clean(browser: Any, path: Path, width: int, scheme: str) -> None:
    """No message, request or sideways scrolling, nothing that axe calls serious; benchmarks/load.py times it."""
    visit = visited(browser, path, width=width, scheme=scheme)
    for narrower in (width, width - width // 3 if width > 1000 else width):
        visit.tab.set_viewport_size({"width": narrower, "height": 900})
        assert opens_clean(visit, path, narrower)


@pytest.mark.parametrize("kind", ["schedule", "graph", "predictions"])
def test_other_pages_open_clean(browser: Any, tmp_path: Path, kind: str) -> None:
    """So do the pages of a schedule, of a graph and of predictions, dark and narrow, light and wide."""
    a40 = gpu("a40")
    edges = tuple(Edge(source, target, 10**5) for source, target in ("ab", "ac", "bd", "cd"))
    graph = Graph("fork", tuple(Operator(name, "add", flops=1e9, bytes=10**7) for name in "abcd"), edges)
    costs = predicted_costs(graph, a40, link("nvlink", a40), 2)
    made = schedule(Problem(graph, Costs.of(costs)), "hios-lp", 2)
    page = tmp_path / "page.html"
    if kind == "schedule":
        write_schedule(made, page, {operator.id: operator.type for operator in graph.operators})
    elif kind == "graph":
        write_picture(graph, page)
    else:
        hios.report((graph, costs, made)).write(page)
    for width, scheme in ((360, "dark"), (1280, "light")):
        visit = visited(browser, page, width=width, scheme=scheme)
        assert opens_clean(visit, page, width)


def test_schedule_tables_fit(browser: Any, path: Path) -> None:
    """At 1280 pixels no table of schedules or references is wider than the page."""
    tables = visited(browser, path).tab.locator("#tables .scroll")
    assert tables.count() > 0
    for table in tables.all():
        assert table.evaluate("element => element.scrollWidth <= element.clientWidth")


@pytest.mark.parametrize("width", [390, 1280])
def test_buttons_cover_no_chart(browser: Any, path: Path, width: int) -> None:
    """The buttons of a Gantt chart stand above its title, legend and bound, within the window."""
    tab = visited(browser, path, width=width).tab
    figures = tab.locator("figure.gantt:visible")
    assert figures.count() > 0
    for figure in figures.all():
        top = figure.locator("svg.chart").bounding_box()["y"]
        buttons = [button.bounding_box() for button in figure.locator(".controls button").all()]
        assert len(buttons) == 3
        assert all(button["y"] + button["height"] <= top for button in buttons)
        assert all(button["x"] >= 0 and button["x"] + button["width"] <= width for button in buttons)


def test_dark_page_is_dark(browser: Any, path: Path) -> None:
    """Page and charts exchange their neutral colors; a bar keeps the color of its type."""
    looks = {}
    for scheme in ("light", "dark"):
        tab = visited(browser, path, scheme=scheme).tab
        looks[scheme] = [
            tab.locator(place).first.evaluate(f"element => getComputedStyle(element).{name}")
            for place, name in (
                ("body", "backgroundColor"),
                ("svg.chart > rect", "fill"),
                ("svg.chart text", "fill"),
                (".fastest [data-hover]", "fill"),
            )
        ]
    assert looks["light"][:2] == ["rgb(255, 255, 255)"] * 2
    assert looks["dark"][:2] == ["rgb(21, 25, 30)"] * 2
    assert looks["light"][2] != looks["dark"][2]
    assert looks["light"][3] == looks["dark"][3]


def _boxes(chart: Any) -> list[dict[str, float]]:
    """Where the bars and points of a chart are on the screen."""
    boxes: list[dict[str, float]] = chart.locator("[data-hover]").evaluate_all(
        "items => items.map(item => item.getBoundingClientRect().toJSON())"
    )
    return boxes


def _column(tab: Any, number: int) -> list[float]:
    cells = tab.locator(f"table.schedules tbody tr:not([hidden]) > :nth-child({number})")
    return [float(value) for value in cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")]


def test_tables_sort_by_click_and_keyboard(browser: Any, path: Path) -> None:
    """A head is a button that sorts one way, then the other; aria-sort says which; dashes stay at the end."""
    tab = visited(browser, path).tab
    head = tab.locator("table.schedules thead th:nth-child(4)")
    button = head.get_by_role("button", name="median, ms")
    before = _column(tab, 4)
    button.click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert _column(tab, 4) == sorted(before)
    button.focus()
    tab.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert _column(tab, 4) == sorted(before, reverse=True)
    for _ in range(2):
        tab.locator("table.schedules thead th:nth-child(7) button").press("Space")
        shares = tab.locator("table.schedules tbody td:nth-child(7)").all_text_contents()
        assert [share == "–" for share in shares] == [False] * 4 + [True] * 4  # noqa: RUF001
    assert head.get_attribute("aria-sort") is None


def test_tables_show_one_model(browser: Any, path: Path) -> None:
    """Choosing a model keeps only its rows in all three tables; choosing all restores the others."""
    tab = visited(browser, path).tab
    choice = tab.get_by_role("combobox", name="Model")
    rows = tab.locator("#tables tr[data-model]:visible")
    whole = rows.count()
    choice.select_option("second")
    assert set(rows.evaluate_all("rows => rows.map(row => row.dataset.model)")) == {"second"}
    assert rows.count() == whole / 2
    choice.select_option("all")
    assert rows.count() == whole


def test_charts_hover_and_zoom(browser: Any, path: Path) -> None:
    """Every chart shows details of its bars; Gantt charts zoom by drag and by button, and can be reset."""
    visit = visited(browser, path)
    tab = visit.tab
    tip = tab.locator(".tip")
    closed = tab.locator("details.schedule:not([open]) > summary")
    while closed.count():
        closed.first.click()
    assert tab.locator("svg.chart").count() == 2 * (1 + len(COMPETITORS))
    for chart in tab.locator("svg.chart").all():
        bar = chart.locator("[data-hover]").first
        bar.scroll_into_view_if_needed()
        scrolled(tab)
        bar.hover()
        visit.expect(tip).to_be_visible()
        assert tip.inner_text().splitlines() == bar.get_attribute("data-hover").splitlines()
    for figure in tab.locator("figure.gantt").all():
        figure.evaluate("element => element.scrollIntoView({block: 'center'})")
        bar = figure.locator("[data-hover]").first
        labels = figure.locator(".role-axis-label text")
        whole, ticks = bar.bounding_box(), labels.all_text_contents()
        x, y = whole["x"], whole["y"] + whole["height"] / 2
        tab.mouse.move(x + 10, y)
        tab.mouse.down()
        tab.mouse.move(x + 110, y, steps=3)
        tab.mouse.up()
        assert bar.bounding_box()["width"] != whole["width"]
        assert labels.all_text_contents() != ticks
        figure.get_by_role("button", name="show the whole").click()
        assert bar.bounding_box()["width"] == pytest.approx(whole["width"], abs=0.1)
        assert labels.all_text_contents() == ticks
        figure.get_by_role("button", name="zoom in").press("Enter")
        assert labels.all_text_contents() != ticks
    assert visit.errors == []


def test_page_is_complete_without_scripts(browser: Any, path: Path) -> None:
    """Every schedule is expanded and drawn, tables are complete, and there is no button without effect."""
    visit = visited(browser, path, scripts=False)
    charts = visit.tab.locator("svg.chart")
    assert charts.count() == 2 * (1 + len(COMPETITORS))
    for chart in charts.all():
        boxes = _boxes(chart)
        assert max(box["width"] for box in boxes) > 20
        assert max(box["height"] for box in boxes) > 5
    assert visit.tab.locator("button:visible, select:visible").count() == 0
    assert visit.errors == []


def test_paper_shows_every_bar(browser: Any, path: Path) -> None:
    """In print all schedules are open, on white; no chart is wider or taller than a sheet, or breaks across two."""
    visit = visited(browser, path, width=PAPER[0], scheme="dark")
    tab = visit.tab
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("body").evaluate("element => getComputedStyle(element).backgroundColor") == "rgb(255, 255, 255)"
    figures = tab.locator("figure:visible")
    assert figures.count() == 2 * (1 + len(COMPETITORS))
    for figure in figures.all():
        box = figure.bounding_box()
        assert box["height"] < PAPER[1]
        assert figure.evaluate("element => getComputedStyle(element).breakInside") == "avoid"
        assert 0 < max(bar["right"] for bar in _boxes(figure)) <= PAPER[0]
    breaks = "[...document.querySelectorAll('*')].filter(e => getComputedStyle(e).breakBefore === 'page').length"
    assert tab.evaluate(breaks) == 0  # nothing leaves a page empty
    assert tab.locator("button:visible, select:visible").count() == tab.locator("thead button:visible").count()
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.locator("details.schedule[open]").count() == 2
