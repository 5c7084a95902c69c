"""Schedules taken to the same graph with other shapes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hios import ALGORITHMS, Costs, Edge, Graph, Operator, Problem, Schedule, schedule
from hios.cli import main
from hios.core.check import violations
from hios.core.evaluate import evaluate, latency_ms
from hios.core.retarget import retarget
from hios.errors import ScheduleError
from tests.convolution_graphs import Conv, conv_graph
from tests.operators import operator_from
from tests.problems import problem, problems

EDGES = {("a", "b"): 1.0, ("a", "c"): 1.0, ("b", "d"): 1.0, ("c", "d"): 1.0}


def _batch(batch: int, changes: tuple[str, str] = ("", "")) -> Problem:
    """A fork with a batch size; ``changes`` replaces the id of an operator."""
    names = ["a", "b", "c", "d"]
    old, new = changes
    shapes = {"inputs": [[batch, 3, 8, 8]], "outputs": [[batch, 3, 8, 8]]}
    operators = tuple(
        operator_from(new if name == old else name, "relu", {"shapes": shapes, "dtype": "float32"}) for name in names
    )
    ends = [tuple(new if end == old else end for end in edge) for edge in EDGES]
    made = tuple(Edge(source, target, 4 * batch * 192) for source, target in ends)
    graph = Graph(f"fork-{batch}", operators, made, source=f"batch{batch}.json")
    costs = Costs(
        {operator.id: 1.0 + batch for operator in operators},
        {(edge.source, edge.target): 0.1 * batch for edge in made},
    )
    return Problem(graph, costs)


@given(problems(), st.data())
def test_the_plan_stays_and_the_times_are_the_other_costs(instance: Problem, data: st.DataObject) -> None:
    """For every algorithm: the same rows but for their times, which are those of the plan on the other costs."""
    algorithm = data.draw(st.sampled_from([name for name in ALGORITHMS if name != "hios-opt"]))
    made = schedule(instance, algorithm, 1)
    factors = data.draw(st.lists(st.floats(0.5, 4), min_size=len(instance.ids), max_size=len(instance.ids)))
    other_times = {name: time * factor for name, time, factor in zip(instance.ids, instance.time, factors, strict=True)}
    transfers = {(edge.source, edge.target): 0.0 for edge in instance.graph.edges}
    other = Problem(instance.graph, Costs(other_times, transfers))
    moved = retarget(made, instance.graph, other)
    assert moved.latency_ms == latency_ms(evaluate(other.on(1), made.plan(instance.graph)))
    assert violations(other, moved) == []
    assert moved.lower_bound_ms <= moved.latency_ms * (1 + 1e-9)
    kept = ("operator", "device", "stream", "stage")
    rows = [{tuple(getattr(row, key) for key in kept) for row in one.placements} for one in (made, moved)]
    assert rows[0] == rows[1]


def test_other_shapes() -> None:
    """A schedule for batch 1 is refused on batch 4, runs there once retargeted, and states where it comes from."""
    one, four = _batch(1), _batch(4)
    made = schedule(one, "greedy", 1)
    with pytest.raises(ScheduleError, match="this is a schedule of another graph"):
        made.plan(four.graph)
    moved = retarget(made, one.graph, four)
    assert moved.plan(four.graph) == made.plan(one.graph)
    assert moved.latency_ms == schedule(four, "greedy", 1).latency_ms
    assert (moved.graph, moved.graph_fingerprint) == ("fork-4", four.graph.fingerprint)
    assert moved.notes["retargeted"].startswith(f"made for fork-1, graph {one.graph.fingerprint}")
    back = retarget(moved, four.graph, one)
    assert back.placements == made.placements


def test_merges_stay() -> None:
    """Operators that run merged into one do so with other shapes too."""
    members = {name: Conv(filters=2, kernel=(3, 3), padding=(1, 1)) for name in ("a", "b")}
    graphs = [conv_graph(members), replace(conv_graph(members), name="other")]
    costs = Costs({"a": 2.0, "b": 2.0}, {}, merges={frozenset("ab"): 1.0})
    made = schedule(Problem(graphs[0], costs), "ios", 1)
    assert made.merges == (("a", "b"),)
    slower = Costs({"a": 2.0, "b": 2.0}, {}, merges={frozenset("ab"): 3.0})
    moved = retarget(made, graphs[0], Problem(graphs[1], slower))
    assert (moved.merges, moved.latency_ms) == (made.merges, 3.0)


def _types(kind: str) -> Problem:
    instance = _batch(4)
    operators = tuple(Operator(op.id, kind, shapes=op.shapes, dtype=op.dtype) for op in instance.graph.operators)
    graph = replace(instance.graph, operators=operators)
    return Problem(graph, Costs({op.id: 1.0 for op in operators}, dict.fromkeys(EDGES, 0.0)))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (_batch(4, ("c", "x")), "batch4.json: operators: c -> relu of batch1.json is not there; allowed: the same"),
        (_types("add"), "batch4.json: operators: a -> relu, b -> relu, c -> relu (and 1 more) of batch1.json is"),
        (problem(dict.fromkeys("abcd", 1.0), {("a", "b"): 0.0}), "graph: operators: a -> relu, b -> relu, c -> relu"),
    ],
)
def test_other_graphs_are_refused(other: Problem, message: str) -> None:
    """Other operators, other types; the message names the file, some of what differs, and what to do."""
    one = _batch(1)
    with pytest.raises(ScheduleError) as raised:
        retarget(schedule(one, "sequential", 1), one.graph, other)
    assert str(raised.value).startswith(message)
    assert str(raised.value).endswith("with other shapes; schedule this graph")


def test_other_edges_are_refused() -> None:
    """An edge more or less, where operators are the same."""
    one = _batch(1)
    for edges in (one.graph.edges[:-1], (*one.graph.edges, Edge("a", "d", 8))):
        graph = replace(one.graph, edges=edges)
        transfers = {(edge.source, edge.target): 0.0 for edge in edges}
        other = Problem(graph, Costs(dict.fromkeys("abcd", 1.0), transfers))
        with pytest.raises(ScheduleError, match=r"edges: (c -> d of .* is not there|found a -> d, not in)"):
            retarget(schedule(one, "sequential", 1), one.graph, other)


def test_command(tmp_path: Path) -> None:
    """From files to a file; a schedule of a third graph is refused, and so is an output in the place of an input."""
    one, four = _batch(1), _batch(4)
    for name, instance in (("one", one), ("four", four)):
        instance.graph.write(tmp_path / f"{name}-graph.json")
    costs = {
        "operators": {op.id: {"time_ms": 5.0} for op in four.graph.operators},
        "transfers": [{"source": source, "target": target, "time_ms": 0.4} for source, target in EDGES],
    }
    (tmp_path / "costs.json").write_text(json.dumps(costs))
    schedule(one, "greedy", 1).write(tmp_path / "schedule.json")
    files = [str(tmp_path / name) for name in ("schedule.json", "one-graph.json", "four-graph.json", "costs.json")]
    output = tmp_path / "moved.json"
    done = CliRunner().invoke(main, ["retarget", *files, "--output", str(output)])
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"{output}: greedy, ")
    assert Schedule.read(output).graph_fingerprint == four.graph.fingerprint
    done = CliRunner().invoke(main, ["retarget", files[0], files[2], files[2], files[3], "--output", str(output)])
    assert done.exit_code == 1
    assert "graph_fingerprint: found" in done.stderr
    done = CliRunner().invoke(main, ["retarget", *files, "--output", files[0]])
    assert done.exit_code == 1
    assert "found an input named as output" in done.stderr
