"""Profiling a small network for real."""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hios import Costs, Edge, Graph, HiosError, Operator, Problem, schedule, violations
from hios.cli.files import profile
from hios.core.costs import CorunFactor, CostsFile
from hios.files import artifacts
from hios.kernels.executable import signatures
from hios.machine.statistics import interval, spread
from hios.profiling import measurements as session
from hios.profiling.cache import Measured
from hios.profiling.profile import _corun, _ratio_timing
from hios.profiling.stage_requests import RecordingProblem, StageRequests
from hios.report.statements import cost_summary
from tests.platforms.model.gpu_graphs import one_operator
from tests.profiling.conftest import DEVICES, ENOUGH_S, REPEATS


@pytest.fixture(scope="module")
def costs(costs_file: Path) -> dict[str, Any]:
    """The contents of costs.json, validated."""
    return artifacts.read(costs_file, "costs")


def _entries(costs: dict[str, Any]) -> list[dict[str, Any]]:
    return [*costs["operators"].values(), *costs["transfers"], *costs["stages"]]


def test_every_operator_and_edge_has_a_cost(costs: dict[str, Any], graph: Graph) -> None:
    """Operators and edges are exactly those of the graph."""
    assert list(costs["operators"]) == [operator.id for operator in graph.operators]
    assert {(e["source"], e["target"]) for e in costs["transfers"]} == {(e.source, e.target) for e in graph.edges}


def test_times_are_positive_with_their_spread(costs: dict[str, Any]) -> None:
    """Every time is a median between its percentiles and bounds; everything was repeated as often as asked at least."""
    for entry in _entries(costs):
        assert 0 < entry["p20_ms"] <= entry["p80_ms"] < math.inf
        assert entry["time_ms"] > 0
    for entry in [*costs["operators"].values(), *costs["transfers"]]:
        low, high = entry["interval_ms"]
        assert max(low, entry["p20_ms"]) <= entry["time_ms"] <= min(high, entry["p80_ms"])
    for entry in [*costs["operators"].values(), *costs["stages"]]:
        assert REPEATS <= entry["repeats"] <= 5 * REPEATS


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 10, 25, 50])
def test_noise_of_a_stage_is_no_gain(count: int) -> None:
    """Of many stages that take the sum of their operators but for noise, few are shorter than it."""
    draw, cases = random.Random(0), 1000
    samples = [[draw.lognormvariate(0, 0.03) for _ in range(count)] for _ in range(cases)]
    assert sum(_stage_ms(own) < 3.0 for own in samples) <= 0.035 * cases


def test_what_the_interval_tells_counts() -> None:
    """A ratio counts where all of the interval of its median is on one side of 1; five samples tell of losses only."""
    spread_out = [0.89 + 0.006 * number for number in range(25)]
    assert spread(spread_out)[2] > 1 > interval(spread_out)[1]
    assert _stage_ms(spread_out) == pytest.approx(3 * 0.962)
    assert _stage_ms([0.9] * 6) == pytest.approx(3 * 0.9)
    assert _stage_ms([0.9] * 5) == 3.0
    assert _stage_ms([1.1] * 2) == pytest.approx(3 * 1.1)
    assert _stage_ms([0.9] * 3 + [1.1] * 3) == 3.0


def _stage_ms(ratios: list[float]) -> float:
    """Time of a stage of two operators of 1 and 2 ms with these ratios to them."""
    return _ratio_timing(Measured(ratios, ""), {"a": 1.0, "b": 2.0}, ["a", "b"]).time_ms


def test_equal_operators_have_equal_times(costs: dict[str, Any], graph: Graph) -> None:
    """Operators of one signature share one measurement, operators of different ones do not."""
    members: dict[str, list[str]] = defaultdict(list)
    for operator, signature in signatures(graph).items():
        members[signature].append(operator)
    measured = [json.dumps(costs["operators"][group[0]]) for group in members.values()]
    for group in members.values():
        assert len({json.dumps(costs["operators"][operator]) for operator in group}) == 1
    assert len(measured) < len(graph.operators)
    assert len(set(measured)) > len(measured) / 2  # two may be equal by chance


def test_costs_state_their_graph(costs: dict[str, Any], graph: Graph) -> None:
    """Costs say of which graph they are, by name and fingerprint."""
    assert (costs["graph"], costs["graph_fingerprint"]) == (graph.name, graph.fingerprint)


def test_platform_and_versions_are_stated(costs: dict[str, Any]) -> None:
    """Costs say where, with how many devices and with which software they were measured."""
    assert costs["platform"]["devices"] == len(costs["platform"]["cores"]) == DEVICES
    assert {"hios", "torch", "python"} <= set(costs["versions"])


