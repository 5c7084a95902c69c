"""A learned launcher on a scenario: when it decides, what it changes, and how the policies use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hios.errors import ArtifactError, HiosError
from hios.serving import simulate as simulation
from hios.serving.calibration import calibrated
from hios.serving.launcher.actions import LauncherDecision
from hios.serving.launcher.online_launcher import OnlineLauncher, launcher_of
from hios.serving.policies import LAUNCHERS, POLICIES, pipeline_of, policies_of
from hios.serving.scenario import draw
from hios.serving.simulate import ChosenPolicy, choose, simulate, simulate_grid
from tests.serving.launcher.launchers import deciding, two_models, with_launcher
from tests.serving.scenarios import constants, unaccounted

#: Intervals of the shortest kind, and every block by itself in one of three parts.
_FAST = [0.0, 0.0, 0.1, 0.5, 0.9]
#: Everything in one part: a superblock.
_SUPERBLOCK = [0.0, 0.0, 0.5, 0.5, 0.5]


def test_fixed_decisions_are_those_of_top(tmp_path: Path) -> None:
    """A launcher that combines nothing and holds nothing back does what top-open does, but for its ticks."""
    given = with_launcher(two_models(duration_s=20.0), tmp_path, _FAST)
    learned, top = simulate(given, "learned"), simulate(given, "top-open")
    assert learned.total.completed == pytest.approx(top.total.completed, abs=3)
    assert learned.total.mean_ms == pytest.approx(top.total.mean_ms, rel=0.2)
    assert (learned.launcher, top.launcher) == ("learned", "open")


def test_repeats_have_jitter_of_their_own(tmp_path: Path) -> None:
    """Where arrivals are the same in every repeat, runs still vary between them."""
    given = two_models(duration_s=5.0).with_settings(arrivals="periodic", repeats=6)
    calibration = constants(jitter=(0.5, 1.0, 3.0), lanes=given.lanes)
    given = with_launcher(calibrated(given, calibration), tmp_path, _FAST)
    assert len({outcome.busy_s for outcome in OnlineLauncher(given, launcher_of(given)).outcomes(range(6))}) > 1


def test_intervals_hold_tasks_back(tmp_path: Path) -> None:
    """With a task a second from each queue, about 20 of each are completed in 20 s, whatever arrives."""
    given = with_launcher(two_models(duration_s=20.0), tmp_path, [1.0, 1.0, 0.1, 0.5, 0.9])
    result = simulate(given, "learned")
    assert all(19 <= served.completed <= 20 for served in result.models.values())


def test_decides_where_the_queues_say_so() -> None:
    """At most once a step: never as long as nothing waits, after every step where the queues grow."""
    trace_of = two_models(duration_s=4.0)
    cases: tuple[tuple[list[float], dict[str, Any], int], ...] = (
        (_FAST, {"variance": 1e9, "wait_ms": 0.0}, 1),
        ([1.0, 1.0, 0.1, 0.5, 0.9], {"variance": 1e9, "wait_ms": 0.0}, 1),
        ([1.0, 1.0, 0.1, 0.5, 0.9], {"variance": 1e9, "wait_ms": 1.0}, 1 + 8),
        ([1.0, 1.0, 0.1, 0.5, 0.9], {"variance": 1.0, "wait_ms": 0.0}, 1 + 8),
        ([1.0, 1.0, 0.1, 0.5, 0.9], {"variance": 2e5, "wait_ms": 0.0}, 1),  # the paper's T: a backlog of hundreds
    )
    for actions, changes, decisions in cases:
        online = OnlineLauncher(trace_of, deciding(trace_of, actions, **changes))
        online.run(draw(trace_of))
        assert online.made == decisions


def test_superblocks_are_not_used() -> None:
    """Where the first decision is one, the static decision holds; later ones change nothing."""
    given = two_models()
    static = LauncherDecision((0.01, 0.01), (((0, 0), (1, 0)), ((0, 1),)))
    online = OnlineLauncher(given, deciding(given, _SUPERBLOCK, static, wait_ms=0.001))
    assert online.first() == static
    steps = online.run(draw(given))
    assert online.made > 1
    assert steps.pipeline.combined == static.combined


def test_changes_on_the_way(tmp_path: Path) -> None:
    """A launcher whose decision depends on the queues goes on with other combined blocks; every task is counted."""
    given = two_models(left_rate=400.0)
    launcher = deciding(given, [0.0, 0.0, 0.1, 0.9, 0.5], wait_ms=1.0)
    # Where the first block of the left model holds an instance, both its blocks fall into one part.
    launcher.actors["actor1.0.weight"][0, 0] = 1.0
    launcher.actors["actor1.1.weight"][0, :] = [10.0, 10.0]
    launcher.write(tmp_path / "launcher.safetensors")
    given = given.with_launcher(tmp_path / "launcher.safetensors")
    steps = OnlineLauncher(given, launcher).run(draw(given))
    assert len(steps.record().changes) >= 1
    assert steps.pipeline.combined != steps.first.combined
    assert unaccounted(simulate(given, "learned").total) == 0


def test_policies_by_name(tmp_path: Path) -> None:
    """With a launcher there are two more policies, and auto compares them."""
    plain = two_models()
    assert policies_of(plain) == list(POLICIES)
    given = with_launcher(plain, tmp_path, _FAST)
    assert policies_of(given)[-2:] == ["learned", "learned-static"]
    assert {"learned", "learned-static"} <= {entry.policy for entry in choose(given, "auto", "open").candidates}
    assert pipeline_of(given, "learned-static").intervals_s == pytest.approx((0.5 / 60, 0.5 / 100))
    for launcher in ("open", "auto"):  # these have a launcher of their own, so there is nothing to choose
        result = simulate(given, "learned-static", launcher=launcher)
        assert (result.launcher, result.candidates) == ("learned", ())
    by_launcher = [entry for entry in choose(given, "auto", "auto").candidates if entry.left_out is None]
    assert [entry.launcher for entry in by_launcher if entry.policy == "learned"] == ["learned"]
    assert {entry.launcher for entry in by_launcher if entry.policy == "top"} == set(LAUNCHERS)


def test_auto_has_a_row_for_every_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the best is learned, whose launcher is its own, whatever was asked for."""
    given = with_launcher(two_models(), tmp_path, _FAST)
    monkeypatch.setattr(simulation, "choose", lambda *_, **__: ChosenPolicy("learned-static", "learned"))
    results = simulate_grid(given, "auto", "all").results
    assert list(results) == [("auto", launcher) for launcher in LAUNCHERS]
    assert {(result.chosen, result.launcher) for result in results.values()} == {("learned-static", "learned")}
    assert list(simulate_grid(given, "learned-static", "all").results) == [("learned-static", "learned")]


def test_a_launcher_is_required(tmp_path: Path) -> None:
    """Without one, with one of another scenario, or where the file is not there: one line."""
    with pytest.raises(HiosError, match=r"policy learned: needs a launcher .*top.weights"):
        simulate(two_models(), "learned")
    with_launcher(two_models(), tmp_path, _FAST)
    with pytest.raises(ArtifactError, match="device: found 2 lane"):
        simulate(two_models(lanes=4).with_launcher(tmp_path / "launcher.safetensors"), "learned")
    with pytest.raises(ArtifactError, match=r"none\.safetensors: cannot be read"):
        simulate(two_models().with_launcher(tmp_path / "none.safetensors"), "learned")
