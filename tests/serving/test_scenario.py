"""Reading scenario.yaml: what it makes, and every refusal with file, field, what was found and what is allowed.

Traces of arrivals: rates, seeds, and what does not change them.
"""

from __future__ import annotations

import itertools
import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
import yaml

from hios.core.graph import Edge, Graph, Operator
from hios.errors import HiosError
from hios.serving.scenario import Scenario, draw, pipeline_blocks
from tests.serving.scenarios import scenario, served, written


def test_scenario_is_read(tmp_path: Path) -> None:
    """Models come in the order of the file with problem, blocks and rate; a load multiplies the rates."""
    scenario = Scenario.read(written(tmp_path, lanes=3, seed=7), load=0.5)
    assert [(model.label, model.rate) for model in scenario.models] == [("left", 20.0), ("right", 40.0)]
    assert (scenario.lanes, scenario.duration_s, scenario.file.seed, scenario.gpu) == (3, 5.0, 7, False)
    assert scenario.models[0].blocks == ((0, 1), (2,))
    assert scenario.models[0].problem.time == [2.0, 2.0, 3.0]
    assert scenario.files == [
        tmp_path / label / name for label in ("left", "right") for name in ("graph.json", "costs.json")
    ]


def test_defaults(tmp_path: Path) -> None:
    """What a scenario leaves out has the value that the schema states."""
    file = Scenario.read(written(tmp_path)).file
    assert (file.lanes, file.seed, file.arrivals, file.repeats, file.launcher) == (2, 0, "poisson", 1, "open")
    entry = file.models["left"]
    assert (entry.queue, entry.overflow, entry.deadline_ms, entry.weights) == (256, "reject", None, None)
    assert (file.top.combined, file.top.slots, file.overheads.run_ms) == ((), 1, 0.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lane": 2}, "(whole file): unknown key lane (did you mean lanes?); allowed: arrivals, duration_s, "),
        ({"lanes": 0}, "lanes: found 0; allowed: at least 1"),
        ({"lanes": "two"}, 'lanes: found "two"; allowed: integer'),
        ({"arrivals": "bursts"}, 'arrivals: found "bursts"; allowed: text matching '),
        ({"duration_s": 0}, "duration_s: found 0; allowed: more than 0"),
        ({"duration_s": 1e9}, "models.left.rate: found 40 tasks/s for 1e+09 s; allowed: at most 2,000,000 tasks"),
        ({"models": {}}, "models: found {}; allowed: at least 1 key(s)"),
        (
            {"launcher": "closed"},
            'launcher: found "closed"; allowed: one of "open", "deadline", "fixed", "water-filling", "auto"',
        ),
        ({"top": {"most": 11}}, "top.most: found 11; allowed: at most 10"),
        (
            {"top": {"most": 2, "combined": [{"left": [0]}]}},
            "top.most: found 2 beside top.combined; allowed: one of them",
        ),
        (
            {"top": {"block_ms": 2.5, "combined": [{"left": [0]}]}},
            "top.block_ms: found 2.5 beside top.combined, which counts the blocks of graph.json; allowed: one of them",
        ),
        ({"top": {"block_ms": -1}}, "top.block_ms: found -1; allowed: at least 0"),
        ({"top": {"combined": [{"middle": [0]}]}}, "top.combined[0].middle: found this model; allowed: left, right"),
        ({"top": {"combined": [{"left": [2]}]}}, "top.combined[0].left: found block 2; allowed: 0 to 1"),
        ({"top": {"combined": [{"left": [1, 1]}]}}, "top.combined[0].left: found [1, 1]; allowed: items that differ"),
        (
            {"top": {"combined": [{"left": [1]}, {"left": [1]}]}},
            "top.combined[1].left: found block 1, which top.combined[0] holds; allowed: every block once",
        ),
        ({"rates": "shares"}, 'rates: found "shares"; allowed: one of "per-second", "of-capacity"'),
        (  # arrivals of a file have rates of their own
            {"rates": "of-capacity", "arrivals": "tasks.csv"},
            "rates: found of-capacity with arrivals tasks.csv; allowed with periodic, poisson",
        ),
    ],
)
def test_wrong_scenarios_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    """One line with the file, the field, what was found and what is allowed."""
    path = written(tmp_path, **changes)
    with pytest.raises(HiosError, match=re.escape(f"{path}: {message}")) as caught:
        Scenario.read(path)
    assert "\n" not in str(caught.value)


