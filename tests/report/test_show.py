"""One schedule in the terminal, and as a page."""

from __future__ import annotations

import html
import io
import json
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hios import Graph, HiosError, Operator, Placement, Problem, Schedule, schedule
from hios.charts.theme import style_of
from hios.report import write_schedule
from hios.report.graph_layout import short_names, shortened
from hios.report.terminal import ASCII, PIPED_WIDTH, Look, device_uses, draw, look, operator_types, summary
from tests.cli.commands import invoke, refused
from tests.problems import problem, problems
from tests.report.browser import loads_nothing, needs_chromium, opened

#: Operator, device, stream, stage, start and finish in milliseconds.
Row = tuple[str, int, int, int | None, float, float]


def made(rows: Sequence[Row], **fields: Any) -> Schedule:
    """A schedule from its rows; the latency is the last finish, the bound nothing, unless they are given."""
    known: dict[str, Any] = {
        "algorithm": "by hand",
        "parameters": {},
        "devices": 1,
        "latency_ms": float(max(finish for *_, finish in rows)),
        "lower_bound_ms": 0.0,
        "scheduling_time_s": 0.0,
    }
    placements = tuple(
        Placement(operator, device, stream, stage, float(start), float(finish))
        for operator, device, stream, stage, start, finish in rows
    )
    return Schedule(**{**known, **fields}, placements=placements)


STAGED = made(
    [
        # operator, device, stream, stage, start, finish
        ("stem", 0, 0, 0, 0, 2),
        ("left", 0, 0, 1, 2, 5),
        ("right", 0, 1, 1, 2, 5),
        ("far", 1, 0, 0, 3, 6),
        ("sum", 0, 0, 2, 7, 8),
    ],
    devices=2,
    algorithm="hios-lp",
    parameters={"window": 2},
    lower_bound_ms=6.4,
    scheduling_time_s=0.0125,
    graph="tiny",
)


def lanes(text: str) -> list[str]:
    """The lines of a drawing that hold bars."""
    return [line for line in text.partition("\n\n")[2].splitlines() if re.match(r"device |\s+s\d+ ", line)]


def test_staged_schedule_line_by_line() -> None:
    """At 10 columns a millisecond every bar begins in its column and says which operator and whether a stage begins."""
    width = len("device 0 s0 ") + 80
    text = draw(STAGED, Look(width, parts=1), {})
    chart = text.partition("\n\n")[2]
    assert chart.splitlines() == [
        "            ╷0 ms     ╷1        ╷2        ╷3        ╷4        ╷5        ╷6        ╷7",
        "device 0 s0 ┃stem───────────────┃left─────────────────────────····················┃sum──────",
        "         s1 ····················┃right────────────────────────······························",
        "device 1    ······························┃far──────────────────────────····················",
        "",
        "┃ a stage begins   · idle   s0, s1: streams (or groups of a stage)",
    ]


def test_facts_above_the_chart() -> None:
    """Algorithm, parameters, latency, bound, gap, scheduling time, notes, merges and idle shares stand above it."""
    timetable = replace(STAGED, notes={"search": "stopped after 10 s"}, merges=(("left", "right"),))
    facts = draw(timetable, Look(100), {}).partition("\n\n")[0]
    assert facts.splitlines() == [
        "graph            tiny",
        "operators        5",
        "algorithm        hios-lp",
        "parameters       window 2",
        "devices          2",
        "latency          8.000 ms, predicted by the cost model",
        "lower bound      6.400 ms; gap 25.0 % (latency above bound)",
        "scheduling time  12.50 ms",
        "note on search   stopped after 10 s",
        "merged           left + right",
        "device 0         4 operators in 3 stages, idle 25.0 % of the latency",
        "device 1         1 operator in 1 stage, idle 62.5 % of the latency",
    ]


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (8.0, "8.000 ms; gap 0 % (no schedule is faster)"),
        (0.0, "0 ms; gap unknown"),
        (7.9999, "8.000 ms; gap 0.0013 % (latency above bound)"),
    ],
)
def test_gap(bound: float, expected: str) -> None:
    """A gap of nothing is said to prove the schedule optimal, a small one is not rounded to nothing."""
    assert dict(summary(replace(STAGED, lower_bound_ms=bound)))["Lower bound"] == expected


def test_idle_share_counts_streams_together() -> None:
    """A device is idle only while none of its streams runs; a device without operators is idle throughout."""
    timetable = made([("a", 0, 0, None, 0, 4), ("b", 0, 1, None, 2, 6), ("c", 0, 0, None, 8, 10)], devices=2)
    first, second = device_uses(timetable)
    assert first.idle_share == pytest.approx(0.2)
    assert str(first) == "3 operators on 2 streams, idle 20.0 % of the latency"
    assert (second.idle_share, str(second)) == (1.0, "no operator")


