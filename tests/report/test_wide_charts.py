"""Operators on several devices at once, in everything that shows a schedule."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hios import Costs, Problem, Schedule, schedule
from hios.report.charts import schedule_chart
from hios.report.dataframes import _rows
from hios.report.graph_layout import lanes, lanes_of
from hios.report.terminal import ASCII, Look, device_uses, draw, summary, widths_in_words
from hios.runtime.session import write_trace
from tests.cli.commands import invoke, refused, succeed
from tests.convolution_graphs import Conv, conv_graph
from tests.problems import problem

#: a beside b, then c on both devices, then d.
PROBLEM = problem({"a": 4.0, "b": 2.0, "c": 6.0, "d": 1.0}, {("a", "c"): 0.0, ("c", "d"): 0.0}, wide={"c": {2: 3.0}})
MADE = schedule(PROBLEM, "hios-wide", 2)
ROWS = {row.operator: row for row in MADE.placements}


def test_lanes() -> None:
    """An operator on several devices is drawn on a lane of each, and no device is left out."""
    assert lanes_of(ROWS["c"]) == [(0, 0), (1, 0)]
    assert lanes_of(ROWS["b"]) == [(1, 0)]
    assert lanes((lane for row in MADE.placements for lane in lanes_of(row)), 3) == [(0, 0), (1, 0), (2, 0)]


def test_terminal() -> None:
    """Its bar is drawn on every device, and the legend says what it is."""
    text = draw(MADE, Look(60, symbols=ASCII), {})
    first, second = (line for line in text.splitlines() if line.startswith("device") and "|" in line)
    column = first.index("|c+")
    assert second[column : column + 3] == "|c+"
    assert second.count("+") == first.count("+") > 10
    assert "+ an operator on several devices at once, on each" in text
    assert "several devices  1 operator on 2 at once" in text
    narrow = draw(schedule(PROBLEM, "heft", 2), Look(60, symbols=ASCII), {})
    assert "+" not in narrow
    assert "several devices" not in narrow


def test_summary() -> None:
    """The devices that it holds are busy."""
    assert widths_in_words(MADE) == "1 operator on 2 at once"
    assert ("Several devices", "1 operator on 2 at once") in summary(MADE)
    uses = device_uses(MADE)
    assert [(use.operators, use.streams) for use in uses] == [(3, 1), (2, 1)]
    assert [use.idle_share for use in uses] == [0.0, 1 - 5.0 / 8.0]


def test_gantt() -> None:
    """A bar on the lane of each device, as long and at the same time, which says so."""
    svg = schedule_chart(MADE, {}, "chart").svg
    bars = re.findall(r'data-hover="(\w+)&#xA;([^"]*)" d="M([\d.]+),([\d.]+)h([\d.]+)', svg)
    assert sorted(name for name, *_ in bars) == ["a", "b", "c", "c", "d"]
    first, second = ((text, x, float(y), width) for name, text, x, y, width in bars if name == "c")
    assert (first[0], first[1], first[3]) == (second[0], second[1], second[3])
    assert first[2] != second[2]
    assert first[0].endswith("devices 0, 1 at once")
    assert [text for name, text, *_ in bars if name != "c" and "at once" in text] == []


def test_trace(tmp_path: Path) -> None:
    """A slice on each of its devices, with the number of them."""
    write_trace(tmp_path / "trace.json", "test", PROBLEM.graph, MADE.placements)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = {(event["name"], event["pid"]): event for event in events if event["ph"] == "X"}
    assert set(slices) == {("a", 0), ("b", 1), ("c", 0), ("c", 1), ("d", 0)}
    assert slices["c", 0]["ts"] == slices["c", 1]["ts"] == 4000.0
    assert [slices[key]["args"]["width"] for key in (("c", 0), ("c", 1), ("a", 0))] == [2, 2, 1]
    assert {event["pid"] for event in events if event["ph"] == "M"} == {0, 1}


def test_data_frame_rows() -> None:
    """A row an operator, with its first device and how many it takes."""
    rows = {row["operator"]: row for row in _rows("hios-wide", "predicted", MADE.placements)}
    assert [(rows[name]["device"], rows[name]["width"]) for name in "abcd"] == [(0, 1), (1, 1), (0, 2), (0, 1)]


def test_commands(tmp_path: Path) -> None:
    """`hios evaluate` and `hios schedule` say how many there are; `hios verify` finds nothing wrong."""
    costs: dict[str, Any] = {
        "operators": {
            name: {"time_ms": time, **({"wide_ms": {"2": 3.0}} if name == "c" else {})}
            for name, time in zip(PROBLEM.ids, PROBLEM.time, strict=True)
        },
        "transfers": [{"source": "a", "target": "c", "time_ms": 0}, {"source": "c", "target": "d", "time_ms": 0}],
    }
    graph, costs_path, out = tmp_path / "graph.json", tmp_path / "costs.json", tmp_path / "schedule.json"
    PROBLEM.graph.write(graph)
    costs_path.write_text(json.dumps(costs))
    arguments = [str(graph), str(costs_path)]
    made = invoke("schedule", *arguments, "--algorithm", "hios-wide", "--devices", 2, "--output", out)
    assert made.output.rstrip().endswith("; several devices: 1 operator on 2 at once")
    assert json.loads(out.read_text())["placements"][2]["devices"] == [0, 1]
    assert "devices" not in json.loads(out.read_text())["placements"][0]
    result = invoke("evaluate", *arguments, out)
    assert result.output == "8 ms; several devices: 1 operator on 2 at once\n"
    succeed("verify", tmp_path)
    del costs["operators"]["c"]["wide_ms"]
    costs_path.write_text(json.dumps(costs))
    message = refused("evaluate", *arguments, out)
    assert "operator c: found 2 devices; allowed: 1, those of its wide_ms in the costs" in message


def _merged() -> Schedule:
    """Operators a and b merged on both devices, then c on device 0."""
    members = {"a": Conv(), "b": Conv((3, 3), (1, 1)), "c": Conv(value="a")}
    merge = frozenset("ab")
    costs = Costs(
        {"a": 4.0, "b": 4.0, "c": 1.0}, {("a", "c"): 0.0}, merges={merge: 7.0}, merge_wide_ms={merge: {2: 3.0}}
    )
    return schedule(Problem(conv_graph(members), costs), "hios-wide", 2)


def test_merged_operators(tmp_path: Path) -> None:
    """They have one bar on every device, named after all of them, in every chart, and one slice in the trace."""
    made = _merged()
    assert made.merges == (("a", "b"),)
    text = draw(made, Look(60, symbols=ASCII), {})
    assert text.count("|a + b+") == 2
    assert "merged           a + b" in text
    svg = schedule_chart(made, {}, "chart").svg
    assert sorted(re.findall(r'data-hover="([\w +]+)&#xA;', svg)) == ["a + b", "a + b", "c"]
    write_trace(tmp_path / "trace.json", "test", conv_graph({"a": Conv(), "b": Conv(), "c": Conv()}), made.placements)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sorted((e["name"], e["pid"]) for e in events if e["ph"] == "X") == [("a + b", 0), ("a + b", 1), ("c", 0)]
