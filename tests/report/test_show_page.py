"""One schedule as a page."""

from __future__ import annotations

import html
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hios.charts.theme import style_of
from hios.report import write_schedule
from hios.report.terminal import summary
from tests.cli.commands import invoke
from tests.report.browser import loads_nothing, needs_chromium, opened
from tests.report.drawn_schedules import made

NAMED = made(
    [
        ("net.stem", 0, 0, 0, 0, 2),
        ("net.left", 0, 0, 1, 2, 5),
        ("net.<right>", 0, 1, 1, 2, 5),
        ("net.far", 1, 0, 0, 3, 6),
        ("net.sum", 0, 0, 2, 7, 8),
    ],
    devices=3,
    parameters={"window": 2},
    lower_bound_ms=6.4,
    graph="a <graph>",
    notes={"search": "stopped & done"},
)
TYPES = {row.operator: "conv" if row.operator != "net.sum" else "add" for row in NAMED.placements}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a staged schedule with types."""
    file = tmp_path_factory.mktemp("show") / "page.html"
    write_schedule(NAMED, file, TYPES)
    return file


@pytest.fixture(scope="module")
def page(path: Path) -> str:
    """Its text."""
    return path.read_text(encoding="utf-8")


def figure(page: str) -> str:
    """The chart of a page."""
    matched = re.search(r'<svg class="chart" id="schedule".*?</svg>', page, re.DOTALL)
    assert matched
    return matched[0]


def end_ms(page: str) -> float:
    """Where the time axis of the chart ends."""
    return float(re.findall(r'data-end="([\d.]+)"', page)[0])


def rectangles(figure: str, name: str) -> list[tuple[str, float, float, float, float]]:
    """Attributes before the path, and x, y, width and height in pixels, of the bars of a group of marks."""
    (group,) = re.findall(rf'<g class="mark-rect role-mark {name}">(.*?)</g>', figure, re.DOTALL)
    paths = re.findall(r'<path ([^>]*?)d="M([-\d.]+),([-\d.]+)h([\d.]+)v([\d.]+)h', group)
    return [(head, *map(float, numbers)) for head, *numbers in paths]


def test_page_loads_nothing(page: str) -> None:
    """Nothing is loaded by src, href, url() or import, and no library is inlined."""
    assert "plotly" not in page
    assert loads_nothing(page)


def test_page_tells_the_facts(page: str) -> None:
    """What the terminal shows above its chart is on the page, escaped, with a row for every device."""
    for name, text in summary(replace(NAMED, graph="a &lt;graph&gt;", notes={"search": "stopped &amp; done"})):
        assert f"<dt>{name}</dt><dd>{text}</dd>" in page
    assert "<graph>" not in page
    rows = re.findall(r'<th scope="row">(device \d)</th>\s*(.*?)</tr>', page, re.DOTALL)
    cells = [(device, re.findall(r">([^<]*)</td>", row)) for device, row in rows]
    assert cells == [
        ("device 0", ["4", "2", "3", "25.0"]),
        ("device 1", ["1", "1", "1", "62.5"]),
        ("device 2", ["0", "0", "0", "100.0"]),
    ]


def test_bars_are_the_placements(page: str) -> None:
    """Every operator is a bar in its row, named and colored by type, with times and stage to hover."""
    chart, scale = figure(page), 980 / end_ms(page)
    rows = ["device 0, stream 0", "device 0, stream 1", "device 1", "device 2"]
    assert re.findall(r">(device [^<]*)</text>", chart) == rows
    lanes = {(0, 0): 0, (0, 1): 1, (1, 0): 2}
    bars = rectangles(chart, "concat_0_layer_1_marks")
    for row, (head, x, y, width, _) in zip(NAMED.placements, bars, strict=True):
        lines = html.unescape(re.findall(r'data-hover="([^"]*)"', head)[0]).splitlines()
        times = f"predicted: {row.start_ms:.3f} to {row.finish_ms:.3f} ms"
        assert lines == [row.operator, TYPES[row.operator], times, f"stage {row.stage}"]
        assert x == pytest.approx(scale * row.start_ms, abs=0.02)
        assert width == pytest.approx(scale * (row.finish_ms - row.start_ms), abs=0.02)
        assert y // 30 == lanes[row.device, row.stream]
    fills = re.findall(r'data-hover="([^"\n]*)\n[^>]*? fill="([^"]*)"', chart)
    assert len(fills) == len(NAMED.placements)
    for operator, fill in fills:
        style = style_of(TYPES[html.unescape(operator)])
        assert fill == (f"url(#schedule-hatch-{style.color[1:]})" if style.hatched else style.color)
    names = re.findall(r'<g class="mark-text role-mark concat_0_layer_3_marks">(.*?)</g>', chart, re.DOTALL)[0]
    assert re.findall(r">([^<]*)</text>", names) == ["stem", "left", "&lt;right&gt;", "far", "sum"]


def test_every_other_stage_has_a_tint_and_the_bound_a_line(page: str) -> None:
    """Stage 1 of device 0 is tinted over both of its rows; the lower bound is a line with its name."""
    chart, scale = figure(page), 980 / end_ms(page)
    tints = rectangles(chart, "concat_0_layer_0_marks")
    assert [(x, y, width, height) for _, x, y, width, height in tints] == [
        (pytest.approx(scale * 2, abs=0.02), y, pytest.approx(scale * 3, abs=0.02), 30) for y in (0, 30)
    ]
    lines = re.findall(r'<g class="mark-rule role-mark[^>]*><line[^>]*transform="translate\(([\d.]+),', chart)
    assert [float(x) for x in lines] == [pytest.approx(scale * time, abs=0.02) for time in (8, 6.4)]
    assert chart.count(">lower bound</text>") == 1


def test_stream_schedule_without_types(tmp_path: Path) -> None:
    """Without types, bound and stages the page says so and tints nothing."""
    write_schedule(made([("a", 0, 0, None, 0, 1), ("b", 0, 3, None, 0, 2)]), tmp_path / "page.html", {})
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    chart = figure(page)
    hovers = [html.unescape(text).splitlines() for text in re.findall(r'data-hover="([^"]*)"', chart)]
    assert [(lines[0], lines[1], lines[-1]) for lines in hovers] == [
        (name, "type unknown", "stage none") for name in "ab"
    ]
    assert not re.search('mark-rect role-mark concat_0_layer_0_marks"><path', chart)
    assert chart.count('<g class="mark-rule role-mark') == 1
    assert "gap unknown" in page
    assert "Operator types" not in page


def test_command_writes_the_page(tmp_path: Path) -> None:
    """With --html the command writes the page and says where, and a page that is there is replaced."""
    NAMED.write(tmp_path / "schedule.json")
    target = tmp_path / "folder" / "page.html"
    for _ in range(2):
        done = invoke("show", tmp_path / "schedule.json", "--html", target)
        assert done.output == f"{target}: 5 operators on 3 device(s)\n"
        assert "</html>" in target.read_text(encoding="utf-8")


def test_terminal_needs_no_charts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the report extra the terminal works; the page is refused in one line that says what to install."""
    NAMED.write(tmp_path / "schedule.json")
    for module in ("jinja2", "altair", "vl_convert"):
        monkeypatch.setitem(sys.modules, module, None)  # what an import finds where it is not installed
    for module in ("page",):
        monkeypatch.delitem(sys.modules, f"hios.report.{module}", raising=False)
    done = invoke("show", tmp_path / "schedule.json")
    assert (done.exit_code, "┃sum" in done.output) == (0, True)
    done = invoke("show", tmp_path / "schedule.json", "--html", tmp_path / "page.html")
    assert done.exit_code == 1
    assert re.fullmatch(
        r"Error: this command needs \w+, which is not installed: pip install 'hios\[report\]'\n", done.stderr
    )
    assert not (tmp_path / "page.html").exists()


