"""Reading and writing files: what is refused, and with which message."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hios import Costs, Graph, Operator, Problem, Schedule, schedule
from hios.core.costs import CostsFile
from hios.errors import ArtifactError, ScheduleError
from hios.files import artifacts

GRAPH: dict[str, Any] = {
    "name": "diamond",
    "operators": [{"id": name, "type": "task"} for name in "abcd"],
    "edges": [
        {"source": source, "target": target} for source, target in (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))
    ],
}
COSTS: dict[str, Any] = {
    "operators": {name: {"time_ms": 1.0} for name in "abcd"},
    "transfers": [{**edge, "time_ms": 0.5} for edge in GRAPH["edges"]],
}


_STRANGE = (
    b"[" * 100000,
    b'{"name": ' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"name": ' + b"9" * 5000 + b"}",
    b'{"name": "\\ud800", "operators": [{"id": "a", "type": "t"}], "edges": []}',
    b'{"name": "x", "name": "y"}',
)


def _file(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def _changed(data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(data)), **changes}


def test_minimal_files_make_a_problem(tmp_path: Path) -> None:
    """A graph with ids, types and edges, and costs with times and transfers, are all that scheduling needs."""
    problem = Problem.read(_file(tmp_path / "graph.json", GRAPH), _file(tmp_path / "costs.json", COSTS))
    assert problem.time == [1.0, 1.0, 1.0, 1.0]
    assert problem.successors[0] == [(1, 0.5), (2, 0.5)]


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        *(
            (text, r"line \d+ column \d+: not valid JSON")
            for text in (b"", b"{", b'{"name": "x", "opera', b"\0\1", b"[1, 2")
        ),
        (b"\xff\xfe\x80", ".*not a text file"),
        (None, "cannot be read: No such file"),
        *((text, "") for text in _STRANGE),
    ],
    ids=map(str, range(12)),
)
def test_unreadable_files_are_named(tmp_path: Path, contents: bytes | None, message: str) -> None:
    """One line with file and place, of damaged, truncated, binary and missing files.

    And of nesting without end, endless numbers, broken Unicode and repeated keys.
    """
    path = tmp_path / "graph.json"
    if contents is not None:
        path.write_bytes(contents)
    with pytest.raises(ArtifactError, match=rf"graph\.json: {message}") as caught:
        Graph.read(path)
    assert "\n" not in str(caught.value)


def _edges(*pairs: str) -> list[dict[str, str]]:
    return [{"source": pair[0], "target": pair[1]} for pair in pairs]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 99}, "format_version: found 99; this hios reads version 1"),
        ({"color": "red"}, "unknown key color; allowed: blocks, edges"),
        ({"edges": _edges("ab", "bc", "cb", "cd")}, r"graph\.json: edges: found the cycle (b -> c -> b|c -> b -> c)"),
        ({"edges": _edges("aa")}, "found the cycle a -> a"),
        ({"operators": [*GRAPH["operators"], {"id": "a", "type": "task"}]}, r"operators\[4\]\.id: duplicate id a"),
        ({"edges": _edges("az")}, r"edges\[0\]\.target: found z"),
    ],
)
def test_wrong_graphs_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """A graph of another version, with unknown keys, cycles, or ids that are not unique or unknown says what it has."""
    with pytest.raises(ArtifactError, match=message):
        Graph.read(_file(tmp_path / "graph.json", _changed(GRAPH, **changes)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1, r"operators\.b\.time_ms: found -1; allowed: at least 0"),
        (float("nan"), r"operators\.b\.time_ms: found nan; allowed: a finite number"),
        (float("inf"), r"operators\.b\.time_ms: found inf; allowed: a finite number"),
        ("1", r'operators\.b\.time_ms: found "1"; allowed: number'),
        (None, r"operators\.b\.time_ms: found null; allowed: number"),
        pytest.param(10**400, r"operators\.b\.time_ms: found inf; allowed: a finite number", id="beyond floats"),
    ],
)
def test_bad_cost_is_named(tmp_path: Path, value: Any, message: str) -> None:
    """A negative, NaN, infinite or mistyped cost, or a huge integer, names file, field, value and what is allowed."""
    data = _changed(COSTS)
    data["operators"]["b"]["time_ms"] = value
    with pytest.raises(ArtifactError, match=r"costs\.json: " + message):
        Costs.read(_file(tmp_path / "costs.json", data))


_TIMES, _TRANSFERS = COSTS["operators"], COSTS["transfers"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operators": {name: _TIMES[name] for name in "acd"}}, "operators: no entry for operator b"),
        ({"operators": {**_TIMES, "b": {}}}, r"operators\.b: time_ms is missing"),
        ({"transfers": [*_TRANSFERS[:2], _TRANSFERS[3]]}, "transfers: no entry for edge b -> d"),
        ({"transfers": [*_TRANSFERS, _TRANSFERS[0]]}, r"transfers\[4\]: duplicate edge a -> b"),
        ({"graph": "other"}, "graph: found other; allowed: diamond"),
        ({"stages": [{"groups": [["a"], ["z"]], "time_ms": 1.0}]}, "stages: found operator z"),
    ],
)
def test_costs_belong_to_the_graph(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """What lacks a cost is named; costs of another graph, unknown operators and repeated transfers are refused."""
    graph = Graph.from_json(GRAPH)
    with pytest.raises(ArtifactError, match=rf"costs\.json: {message}"):
        Problem(graph, Costs.read(_file(tmp_path / "costs.json", {**COSTS, **changes})))


def test_link_model_needs_bytes() -> None:
    """A link model turns bytes into time, and says which edge lacks them."""
    costs = Costs.from_json({**COSTS, "transfers": {"latency_ms": 0.1, "bandwidth_gbps": 8.0}})
    graph = Graph.from_json({**GRAPH, "edges": [{"source": "a", "target": "b", "bytes": 1_000_000}]})
    assert Problem(graph, costs).successors[0] == [(1, pytest.approx(0.1 + 1.0))]
    with pytest.raises(ArtifactError, match="link model needs bytes of edge a -> b"):
        Problem(Graph.from_json(GRAPH), costs)


def test_measured_merges_are_read(tmp_path: Path) -> None:
    """Times of merged operators are read by the set of operators; a merge has at least two, each once."""
    data = _changed(COSTS, merges=[{"operators": ["c", "b"], "time_ms": 1.5, "repeats": 3}])
    assert Costs.read(_file(tmp_path / "costs.json", data)).merges == {frozenset("bc"): 1.5}
    for operators, message in ((["b"], "at least 2 item"), (["b", "b"], "items that differ from each other")):
        data["merges"][0]["operators"] = operators
        with pytest.raises(ArtifactError, match=rf"costs\.json: merges\[0\]\.operators: .*{message}"):
            Costs.read(_file(tmp_path / "costs.json", data))


def test_costs_belong_to_this_version_of_the_graph() -> None:
    """Costs that state the fingerprint of their graph are refused for another of the same name and operators."""
    graph = Graph.from_json(GRAPH)
    assert len(Problem(graph, Costs.from_json({**COSTS, "graph_fingerprint": graph.fingerprint}))) == 4
    other = dataclasses.replace(graph, operators=tuple(Operator(o.id, "other") for o in graph.operators))
    with pytest.raises(
        ArtifactError,
        match=f"^costs: graph_fingerprint: found {other.fingerprint}; allowed: {graph.fingerprint}, that of graph: "
        "these are costs of another graph, such as of another image size; profile this one$",
    ):
        Problem(graph, Costs.from_json({**COSTS, "graph_fingerprint": other.fingerprint}))


def test_schedules_belong_to_this_version_of_the_graph(tmp_path: Path) -> None:
    """A schedule states the fingerprint of its graph, in the file too, and is refused for another."""
    graph = Graph.from_json(GRAPH)
    scheduled = schedule(Problem(graph, Costs.from_json(COSTS)), "sequential")
    scheduled.write(tmp_path / "schedule.json")
    read = Schedule.read(tmp_path / "schedule.json")
    assert read.graph_fingerprint == graph.fingerprint
    read.plan(graph)
    other = dataclasses.replace(graph, operators=tuple(Operator(o.id, "other") for o in graph.operators))
    with pytest.raises(
        ScheduleError,
        match=rf"schedule\.json: graph_fingerprint: found {graph.fingerprint}; allowed: {other.fingerprint}, that of "
        "graph: this is a schedule of another graph, such as of another image size; schedule this one$",
    ):
        read.plan(other)


def test_largest_of_parallel_edges_counts() -> None:
    """Of several values from one operator to another the largest sets the transfer time, whatever their order."""
    costs = Costs.from_json({**COSTS, "transfers": {"latency_ms": 0.0, "bandwidth_gbps": 8.0}})
    for sizes in ((1000, 10), (10, 1000)):
        edges = [{"source": "a", "target": "b", "bytes": size} for size in sizes]
        problem = Problem(Graph.from_json({**GRAPH, "edges": edges}), costs)
        assert problem.successors[0] == [(1, pytest.approx(0.001))]


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    """A pipe in the place of an artifact stays a pipe; a link stays a link and its file is written."""
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ArtifactError, match=r"pipe\.json: cannot be written: it exists and is not a regular file"):
        artifacts.write(tmp_path / "pipe.json", "graph", GRAPH)
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    artifacts.write(tmp_path / "link.json", "graph", GRAPH)
    assert (tmp_path / "link.json").is_symlink()
    assert Graph.read(tmp_path / "target.json").name == "diamond"


def test_write_is_all_or_nothing(tmp_path: Path) -> None:
    """An artifact that breaks its schema leaves neither a file nor a temporary one."""
    with pytest.raises(ArtifactError):
        artifacts.write(tmp_path / "graph.json", "graph", {"name": "x"})

    def interrupted() -> None:
        with artifacts.replacing(tmp_path / "graph.json") as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_write_reports_what_cannot_be_written(tmp_path: Path) -> None:
    """A folder in the place of the file, or a file in the place of a folder, is a one-line error."""
    (tmp_path / "graph.json").mkdir()
    with pytest.raises(ArtifactError, match=r"graph\.json: cannot be written"):
        artifacts.write(tmp_path / "graph.json", "graph", GRAPH)
    with pytest.raises(ArtifactError, match=r"graph\.json: cannot be written"):
        artifacts.require_writable(tmp_path / "graph.json")
    artifacts.require_writable(tmp_path / "other.json")
    assert [path.name for path in tmp_path.iterdir()] == ["graph.json"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="is not a folder that may be written"):
        artifacts.require_writable(tmp_path / "file" / "graph.json")
    with pytest.raises(ArtifactError, match="/file is not a folder that may be written"):
        artifacts.write(tmp_path / "file" / "folder" / "graph.json", "graph", GRAPH)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the device is one of Linux")
def test_full_disk_names_the_file(tmp_path: Path) -> None:
    """What could not be written is named, not the temporary file, and nothing is left."""

    def written() -> None:
        with artifacts.replacing(tmp_path / "graph.json") as temporary:
            temporary.unlink()
            temporary.symlink_to("/dev/full")
            temporary.write_text("x")

    with pytest.raises(ArtifactError, match=r"^/\S+/graph\.json: cannot be written: No space left on device$"):
        written()
    assert list(tmp_path.iterdir()) == []


def test_graph_round_trip(tmp_path: Path) -> None:
    """A graph that was written reads as it was."""
    graph = Graph.from_json({**GRAPH, "blocks": [["a", "b"], ["c", "d"]]})
    graph.write(tmp_path / "graph.json")
    assert Graph.read(tmp_path / "graph.json") == Graph(
        graph.name, graph.operators, graph.edges, blocks=graph.blocks, source=str(tmp_path / "graph.json")
    )


def test_a_stage_measured_twice_is_refused() -> None:
    """Of two times for one stage, whatever the order of its groups, none is taken silently."""
    stages = [{"groups": [["a"], ["b"]], "time_ms": 1.0}, {"groups": [["b"], ["a"]], "time_ms": 2.0}]
    data = {"operators": {"a": {"time_ms": 1.0}, "b": {"time_ms": 1.0}}, "transfers": [], "stages": stages}
    with pytest.raises(ArtifactError, match=r"stages\[1\]: duplicate stage; every stage once"):
        Costs.from_json(data)


def test_a_merge_measured_twice_is_refused() -> None:
    """Of two times for one merge, and of an operator that stands twice in a stage, none is taken silently."""
    data = {"operators": {"a": {"time_ms": 1.0}, "b": {"time_ms": 1.0}}, "transfers": []}
    merges = [{"operators": ["a", "b"], "time_ms": 0.5}, {"operators": ["b", "a"], "time_ms": 5.0}]
    with pytest.raises(ArtifactError, match=r"merges\[1\]: duplicate merge; every merge once"):
        Costs.from_json({**data, "merges": merges})
    for groups in ([["a"], ["a"]], [["a", "b"], ["b"]]):
        with pytest.raises(ArtifactError, match=r"stages\[0\]: an operator is in it twice; allowed: once"):
            Costs.from_json({**data, "stages": [{"groups": groups, "time_ms": 0.01}]})


def test_costs_hold_empty_lists() -> None:
    """Without measured stages and merges costs.json has empty lists, which readers of the file rely on."""
    assert artifacts.plain(CostsFile(operators={}, transfers=())) == {
        "operators": {},
        "transfers": (),
        "stages": (),
        "merges": (),
    }
