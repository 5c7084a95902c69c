"""Profiling with a cache, and with too little time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from hios import Graph
from hios.cli.files import profile
from hios.core.costs import CostsFile
from hios.files import artifacts
from hios.platforms.timer import TIMEOUT_S, DeviceTimer, Quantity, Times
from hios.profiling import measurements as session
from hios.profiling.cache import Cache
from hios.profiling.measurements import Effort
from hios.profiling.transfers import measure_transfers
from hios.report.statements import profile_details
from tests.platforms.model.gpu_graphs import one_operator
from tests.profiling.conftest import DEVICES, ENOUGH_S
from tests.runtime.small import branches

#: What a cache holds.
KINDS = ("operators", "transfers", "stages", "merges", "corun", "contention", "link")


def _profile(graph: Path, output: Path, cache: Path | None, **more: Any) -> dict[str, Any]:
    options = {
        "devices": DEVICES,
        "repeats": 3,
        "stages_of": ["greedy", "hios-lp"],
        "cache": cache,
        "budget_s": ENOUGH_S,
        **more,
    }
    profile(graph, output, **options)
    return artifacts.read(output, "costs")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the measurements of this module."""
    return tmp_path_factory.mktemp("measurements") / "made" / "when needed"


@pytest.fixture(scope="module", autouse=True)
def kept() -> Iterator[None]:
    """Measurements are kept although other programs may be at work while tests run.

    So is the factor of devices at once, however uncertain: by another one, an algorithm may ask for other stages.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hios.profiling.profile.BUSY", 1.0)
        patch.setattr("hios.profiling.contention.is_precise", lambda samples: True)
        yield


@pytest.fixture(scope="module")
def first(graph_file: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Costs measured with an empty cache."""
    return _profile(graph_file, tmp_path_factory.mktemp("first") / "costs.json", cache)


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """No drift is too much: the machine that runs the tests may be busy."""
    monkeypatch.setattr(session, "MOST_DRIFT", math.inf)


@pytest.mark.usefixtures("steady")
def test_a_second_run_measures_nothing(first: dict[str, Any], graph_file: Path, cache: Path, tmp_path: Path) -> None:
    """Everything comes from the cache as it was measured, and costs.json says so."""
    costs = _profile(graph_file, tmp_path / "costs.json", cache)
    assert {kind: costs.get(kind) for kind in KINDS} == {kind: first.get(kind) for kind in KINDS}
    assert costs["profile"]["measured"] == 0
    assert costs["profile"]["cached"] == first["profile"]["measured"]
    assert costs["profile"]["cached_from"] <= costs["profile"]["cached_until"]
    assert costs["profile"]["drift"] > 0
    assert f"{costs['profile']['cached']} taken from the cache" in _details(costs)


def _details(costs: dict[str, Any]) -> str:
    """The lines that `hios profile` prints."""
    return "\n".join(profile_details(msgspec.convert(costs, CostsFile)))


