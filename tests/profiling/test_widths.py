"""t(v, k): operators measured on several devices at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hios import Costs
from hios.cli.files import profile
from hios.core.graph import Graph
from hios.core.merging import convolutions, merge_candidates
from hios.errors import PlatformError
from hios.files.base import Platform
from hios.machine.description import usable_cores
from hios.platforms.cpu.measuring import CpuTimer
from hios.platforms.timer import DeviceTimer
from hios.profiling import profile as profiling
from hios.profiling.cache import Cache, Measured, now
from hios.profiling.measurements import Session
from tests.cores_marker import two_cores


@pytest.fixture(scope="module")
def timer(graph: Graph, graph_file: Path) -> Iterator[DeviceTimer]:
    """Two devices."""
    described = Platform("cpu", devices=2, cores=tuple((core,) for core in usable_cores()[:2]))
    with CpuTimer(graph, str(graph_file), described, (2,)) as made:
        yield made


@two_cores
def test_rounds_on_two_devices_and_on_one_take_turns(graph: Graph, timer: DeviceTimer) -> None:
    """The timer gives a pair of times for every operator and round, and goes on as before afterwards."""
    operators = [operator.id for operator in graph.operators[:4]]
    timer.load(dict.fromkeys(operators, 1))
    for _ in range(2):
        times = timer.time_wide(2, operators, 3, 1)
        assert len(times) == len(operators)
        assert all(len(own) == 3 and min(wide, narrow) > 0 for own in times for wide, narrow in own)
    assert [len(own) for own in timer.time(1, operators, 2, 0)] == [2] * len(operators)


@pytest.mark.slow
@two_cores
def test_operators_and_merges_are_measured_on_two_devices(graph: Graph, graph_file: Path, tmp_path: Path) -> None:
    """Costs list t(v, 2) of operators that gain, and only of those.

    They list what could be merged, also if no algorithm asks, and times on two devices of what gains.
    """
    settings = {"devices": 2, "repeats": 6, "stages_of": ["sequential"], "budget_s": 600, "cache": tmp_path / "cache"}
    asked = {
        frozenset(graph.operators[operator].id for operator in merge) for merge in merge_candidates(convolutions(graph))
    }
    first = profile(graph_file, tmp_path / "costs.json", widths=(2,), **settings)
    for cost in first.operators.values():
        assert set(cost.wide_ms) <= {"2"}
        assert all(0 < time < cost.time_ms for time in cost.wide_ms.values())
    read = Costs.read(tmp_path / "costs.json")
    assert {operator: {2: cost.wide_ms["2"]} for operator, cost in first.operators.items() if cost.wide_ms} == (
        read.wide_ms
    )
    measured = {frozenset(merge.operators) for merge in first.merges}
    assert set() < measured <= asked  # a busy machine may leave some out
    for merge in first.merges:
        assert set(merge.wide_ms) <= {"2"}
        assert all(0 < time < merge.time_ms for time in merge.wide_ms.values())
    narrow = profile(graph_file, tmp_path / "narrow.json", **settings)
    assert not narrow.merges
    assert not any(cost.wide_ms for cost in narrow.operators.values())


@two_cores
def test_rounds_of_merges_on_two_devices_and_apart_take_turns(graph: Graph, timer: DeviceTimer) -> None:
    """The timer gives a pair of times for every merge and round."""
    merges = [
        [graph.operators[operator].id for operator in sorted(merge)]
        for merge in merge_candidates(convolutions(graph))[:2]
    ]
    timer.load_merges(merges)
    for _ in range(2):
        pairs = timer.time_wide(2, [1, 0], 3, 1)
        assert [len(own) for own in pairs] == [3, 3]
        assert min(time for own in pairs for pair in own for time in pair) > 0


@pytest.mark.parametrize(
    ("ratios", "expected"), [([0.5] * 20, {"2": 15.0}), ([0.9] * 20, {}), ([0.5, 1.5] * 10, {}), ([0.5] * 3, {})]
)
def test_merges_are_listed_where_they_gain(
    graph: Graph, graph_file: Path, monkeypatch: pytest.MonkeyPatch, ratios: list[float], expected: dict[str, float]
) -> None:
    """On two devices beyond doubt less than the operators one after another on one, and less than merged on one."""
    monkeypatch.setattr("hios.platforms.cpu.measuring.WorkerPool", lambda *_, **__: None)
    timer = CpuTimer(graph, str(graph_file), Platform("cpu", devices=2, cores=((0,), (1,))))
    session = Session(graph, timer, 3, Cache(None, {}))
    session.merges["a", "b"] = Measured([0.8] * 20, now())
    session.wide_merges[2, ("a", "b")] = Measured(ratios, now())
    cost = profiling._merge_cost(session, ("x", "y"), ("a", "b"), {"a": 10.0, "b": 20.0})
    assert (cost.operators, cost.time_ms, cost.wide_ms) == (("x", "y"), 24.0, expected)


@pytest.mark.parametrize(
    ("ratios", "expected"), [([0.5] * 20, {"2": 5.0}), ([1.0] * 20, {}), ([0.5, 1.5] * 10, {}), ([0.5] * 3, {})]
)
def test_only_what_gains_beyond_doubt_is_listed(ratios: list[float], expected: dict[str, float]) -> None:
    """Of a ratio whose interval holds 1, or of few samples, there is no t(v, k)."""
    assert profiling._wide_ms({(2, "a"): Measured(ratios, now())}, "a", 10.0) == expected


@pytest.mark.parametrize(("cores_per_device", "differs"), [(1, False), (2, True)])
def test_cached_times_are_those_beside_the_same_threads(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores_per_device: int, differs: bool
) -> None:
    """With widths, threads inside operators wait for each other for less long, which changes times of all operators."""
    seen: list[str] = []

    def kept(_: Path, settings: dict[str, object], *, keep: bool) -> None:
        seen.append(json.dumps(settings, sort_keys=True))
        raise InterruptedError

    monkeypatch.setattr(profiling, "Cache", kept)
    for widths in ((), (2,), ()):
        with pytest.raises(InterruptedError):
            profiling.profile(
                graph,
                devices=2,
                repeats=3,
                stages_of=[],
                cache=tmp_path,
                virtual=True,
                cores_per_device=cores_per_device,
                widths=widths,
            )
    assert seen[0] == seen[2]
    assert (seen[0] != seen[1]) is differs


@pytest.mark.parametrize(
    ("widths", "devices", "message"),
    [
        ((3,), 2, "widths: found 3; allowed: 2 to 2, the devices"),
        ((1,), 2, "widths: found 1; allowed: 2 to 2, the devices"),
        ((2,), 1, "widths: found 2; allowed: none, with one device"),
        ((2, 2), 4, "widths: found 2, 2; allowed: each number once"),
    ],
)
def test_widths_that_cannot_be(widths: tuple[int, ...], devices: int, message: str) -> None:
    """Widths are at least two, and at most the number of devices."""
    with pytest.raises(PlatformError, match=message):
        profiling.check_widths(widths, Platform("cpu", devices))