def test_models_are_stated_with_their_errors(costs: dict[str, Any]) -> None:
    """Costs have a link, a contention model, and the co-run factor of every number of devices."""
    assert costs["link"]["error"]["sizes"] >= 5
    assert 0 <= costs["link"]["error"]["median"] <= costs["link"]["error"]["largest"]
    assert 0 <= costs["contention"]["alpha"] <= 1
    assert costs["contention"].get("error", {"stages": 5})["stages"] >= 5  # too few stages have no error
    assert [entry["devices"] for entry in costs.get("corun", [])] == list(range(2, DEVICES + 1))


def test_the_measurement_is_described(costs: dict[str, Any]) -> None:
    """Without a cache everything was measured in one session, and nothing was left to models."""
    counts = costs["profile"]
    assert counts["cached"] == counts["modelled"] == 0
    assert counts["measured"] > len({json.dumps(entry) for entry in costs["operators"].values()})
    assert 0 <= counts["imprecise"] <= counts["measured"]
    assert "cached_from" not in counts
    assert "drift" not in counts


def test_stages_of_greedy_are_measured(costs_file: Path, graph_file: Path) -> None:
    """Every stage with several groups that greedy makes is among the measured ones."""
    problem = RecordingProblem(Problem.read(graph_file, costs_file))
    schedule(problem, "greedy")
    assert problem.asked == set()
    assert len(problem.measured) > 0


def test_stages_of_hios_lp_are_measured(costs: dict[str, Any], graph: Graph) -> None:
    """HIOS-LP asks for stages that greedy does not make, and those are measured too."""
    unmeasured = RecordingProblem(Problem(graph, Costs.from_json({**costs, "stages": []})))
    schedule(unmeasured, "greedy")
    measured = Problem(graph, Costs.from_json(costs)).measured
    assert set(measured) > unmeasured.asked


def test_measured_stages_can_run(costs: dict[str, Any], graph: Graph) -> None:
    """The groups of a stage hold operators once each and do not depend on each other."""
    reached: dict[str, set[str]] = {operator.id: set() for operator in graph.operators}
    for number in graph.order:
        operator = graph.operators[number].id
        for edge in graph.edges:
            if edge.target == operator:
                reached[operator] |= {edge.source} | reached[edge.source]
    for stage in costs["stages"]:
        members = [operator for group in stage["groups"] for operator in group]
        assert len(stage["groups"]) > 1
        assert len(members) == len(set(members))
        for group in stage["groups"]:
            others = set(members) - set(group)
            assert not any(reached[operator] & others for operator in group)


@pytest.mark.parametrize(("name", "devices"), [("greedy", 1), ("hios-lp", 2)])
def test_measured_costs_can_be_scheduled(name: str, devices: int, graph_file: Path, costs_file: Path) -> None:
    """Measured costs are a problem whose schedules are valid."""
    problem = Problem.read(graph_file, costs_file)
    assert violations(problem, schedule(problem, name, devices)) == []


def test_one_device(graph_file: Path, tmp_path: Path) -> None:
    """On one device transfers are copies into shared memory, and an algorithm's stages are measured there."""
    path = tmp_path / "costs.json"
    profile(graph_file, path, devices=1, repeats=1, stages_of=["hios-lp"], budget_s=ENOUGH_S)
    written = artifacts.read(path, "costs")
    assert written["platform"]["devices"] == 1
    assert all(0 < entry["time_ms"] < math.inf for entry in _entries(written))
    assert {entry["repeats"] for entry in written["operators"].values()} == {5}  # of one no certainty can be told
    assert "corun" not in written
    assert written["stages"]


