"""One schedule as a page."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hios.cli import main
from hios.report import write_schedule
from hios.report.summary import summary
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


def figure(page: str) -> dict[str, Any]:
    """The figure that plotly draws on a page."""
    found = re.search(r'<script type="application/json" id="schedule-data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_page_loads_nothing(page: str) -> None:
    """plotly.js is inlined and nothing is loaded by src, href, url() or import."""
    assert len(re.findall(r"plotly\.js v\d", page)) == 1
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
    """Every operator is a bar in its lane, named and coloured by type, with times and stage to hover."""
    found = figure(page)
    shown = {
        entry[0]: (trace["name"], name, lane, start, start + length, entry[1:])
        for trace in found["data"]
        for lane, start, length, name, entry in zip(
            *(trace[key] for key in ("y", "base", "x", "text", "customdata")), strict=True
        )
    }
    assert found["layout"]["yaxis"]["ticktext"] == ["device 0, stream 0", "device 0, stream 1", "device 1", "device 2"]
    lanes = {(0, 0): 0, (0, 1): 1, (1, 0): 2}
    assert shown == {
        row.operator: (
            TYPES[row.operator],
            row.operator.removeprefix("net."),
            lanes[row.device, row.stream],
            row.start_ms,
            row.finish_ms,
            [TYPES[row.operator], "predicted", row.start_ms, row.finish_ms, row.stage],
        )
        for row in NAMED.placements
    }


def test_every_other_stage_has_a_tint_and_the_bound_a_line(page: str) -> None:
    """Stage 1 of device 0 is tinted over both of its lanes; the lower bound is a line with its name."""
    shapes = figure(page)["layout"]["shapes"]
    tints = [s for s in shapes if s["type"] == "rect" and s.get("xref") != "paper"]
    assert [(s["x0"], s["x1"], s["y0"], s["y1"]) for s in tints] == [(2, 5, -0.5, 1.5)]
    assert [s["x0"] for s in shapes if s["type"] == "line"] == [8, 6.4]
    assert [a["text"] for a in figure(page)["layout"]["annotations"] if a["text"]] == ["lower bound"]


def test_stream_schedule_without_types(tmp_path: Path) -> None:
    """Without types, bound and stages the page says so and tints nothing."""
    write_schedule(made([("a", 0, 0, None, 0, 1), ("b", 0, 3, None, 0, 2)]), tmp_path / "page.html", {})
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    found = figure(page)
    assert [trace["name"] for trace in found["data"]] == ["type unknown"]
    assert [entry[1] for entry in found["data"][0]["customdata"]] == ["type unknown"] * 2
    assert [entry[-1] for entry in found["data"][0]["customdata"]] == ["none"] * 2
    assert [s["type"] for s in found["layout"]["shapes"]] == ["rect", "line"]
    assert "gap unknown" in page
    assert "Operator types" not in page


def test_command_writes_the_page(tmp_path: Path) -> None:
    """With --html the command writes the page and says where, and a page that is there is replaced."""
    NAMED.write(tmp_path / "schedule.json")
    target = tmp_path / "folder" / "page.html"
    for _ in range(2):
        done = CliRunner().invoke(main, ["show", str(tmp_path / "schedule.json"), "--html", str(target)])
        assert done.output == f"{target}: 5 operators on 3 device(s)\n"
        assert "</html>" in target.read_text(encoding="utf-8")


def test_terminal_needs_no_plotly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the report extra the terminal works; the page is refused in one line that says what to install."""
    NAMED.write(tmp_path / "schedule.json")
    for module in ("jinja2", "plotly", "plotly.graph_objects", "plotly.offline"):
        monkeypatch.setitem(sys.modules, module, None)  # what an import finds where it is not installed
    for module in ("axes", "charts", "gantt", "page"):
        monkeypatch.delitem(sys.modules, f"hios.report.{module}", raising=False)
    done = CliRunner().invoke(main, ["show", str(tmp_path / "schedule.json")])
    assert (done.exit_code, "┃sum" in done.output) == (0, True)
    done = CliRunner().invoke(main, ["show", str(tmp_path / "schedule.json"), "--html", str(tmp_path / "page.html")])
    assert done.exit_code == 1
    assert re.fullmatch(
        r"Error: this command needs \w+, which is not installed: pip install 'hios\[report\]'\n", done.stderr
    )
    assert not (tmp_path / "page.html").exists()


@needs_chromium
def test_page_in_browser(path: Path) -> None:
    """In Chromium bars are drawn and named, hovering tells about one, dragging zooms, and nothing is sent or loaded."""
    with opened(path) as visit:
        tab = visit.tab
        bars = tab.locator(".bars path")
        visit.expect(bars).to_have_count(5, timeout=20_000)
        assert set(tab.locator(".bars text").all_text_contents()) == {"stem", "left", "<right>", "far", "sum"}
        assert "Share chart..." not in tab.evaluate(
            "[...document.querySelectorAll('.modebar-btn')].map(b => b.dataset.title)"
        )
        before = bars.first.bounding_box()
        tab.mouse.move(before["x"] + 20, before["y"] + 5)
        hover = tab.locator(".hovertext")
        visit.expect(hover).to_have_count(1)
        assert "net.stem" in hover.text_content()
        assert "predicted: 0.000 to 2.000 ms" in hover.text_content()
        tab.mouse.down()
        tab.mouse.move(before["x"] + before["width"], before["y"] + 5, steps=4)
        tab.mouse.up()
        for _ in range(100):
            if bars.first.bounding_box()["width"] > 2 * before["width"]:
                break
            tab.wait_for_timeout(100)
        else:
            pytest.fail("dragging over a bar did not zoom in")
        assert visit.errors == []
        assert visit.requests == [path.as_uri()]