def test_short_blocks_are_joined(tmp_path: Path) -> None:
    """Up to the stated time, in order; a short one at the end belongs to the one before it."""
    for least, left, right in (
        (1.0, ((0, 1), (2,)), ((0,), (1,), (2,))),
        (2.0, ((0, 1), (2,)), ((0, 1, 2),)),
        (3.5, ((0, 1, 2),), ((0, 1, 2),)),
        (100.0, ((0, 1, 2),), ((0, 1, 2),)),
    ):
        scenario = Scenario.read(written(tmp_path, top={"block_ms": least}))
        assert [model.blocks for model in scenario.models] == [left, right]
        assert [len(model.problem.graph.blocks) for model in scenario.models] == [len(left), len(right)]


def _edit(path: Path, label: str, **changes: Any) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    data["models"][label] |= changes
    data["models"][label] = {key: value for key, value in data["models"][label].items() if value is not None}
    path.write_text(yaml.safe_dump(data), encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rate": None},
            "models.left: rate is missing; required with arrivals poisson: rate, tasks per second, or share",
        ),
        ({"rate": -1}, "models.left.rate: found -1; allowed: more than 0"),
        ({"interval_s": 2}, "models.left.interval_s: found 2; allowed: at most 1"),
        ({"interval_s": 1e-9}, "models.left.interval_s: found 1e-09; allowed: at least 0.0001"),
        ({"overflow": "block"}, 'models.left.overflow: found "block"; allowed: one of "reject", "drop-oldest"'),
        ({"costs": None}, "models.left: costs is missing; required: graph, costs"),
        ({"graph": "nowhere/graph.json"}, "FOLDER/nowhere/graph.json: cannot be read"),
        ({"costs": "right/costs.json"}, "no entry for operator b0v1 of the graph"),
    ],
)
def test_wrong_models_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    """As above, for the entry of a model: a missing file is named with its path, and costs are those of the graph."""
    path = written(tmp_path)
    _edit(path, "left", **changes)
    with pytest.raises(HiosError, match=re.escape(message.replace("FOLDER", str(tmp_path)))):
        Scenario.read(path)


_NO_TASK = "arrivals: found no task within duration_s, 5 s, in trace.csv; required: one at least"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("time,model\n", 'trace.csv: line 1: found "time,model"; allowed: time_s,model'),
        ("time_s,model\n1.0\n", "trace.csv: line 2: found 1 columns; allowed: 2, time_s,model"),
        ("time_s,model\nsoon,left\n", 'trace.csv: line 2: time_s: found "soon"; allowed: a number of at least 0'),
        ("time_s,model\n-1,left\n", 'trace.csv: line 2: time_s: found "-1"; allowed: a number of at least 0'),
        ("time_s,model\n1,middle\n", 'trace.csv: line 2: model: found "middle"; allowed: left, right'),
        ("time_s,model\n", f"scenario.yaml: {_NO_TASK}"),
        ("time_s,model\n7,left\n", f"scenario.yaml: {_NO_TASK}"),
    ],
)
def test_wrong_traces_are_refused(rows: str, message: str, tmp_path: Path) -> None:
    """A CSV file is refused with its line, or as all its tasks come after the end: it says nothing about a policy."""
    (tmp_path / "trace.csv").write_text(rows, encoding="utf-8")
    with pytest.raises(HiosError, match=re.escape(f"{tmp_path}/{message}")):
        Scenario.read(written(tmp_path, arrivals="trace.csv"))