def _renamed(value: Any, key: str = "") -> Any:
    """The contents of a graph.json with other names of operators and weights."""
    if isinstance(value, dict):
        return {name: _renamed(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [_renamed(part, key) for part in value]
    if key in {"id", "operator", "source", "target", "blocks", "weight"} and isinstance(value, str):
        return f"other {value}"
    return value


@pytest.mark.slow
@pytest.mark.usefixtures("steady", "first")
def test_other_networks_share_measurements(graph_file: Path, cache: Path, tmp_path: Path) -> None:
    """Names do not count: a network of other names with operators of the same signatures finds them all."""
    data = _renamed(artifacts.read(graph_file, "graph"))
    for weight in data["weights"]:
        weight["name"] = f"other {weight['name']}"
    artifacts.write(tmp_path / "graph.json", "graph", {**data, "name": "other"})
    costs = _profile(tmp_path / "graph.json", tmp_path / "costs.json", cache)
    assert costs["graph"] == "other"
    assert costs["profile"]["measured"] == 0


@pytest.mark.slow
@pytest.mark.usefixtures("first")
def test_operators_that_drifted_are_measured_anew(
    graph_file: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where operators take longer or shorter than the cache says, none of them is taken from it."""
    monkeypatch.setattr(session, "MOST_DRIFT", -0.999)
    costs = _profile(graph_file, tmp_path / "costs.json", cache)
    assert costs["profile"]["measured"] > 0
    assert costs["profile"]["drift"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("steady", "first")
def test_more_repeats_are_measured(graph_file: Path, cache: Path, tmp_path: Path) -> None:
    """Entries that were repeated less often than is asked for now are not taken."""
    costs = _profile(graph_file, tmp_path / "costs.json", cache, repeats=20, stages_of=[])
    assert min(entry["repeats"] for entry in costs["operators"].values()) >= 20


@pytest.mark.slow
@pytest.mark.usefixtures("steady", "first")
def test_a_missing_entry_is_measured_alone(graph_file: Path, cache: Path, tmp_path: Path) -> None:
    """One operator that the cache lacks is measured; the others stay as they are."""
    before = _profile(graph_file, tmp_path / "before.json", cache, repeats=1, stages_of=[])
    for file in cache.rglob("*.json"):
        if '"kind": "operator"' in file.read_text():
            file.unlink()
            break
    after = _profile(graph_file, tmp_path / "after.json", cache, repeats=1, stages_of=[])
    assert after["profile"]["cached"] == before["profile"]["cached"] - 1


class _Steady(DeviceTimer):
    """A timer on which everything takes as many milliseconds as it is told, by a clock of its own."""

    probe_version, probe_flops, probe_bytes, clock_s = "1", 1, 1, 0.0

    def __init__(self, takes_ms: float) -> None:
        pool: Any = SimpleNamespace(timeout_s=TIMEOUT_S)
        super().__init__(pool, 1, 0)
        self.takes_ms = takes_ms

    def ends(self, devices: int) -> dict[str, object]:
        return {}

    def probe(self, device: int) -> tuple[float, float]:
        return 1.0, 1.0

    def load(self, operators: Mapping[str, int]) -> None:
        """Nothing is needed."""

    def load_merges(self, merges: Sequence[Sequence[str]]) -> None:
        """Nothing is needed."""

    def time(self, device: int, quantities: Sequence[Quantity], rounds: int, warmup: int) -> list[Times]:
        seconds = len(quantities) * (warmup + rounds) * self.takes_ms / 1e3
        self.clock_s += seconds
        assert seconds <= self.pool.timeout_s
        return [[(self.takes_ms,)] * rounds for _ in quantities]

    def time_transfers(self, sizes: Sequence[int], rounds: int, turn: int) -> dict[int, list[float]]:
        return {size: [self.takes_ms] * rounds for size in sizes}

    def corun(self, turn: int, devices: int, network: Sequence[str], alone_ms: float) -> float:
        return 1.0


@pytest.mark.parametrize(("takes_ms", "expected_ms"), [(1.02, 1.0), (2.0, 2.0)])
def test_transfers_drift_with_operators(tmp_path: Path, takes_ms: float, expected_ms: float) -> None:
    """On a machine that has become slower, transfers are measured anew like operators; else both are cached."""
    graph = branches().graph
    for now_ms in (1.0, takes_ms):
        opened = session.Session(graph, _Steady(now_ms), 3, Cache(tmp_path, {}))
        opened.measure_operators(math.inf)
        measure_transfers(opened, math.inf)
    assert len(opened.transfers) > 0
    for measured in (*opened.operators.values(), *opened.transfers.values()):
        assert set(measured.samples) == {expected_ms}


def test_calls_may_take_what_the_operators_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call to a worker runs the network several times, however long its operators take; if short, none hangs."""
    graph = branches().graph
    for takes_ms, expected_s in ((1.0, TIMEOUT_S), (TIMEOUT_S * 900, 50 * len(graph.operators) * 0.9 * TIMEOUT_S)):
        timer = _Steady(takes_ms)
        monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda timer=timer: timer.clock_s))
        opened = session.Session(graph, timer, 3, Cache(None, {}))
        opened.measure_operators(math.inf)
        assert set(opened.median_ms().values()) == {takes_ms}
        assert timer.pool.timeout_s == pytest.approx(expected_s)


def test_busy_machines_keep_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where other work took the cores right before, nothing is added to the cache, and costs.json says so."""
    monkeypatch.setattr("hios.profiling.profile.BUSY", -1.0)
    graph = tmp_path / "graph.json"
    one_operator("relax.nn.relu", [[4]], [4]).write(graph)
    costs = _profile(graph, tmp_path / "costs.json", tmp_path / "kept", devices=1, repeats=1, stages_of=[])
    assert costs["profile"]["kept"] is False
    assert not (tmp_path / "kept").exists()
    assert "none kept in the cache, as other work took " in _details(costs)


@pytest.mark.slow
def test_no_cache_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder no measurement is kept, in the default folder neither."""
    graph = tmp_path / "graph.json"
    one_operator("relax.nn.relu", [[4]], [4]).write(graph)
    monkeypatch.setenv("HIOS_CACHE", str(tmp_path / "kept"))
    costs = _profile(graph, tmp_path / "costs.json", None, devices=1, repeats=1, stages_of=[])
    assert costs["profile"]["cached"] == 0
    assert not (tmp_path / "kept").exists()


@pytest.mark.slow
def test_with_little_time_stages_are_not_repeated(
    graph_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no time for all stages, each that is measured takes the least number of repeats."""
    monkeypatch.setattr(Effort, "left_s", lambda effort: 0.0)
    costs = _profile(graph_file, tmp_path / "costs.json", None, stages_of=["greedy"])
    assert {entry["repeats"] for entry in costs["stages"]} == {3}


def test_operators_run_behind_those_that_fill_the_caches(graph_file: Path) -> None:
    """Some operators are measured behind those before them, around the end too.

    These are all where sizes are unknown, and none where caches do not count.
    """
    graph = Graph.read(graph_file)
    timer = SimpleNamespace(devices=1, around_bytes=None, probe_version="", probe=None)
    opened = session.Session(graph, timer, 3, Cache(None, {}))  # type: ignore[arg-type]
    order = list(dict.fromkeys(opened.stand_in[graph.operators[number].id] for number in graph.order))
    bytes_of = {operator.id: operator.bytes or 0 for operator in graph.operators}
    for size, expected in (
        (1, {order[0], order[-1], order[5], order[4]}),
        (bytes_of[order[4]] + 1, {order[0], order[-1], order[5], order[4], order[3]}),
        (0, {order[0], order[5]}),
        (None, set(order)),
        (1 << 40, set(order)),
    ):
        timer.around_bytes = size
        chosen = opened._with_neighbors([order[0], order[5]])
        assert chosen == [operator for operator in order if operator in chosen]
        assert expected <= set(chosen)
        assert size not in (0, 1) or set(chosen) == expected


@pytest.mark.slow
def test_without_time_stages_are_modelled(graph_file: Path, tmp_path: Path) -> None:
    """With a budget of zero, operators are measured the minimum number of times and stages are left to the model."""
    costs = _profile(graph_file, tmp_path / "costs.json", None, budget_s=0.0)
    assert {entry["repeats"] for entry in costs["operators"].values()} == {3}
    assert costs["stages"] == []
    assert costs["profile"]["modelled"] > 0
    assert costs["contention"] == {"kind": "blend", "alpha": 1.0}
    assert f"{costs['profile']['modelled']} stages or merges left to the models" in _details(costs)