def test_groups_and_streams_have_marks_of_operators() -> None:
    """Inside a group, and in stream schedules, bars begin with the mark of an operator."""
    group = made([("a", 0, 0, 0, 0, 2), ("b", 0, 0, 0, 2, 4), ("c", 0, 1, 0, 0, 4)])
    assert [line[12:14] + line[32:34] for line in lanes(draw(group, Look(52, parts=1), {}))] == ["┃a│b", "┃c──"]
    streams = made([("a", 0, 0, None, 0, 2), ("b", 0, 0, None, 2, 4)])
    drawn = draw(streams, Look(49, parts=1), {})
    assert lanes(drawn) == ["device 0 │a" + "─" * 18 + "│b" + "─" * 18]
    assert drawn.splitlines()[-1] == "│ an operator begins"


def test_many_operators_in_a_column_are_marked() -> None:
    """Where more operators begin than there are columns, the column says so instead of hiding them."""
    timetable = made([(f"v{number}", 0, 0, number, number, number + 1) for number in range(200)])
    drawn = draw(timetable, Look(49, parts=1), {})
    assert lanes(drawn) == ["device 0 " + "▒" * 40]
    assert "▒ several operators in a column" in drawn


@given(
    instance=problems(),
    name=st.sampled_from(["sequential", "greedy", "heft", "lios"]),
    width=st.integers(40, 160),
    parts=st.none() | st.integers(1, 9),
    symbols=st.sampled_from([ASCII, Look(80).symbols]),
)
def test_every_schedule_is_drawn_within_the_width(
    instance: Problem, name: str, width: int, parts: int | None, symbols: Any
) -> None:
    """Whatever the graph, no line is longer than the width; every part has a line a device, and at most one a lane."""
    scheduled = schedule(instance, name, 3 if name == "heft" else 1)
    text = draw(scheduled, Look(width, parts, symbols), {})
    assert max(map(len, text.splitlines())) <= width
    rows = len({(row.device, row.stream) for row in scheduled.placements})
    idle = scheduled.devices - len({row.device for row in scheduled.placements})
    first = [line for line in lanes(text) if line.startswith("device")]
    assert len(first) % scheduled.devices == 0
    drawn = len(first) // scheduled.devices
    assert parts in (None, drawn)
    assert len(first) <= len(lanes(text)) <= drawn * (rows + idle)


@given(
    spans=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 3), st.floats(0, 1e300), st.floats(0, 1e300)), min_size=1
    ),
    latency=st.floats(0, 1e300),
)
@example(spans=[(0, 0, 0.0, 5e-324)], latency=0.0)
def test_placements_against_the_rules_are_drawn(spans: list[tuple[int, int, float, float]], latency: float) -> None:
    """Schedules that are invalid, with any times, are drawn too: looking is how one finds out."""
    rows = [
        (f"v{number}", device, stream, None, start, finish)
        for number, (device, stream, start, finish) in enumerate(spans)
    ]
    text = draw(replace(made(rows), latency_ms=latency), Look(80), {})
    assert max(map(len, text.splitlines())) <= 80


def simulation(operators: int) -> Schedule:
    """A schedule of a random graph in layers on four devices."""
    chance = random.Random(operators)
    times = {f"v{number}": chance.uniform(0.1, 4) for number in range(operators)}
    edges = {(f"v{chance.randrange(max(0, n - 30), n)}", f"v{n}"): 0.1 for n in range(1, operators) for _ in range(2)}
    return schedule(problem(times, edges), "heft", 4)


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("operators", [10, 400])
def test_labels_of_small_and_large_schedules(operators: int, width: int) -> None:
    """At 80 and 200 columns most of 10 and of 400 operators are named on their bars, within a hundred lines."""
    simulated = simulation(operators)
    drawn = draw(simulated, Look(width), {})
    named = set(re.findall(r"[┃│](v\d+)", drawn))
    assert named <= {row.operator for row in simulated.placements}
    assert len(named) > 0.5 * operators
    assert len(drawn.splitlines()) < 100


def test_parts_cut_the_axis() -> None:
    """Two parts are what one of twice the columns is, cut in the middle, but for labels across the cut."""
    whole = lanes(draw(simulation(10), Look(9 + 140, parts=1, symbols=ASCII), {}))
    halves = lanes(draw(simulation(10), Look(9 + 70, parts=2, symbols=ASCII), {}))
    marks = [re.sub(r"[^[.]", " ", line[9:]) for line in whole]
    assert [re.sub(r"[^[.]", " ", line[9:]) for line in halves] == [
        *(row[:70] for row in marks),
        *(row[70:] for row in marks),
    ]