def test_load_needs_rates(tmp_path: Path) -> None:
    """Arrivals from a file cannot be multiplied, and a load is a number above 0."""
    (tmp_path / "trace.csv").write_text("time_s,model\n0.5,left\n", encoding="utf-8")
    path = written(tmp_path, arrivals="trace.csv")
    with pytest.raises(HiosError, match=re.escape("load: found 2 with arrivals from trace.csv; allowed: 1")):
        Scenario.read(path, load=2.0)
    with pytest.raises(HiosError, match=r"load: found 0\.0; allowed: a number above 0"):
        Scenario.read(path, load=0.0)


def test_gpus_have_one_lane(tmp_path: Path) -> None:
    """Costs of a GPU go with one lane, and not with costs of cores."""
    path = written(tmp_path)
    costs = tmp_path / "left" / "costs.json"
    data = json.loads(costs.read_text(encoding="utf-8"))
    costs.write_text(json.dumps(data | {"platform": {"name": "cuda"}}), encoding="utf-8")
    with pytest.raises(HiosError, match=re.escape("models.left.costs: found costs of a GPU beside those of cores")):
        Scenario.read(path)
    _edit(path, "right", graph="left/graph.json", costs="left/costs.json")
    with pytest.raises(HiosError, match="lanes: found 2 with costs of a GPU; allowed: 1"):
        Scenario.read(path)
    settings = yaml.safe_load(path.read_text(encoding="utf-8")) | {"lanes": 1, "engine": "segments"}
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    with pytest.raises(HiosError, match="engine: found segments with costs of a GPU; allowed: operators"):
        Scenario.read(path)


def test_blocks_of_a_pipeline() -> None:
    """Stated blocks in order; operators between them are blocks of their own, each run of them one."""
    names = ["a", "b", "c", "d", "e"]
    operators = tuple(Operator(name, "task") for name in names)
    edges = tuple(Edge(source, target) for source, target in itertools.pairwise(names))
    assert pipeline_blocks(Graph("g", operators, edges, blocks=(("c",),))) == ((0, 1), (2,), (3, 4))
    assert pipeline_blocks(Graph("g", operators, edges)) == ((0, 1, 2, 3, 4),)  # a chain is one block


def test_rate_and_slo_by_the_time_of_a_task(tmp_path: Path) -> None:
    """A share of the lanes' time is so many tasks, and a scale so many milliseconds; one of each pair of keys."""
    path = written(tmp_path, lanes=4)
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    data["models"]["left"] = {
        **{key: data["models"]["left"][key] for key in ("graph", "costs")},
        "share": 0.5,
        "slo_scale": 3,
    }
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    left, right = Scenario.read(path, load=2).models
    assert left.rate == pytest.approx(2 * 0.5 * 4 / 0.007)
    assert left.settings.slo_ms == pytest.approx(21.0)
    assert right.rate == pytest.approx(160)
    for key in ("rate", "slo_ms"):
        data["models"]["left"][key] = 5
        path.write_text(yaml.safe_dump(data), encoding="utf-8")
        with pytest.raises(HiosError, match="found both; allowed: one of them"):
            Scenario.read(path)
        del data["models"]["left"][key]


def _take_no_time(folder: Path, *labels: str) -> None:
    """Costs of these models with operators that take no time."""
    for label in labels:
        costs = folder / label / "costs.json"
        data = json.loads(costs.read_text(encoding="utf-8"))
        data["operators"] = {operator: {"time_ms": 0.0} for operator in data["operators"]}
        costs.write_text(json.dumps(data), encoding="utf-8")


def test_shares_need_times(tmp_path: Path) -> None:
    """Operators that take no time have no share of the lanes' time, and no multiple of their own."""
    path = written(tmp_path)
    _take_no_time(tmp_path, "left")
    _edit(path, "left", rate=None, share=0.5)
    message = "models.left.share: found 0.5 with operators that take 0 ms by left/costs.json; required: costs above 0"
    with pytest.raises(HiosError, match=re.escape(message)):
        Scenario.read(path)
    _edit(path, "left", rate=5, share=None, slo_ms=None, slo_scale=3)
    message = "models.left.slo_scale: found 3 with operators that take 0 ms by left/costs.json; required: costs above 0"
    with pytest.raises(HiosError, match=re.escape(message)):
        Scenario.read(path)