def test_merges_of_ios_are_measured(
    graph_file: Path, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What IOS asks for is measured, in several batches, merges of alike operators once, and IOS uses their times."""
    monkeypatch.setattr(session, "_BATCH", 3)
    path = tmp_path / "costs.json"
    profile(graph_file, path, devices=1, repeats=2, stages_of=["ios"], budget_s=ENOUGH_S)
    written = artifacts.read(path, "costs")
    unmeasured = RecordingProblem(Problem(graph, Costs.from_json({**written, "stages": [], "merges": []})))
    schedule(unmeasured, "ios")
    problem = Problem(graph, Costs.from_json(written))
    assert len(unmeasured.asked) > 3 < len(unmeasured.asked_merges)
    assert set(problem.measured) >= unmeasured.asked
    assert set(problem.measured_merges) >= unmeasured.asked_merges
    signature = signatures(graph)
    times: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for entry in written["merges"]:
        assert 0 < entry["p20_ms"] <= entry["p80_ms"] < math.inf
        assert entry["time_ms"] > 0
        assert 2 <= entry["repeats"] <= 10
        times[tuple(sorted(map(signature.__getitem__, entry["operators"])))].add(json.dumps(entry["time_ms"]))
    assert {len(alike) for alike in times.values()} == {1}
    assert violations(problem, schedule(problem, "ios")) == []


def test_a_merge_that_was_asked_for_is_measured() -> None:
    """It is one whose operators are like those of the merge that needs a time."""
    asked = StageRequests(Graph("none", (), ()), {}, merges={("a", "b"): ("a", "a"), ("c", "d"): ("a", "c")})
    assert [asked.merge_of(alike) for alike in (("a", "a"), ("a", "c"))] == [("a", "b"), ("c", "d")]


def _refused(graph: Path, message: str, **changes: Any) -> None:
    output = graph.parent / "refused" / "costs.json"
    with pytest.raises(HiosError, match=message) as caught:
        profile(graph, output, **{"devices": 1, "repeats": 1, "stages_of": (), **changes})
    assert "\n" not in str(caught.value)
    assert not output.exists()


def test_unknown_algorithm_is_refused(graph_file: Path) -> None:
    """An algorithm that is not in the registry is refused before anything is measured."""
    _refused(graph_file, "unknown algorithm magic; allowed: .*greedy", stages_of=["greedy", "magic"])


@pytest.mark.parametrize("devices", [0, 10_000])
def test_wrong_devices_are_refused(graph_file: Path, devices: int) -> None:
    """No devices or more than cores are refused before anything is measured."""
    _refused(graph_file, f"platform cpu: devices: found {devices}; allowed: 1 to ", devices=devices)


def test_synthetic_graph_is_refused(tmp_path: Path) -> None:
    """A graph without calls can be scheduled, not run: the operator is named."""
    path = tmp_path / "graph.json"
    Graph("test", (Operator("a", "task"), Operator("b", "task")), (Edge("a", "b"),)).write(path)
    _refused(path, r"graph\.json: operators\[0\]\.calls: operator a has none, so it can be scheduled but not run")


@pytest.mark.slow
def test_graph_without_edges(tmp_path: Path) -> None:
    """A single operator has no transfers and no stages, and is profiled all the same."""
    one_operator("relax.nn.relu", [[4]], [4]).write(tmp_path / "graph.json")
    profile(tmp_path / "graph.json", tmp_path / "costs.json", devices=DEVICES, repeats=2, stages_of=["hios-lp"])
    written = artifacts.read(tmp_path / "costs.json", "costs")
    assert 2 <= written["operators"]["v"]["repeats"] <= 10
    assert written["transfers"] == written["stages"] == []


_SAMPLES = [1.4, 1.5, 1.6, 1.5, 1.4, 1.6, 1.5]


def _said(factor: CorunFactor) -> str:
    costs = msgspec.convert({"operators": {}, "transfers": []}, CostsFile)
    (fact,) = (f for f in cost_summary(msgspec.structs.replace(costs, corun=(factor,))) if f.name == "Devices at once")
    return fact.value


def test_a_factor_beside_other_work_is_marked() -> None:
    """costs.json and the report say so of what was measured then, not of what an idle machine had measured before."""
    measured = Measured(_SAMPLES, "2026-01-01T00:00:00Z")
    marked = _corun(2, measured, quiet=False)
    assert (marked.factor, marked.beside_other_work) == (1.5, True)
    assert _said(marked).endswith("measured beside other work")
    quiet = [_corun(2, measured, quiet=True), _corun(2, Measured(_SAMPLES, "", cached=True), quiet=False)]
    assert [factor.beside_other_work for factor in quiet] == [None, None]
    assert "other work" not in _said(quiet[0])


@pytest.mark.parametrize(
    ("samples", "factor"),
    [
        ([0.99, 1.03, 1.02, 1.04, 0.98, 1.03, 1.05], 1.03),  # the interval of the median holds 1; the estimate counts
        ([0.97, 0.99, 0.98, 1.01, 0.96, 1.02, 0.98], 1.0),  # devices do not speed each other up
    ],
)
def test_the_best_estimate_of_a_factor_counts(samples: list[float], factor: float) -> None:
    """Predictions take the median whether or not it is significant, but never one below 1."""
    corun = _corun(2, Measured(samples, ""), quiet=True)
    assert corun.interval is not None
    assert corun.interval[0] <= 1.0
    assert corun.factor == factor