@needs_chromium
def test_page_in_browser(path: Path) -> None:
    """In Chromium bars are drawn and labelled, hovering explains, dragging zooms; nothing is sent or loaded."""
    with opened(path) as visit:
        tab = visit.tab
        bars = tab.locator("[data-hover]")
        visit.expect(bars).to_have_count(5)
        names = tab.locator(".concat_0_layer_3_marks text")
        assert set(names.all_text_contents()) == {"stem", "left", "<right>", "far", "sum"}
        before = bars.first.bounding_box()
        tab.mouse.move(before["x"] + 20, before["y"] + 5)
        tip = tab.locator(".tip")
        visit.expect(tip).to_be_visible()
        assert "net.stem" in tip.text_content()
        assert "predicted: 0.000 to 2.000 ms" in tip.text_content()
        tab.mouse.down()
        tab.mouse.move(before["x"] + before["width"], before["y"] + 5, steps=4)
        tab.mouse.up()
        assert bars.first.bounding_box()["width"] > 1.05 * before["width"]
        ticks = tab.locator(".role-axis-label text:text('0.5')")
        visit.expect(ticks).to_have_count(1)
        tab.get_by_role("button", name="show the whole").click()
        assert bars.first.bounding_box() == before
        visit.expect(ticks).to_have_count(0)
        assert visit.errors == []
        assert visit.requests == [path.as_uri()]