def test_idle_streams_are_left_out_of_a_part() -> None:
    """A part shows the streams that run something in it, and the first of each device in any case."""
    timetable = made([("a", 0, 0, None, 0, 4), ("b", 0, 1, None, 0, 1), ("c", 0, 2, None, 4, 8)])
    assert [line[:12] for line in lanes(draw(timetable, Look(80, parts=2), {}))] == [
        "device 0 s0 ",
        "         s1 ",
        "device 0 s0 ",
        "         s2 ",
    ]


def test_many_streams_still_have_labels() -> None:
    """Fifty streams of which few run at a time take more parts, not one in which no label fits."""
    timetable = made([(f"v{number}", 0, number, None, number, number + 2) for number in range(50)])
    drawn = draw(timetable, Look(80), {})
    assert len(set(re.findall(r"│(v\d+)", drawn))) > 45
    assert len(drawn.splitlines()) < 100


def test_colors_follow_types_or_stages() -> None:
    """Bars have the color of their type, or else those of neighboring stages differ; the text stays the same."""
    plain = draw(STAGED, Look(80), {})
    for types in ({}, {row.operator: "conv" if row.operator != "sum" else "add" for row in STAGED.placements}):
        painted = draw(STAGED, Look(80, color=True), types)
        bar = {name: _color_of(painted, name) for name in ("stem", "left", "sum")}
        assert (bar["stem"] == bar["left"]) == bool(types)
        assert bar["left"] != bar["sum"]
        for name, kind in types.items():  # the colors of charts and pictures of the graph, as terminals have them
            red, green, blue = (round(value / 51) for value in bytes.fromhex(style_of(kind).color[1:]))
            assert f"48;5;{16 + 36 * red + 6 * green + blue}m" in _color_of(painted, name)
        bare = re.sub(r"\x1b\[[\d;]*m", "", painted)
        assert bare == (plain + "\n conv     add " if types else plain)


def _color_of(painted: str, name: str) -> str:
    """The escape sequence before the label of a bar."""
    return re.findall(r"\x1b\[[\d;]*m", painted[: painted.index(f"┃{name}")])[-1]


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def _stream(kind: type[io.TextIOWrapper], encoding: str = "utf-8") -> io.TextIOWrapper:
    return kind(io.BytesIO(), encoding=encoding)


@pytest.mark.parametrize(
    ("kind", "environment", "expected"),
    [
        (_Terminal, {}, True),
        (_Terminal, {"NO_COLOR": "1"}, False),
        (_Terminal, {"NO_COLOR": ""}, True),
        (_Terminal, {"TERM": "dumb"}, False),
        (io.TextIOWrapper, {}, False),
    ],
)
def test_color_is_for_terminals(
    kind: type[io.TextIOWrapper], environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Color is on for terminals only, and off where $NO_COLOR or a dumb terminal ask for it."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert look(_stream(kind)).color is expected


def test_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """$COLUMNS counts, then the option; a pipe has a width of its own, and no terminal is too narrow."""
    monkeypatch.setenv("COLUMNS", "133")
    assert look(_stream(io.TextIOWrapper)).width == 133
    assert look(_stream(io.TextIOWrapper), width=60).width == 60
    monkeypatch.setenv("COLUMNS", "7")
    assert look(_stream(io.TextIOWrapper)).width == 40
    monkeypatch.delenv("COLUMNS")
    assert look(_stream(io.TextIOWrapper)).width == PIPED_WIDTH


def test_streams_that_cannot_print_bars_get_ascii() -> None:
    """An encoding without the symbols, or the option, leads to ASCII, also for names that are not."""
    assert look(_stream(io.TextIOWrapper, "latin-1")).symbols is ASCII
    assert look(_stream(io.TextIOWrapper), plain=True).symbols is ASCII
    drawn = draw(made([("größe", 0, 0, 0, 0, 1)], graph="naïve"), Look(60, symbols=ASCII), {})
    assert drawn.isascii()
    assert "[gr??e=" in drawn


def test_names_cannot_move_the_cursor() -> None:
    """Control characters in names and notes from a file are shown as question marks."""
    timetable = replace(made([("a\x1b[2Jb\nc", 0, 0, 0, 0, 1)], graph="g\x07"), notes={"a\rb": "c\x9bd"})
    text = draw(timetable, Look(60), {})
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert "┃a?[2Jb?c─" in text


def test_long_notes_keep_to_the_width() -> None:
    """Notes stay within the width, however long their topics and texts are."""
    timetable = replace(STAGED, notes={"a topic " * 20: "a text " * 30, "unbroken" * 20: "t" * 200})
    assert max(map(len, draw(timetable, Look(60), {}).splitlines())) <= 60


def test_short_names_tell_operators_apart() -> None:
    """Parts of dotted names go where most names have them and names stay different; other parts stay."""
    assert short_names(["net.a1.conv", "net.a2.conv", "net.a2.pool", "net.stem.conv"]) == {
        "net.a1.conv": "a1",
        "net.a2.conv": "a2",
        "net.a2.pool": "a2.pool",
        "net.stem.conv": "stem",
    }
    assert short_names(["x.conv", "y.conv", "y.pool", "z.pool"]) == {
        name: name for name in ("x.conv", "y.conv", "y.pool", "z.pool")
    }
    assert short_names(["conv", "conv.conv"]) == {"conv": "conv", "conv.conv": "conv.conv"}


@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        ("conv12", 6, "conv12"),
        ("conv12", 5, "co…12"),
        ("conv12", 3, "c12"),
        ("conv12", 2, ""),
        ("conv123", 3, "123"),
        ("conv1234", 3, ""),
        ("a1.branch", 5, "a1…ch"),
        ("a1.branch", 3, "a…h"),
        ("a1.branch", 2, ""),
        ("v123", 3, "123"),
        ("v123", 2, ""),
        ("", 4, ""),
    ],
)
def test_shortened(name: str, columns: int, expected: str) -> None:
    """Names are cut in the middle, since they differ at their ends; the number of a numbered operator stays."""
    assert shortened(name, columns, "…") == expected