def test_proportions_of_the_capacity(tmp_path: Path) -> None:
    """Rates of 40 to 80 with tasks of 7 and 3 ms: together they take all time of four lanes, whatever their unit."""
    for scale in (1, 1000):
        path = written(tmp_path, lanes=4, rates="of-capacity")
        for label, rate in (("left", 40 * scale), ("right", 80 * scale)):
            _edit(path, label, rate=rate)
        left, right = Scenario.read(path).models
        assert right.rate == pytest.approx(2 * left.rate)
        assert left.rate * 0.007 + right.rate * 0.003 == pytest.approx(4)
        assert (left.settings.rate, right.settings.rate) == (left.rate, right.rate)
        assert Scenario.read(path, load=0.8).models[0].rate == pytest.approx(0.8 * left.rate)


def test_proportions_need_rates_and_times(tmp_path: Path) -> None:
    """A share has no part in proportions, and operators that take no time have no capacity."""
    path = written(tmp_path, rates="of-capacity")
    _edit(path, "left", rate=None, share=0.5)
    with pytest.raises(HiosError, match=re.escape("models.left.rate: missing; required with rates: of-capacity")):
        Scenario.read(path)
    path = written(tmp_path, rates="of-capacity")
    _take_no_time(tmp_path, "left", "right")
    with pytest.raises(HiosError, match=r"rates: found of-capacity with operators that take no time; allowed: per-sec"):
        Scenario.read(path)


_A, _B = served("a", [[1.0]], 50.0), served("b", [[1.0]], 100.0)


def test_periodic_arrivals() -> None:
    """A task of each model every 1 / rate seconds, from 0; tasks of one moment by label."""
    arrivals = draw(scenario(_B, _A, arrivals="periodic", duration_s=0.04))
    assert list(arrivals.times_s) == pytest.approx([0.0, 0.0, 0.01, 0.02, 0.02, 0.03])
    assert list(arrivals.models) == [1, 0, 0, 1, 0, 0]


def test_poisson_arrivals() -> None:
    """Gaps of a model are exponential with mean 1 / rate: their spread equals their mean."""
    arrivals = draw(scenario(_A, _B, duration_s=200.0))
    for number, rate in enumerate((50.0, 100.0)):
        times = [time for time, model in zip(arrivals.times_s, arrivals.models, strict=True) if model == number]
        gaps = [after - before for before, after in itertools.pairwise(times)]
        assert statistics.mean(gaps) == pytest.approx(1 / rate, rel=0.03)
        assert statistics.stdev(gaps) == pytest.approx(1 / rate, rel=0.05)
    assert list(arrivals.times_s) == sorted(arrivals.times_s)
    assert max(arrivals.times_s) < 200.0


def test_seeds() -> None:
    """Equal seeds give equal tasks, other seeds and repeats others; a model's tasks do not depend on the others."""
    one = draw(scenario(_A, _B, duration_s=5.0))
    assert draw(scenario(_A, _B, duration_s=5.0)) == one
    assert draw(scenario(_A, _B, duration_s=5.0, seed=1)) != one
    assert draw(scenario(_A, _B, duration_s=5.0), repeat=1) != one
    alone = draw(scenario(_A, duration_s=5.0))
    assert list(alone.times_s) == [t for t, model in zip(one.times_s, one.models, strict=True) if model == 0]


def test_arrivals_from_a_file(tmp_path: Path) -> None:
    """Rows in any order become tasks by time; those after the end are left out, rates follow from the rest."""
    text = "time_s,model\n3,left\n0.5,right\n9,left\n0.5,left\n"
    (tmp_path / "trace.csv").write_text(text, encoding="utf-8")
    given = Scenario.read(written(tmp_path, arrivals="trace.csv"))
    arrivals = draw(given)
    assert (list(arrivals.times_s), list(arrivals.models)) == ([0.5, 0.5, 3.0], [0, 1, 0])
    assert [model.rate for model in given.models] == [0.4, 0.2]
    assert draw(given, repeat=3) == arrivals