def test_types_of_another_graph_are_refused() -> None:
    """A graph without an operator of the schedule is named, with the place in the schedule."""
    graph = Graph("g", (Operator("stem", "conv"), Operator("left", "add")), ())
    with pytest.raises(HiosError, match=r"placements\[2\].operator: found right, which is not an operator of graph; "):
        operator_types(STAGED, graph)


_run = partial(invoke, "show")


def test_command(tmp_path: Path) -> None:
    """The command prints the drawing, with the options that users give."""
    STAGED.write(tmp_path / "schedule.json")
    done = _run(tmp_path / "schedule.json", "--width", 60, "--parts", 2, "--ascii")
    assert done.exit_code == 0
    assert done.output == draw(STAGED, Look(60, 2, ASCII), {}) + "\n"
    graph = Graph("tiny", tuple(Operator(row.operator, "conv") for row in STAGED.placements), ())
    graph.write(tmp_path / "graph.json")
    assert _run(tmp_path / "schedule.json", "--graph", tmp_path / "graph.json").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--width", 39], "--width: found 39; allowed: 40 to 1000"),
        (["--width", 1001], "--width: found 1001; allowed: 40 to 1000"),
        (["--parts", 0], "--parts: found 0; allowed: 1 to 100"),
        (["--graph", "none.json"], "none.json: cannot be read: No such file or directory"),
        (["--html", "/proc/page.html"], "/proc/page.html: cannot be written: "),
    ],
)
def test_errors_are_one_line(tmp_path: Path, options: list[object], message: str) -> None:
    """Options out of range and files that cannot be read or written are one line, and nothing is printed."""
    STAGED.write(tmp_path / "schedule.json")
    assert refused("show", tmp_path / "schedule.json", *options).startswith(message)


def test_not_a_schedule(tmp_path: Path) -> None:
    """A file that is no schedule is refused with its name."""
    (tmp_path / "other.json").write_text('{"name": "x"}')
    assert refused("show", tmp_path / "other.json").startswith(f"{tmp_path}/other.json: (whole file): ")


def test_a_graph_is_not_a_schedule(tmp_path: Path) -> None:
    """Given a graph, it says which command draws graphs."""
    graph = {"name": "x", "operators": [{"id": "a", "type": "task"}], "edges": []}
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    assert refused("show", tmp_path / "graph.json") == (
        f"{tmp_path}/graph.json: found a file of kind graph; required: schedule, as hios schedule writes it; "
        f"hios draw {tmp_path}/graph.json draws the graph"
    )


def test_placement_is_what_made_says() -> None:
    """The schedules of these tests are what their rows say."""
    assert STAGED.placements[3] == Placement("far", 1, 0, 0, 3.0, 6.0)
    assert STAGED.latency_ms == 8.0


@pytest.mark.parametrize("factor", [1e307, 2.2e307, 1e-300, 5e-324])
def test_times_at_the_ends_of_floating_point(tmp_path: Path, factor: float) -> None:
    """Times that no machine has are drawn all the same, in the terminal and as a page."""
    rows = tuple(
        msgspec.structs.replace(row, start_ms=row.start_ms * factor, finish_ms=row.finish_ms * factor)
        for row in STAGED.placements
    )
    latency = max(row.finish_ms for row in rows)
    made = replace(STAGED, placements=rows, latency_ms=latency, lower_bound_ms=5e-324, scheduling_time_s=1e306)
    made.write(tmp_path / "schedule.json")
    for options in ((), ("--parts", 3), ("--html", tmp_path / "page.html")):
        done = _run(tmp_path / "schedule.json", *options)
        assert done.exit_code == 0, done.output


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
