"""A learned launcher beside a real server: it decides anew, lanes get the programs, and every answer is right."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hios.serving.launcher.actions import Launcher, state_size
from hios.serving.launcher.live_launcher import LiveLauncher
from hios.serving.launcher.online_launcher import OnlineLauncher
from hios.serving.load import load
from hios.serving.scenario import Scenario
from hios.serving.server import Server
from tests.serving.launcher.launchers import deciding
from tests.serving.scenarios import unaccounted
from tests.serving.served import inputs, networks, require_nothing_held, require_right, scenario, with_widths
from tests.workers.processes import children, eventually


def _launcher(given: Scenario, held: float = 1.0, **changes: Any) -> Launcher:
    """Holds tasks back and combines nothing at first; where many requests for the second model wait, it does neither.

    Queues that differ by twelve and more have it decide anew, so what it decides last does not depend on the moment.
    """
    blocks = [len(model.blocks) for model in given.models]
    alone = [(place + 0.5) / sum(blocks) for place in range(sum(blocks))]
    launcher = deciding(given, [held, held, *alone], **{"variance": 36.0, "wait_ms": 0.0, "step_s": 0.05, **changes})
    deviation = state_size(blocks, 1) - 1  # of the second queue, in the first sample
    actors = launcher.actors
    for agent in (0, 2):
        actors[f"actor{agent}.0.weight"][deviation, 0] = 1.0
    actors["actor0.1.weight"][0, :] = -25.0  # the shortest intervals
    actors["actor2.1.weight"][0, 1] = -25.0  # the second block joins the first block of the first model
    return launcher


def _given(folder: Path, **changes: Any) -> Scenario:
    # Where an idle lane starts the next combined block, runs on all lanes have threads inside their operators.
    given = scenario(folder, with_widths(folder, every=True) if changes.get("device") == "top-open" else None)
    _launcher(given, **changes).write(folder / "launcher.safetensors")
    return given.with_launcher(folder / "launcher.safetensors")


def _require_all_right(server: Server, branches: int, blocks: int) -> None:
    """Requests for both models at once, each answered with what the model makes of it."""
    counts = {"branches": branches, "blocks": blocks}
    asked = [(label, inputs(label, number)) for label in networks() for number in range(counts[label])]
    answers = [server.submit(label, value) for label, value in asked]
    for (label, value), answer in zip(asked, answers, strict=True):
        require_right(label, value, answer.result(120))


@pytest.mark.parametrize(("device", "killed"), [("top", False), pytest.param("top-open", True, marks=pytest.mark.slow)])
def test_decides_anew_while_requests_run(device: str, killed: bool, tmp_path: Path) -> None:
    """Where requests wait, other blocks run together and queues are emptied faster; a lane that dies comes back."""
    before = set(children())
    given = _given(tmp_path, device=device)
    with Server(given, "learned", virtual=True) as server:
        first = server.pipeline
        assert first.intervals_s == pytest.approx((1.0, 1.0), rel=1e-3)
        assert max(map(len, first.combined)) == 1
        # One request a second at first: it takes 40 s to empty this queue, unless the launcher decides anew.
        _require_all_right(server, 2, 40)
        assert server.decisions > 1
        assert server.control_s > 0
        changed = server.pipeline
        assert ((0, 0), (1, 1)) in changed.combined
        assert max(changed.intervals_s or ()) < 0.1
        if killed:
            victim = server.process_ids[1]
            os.kill(victim, signal.SIGKILL)
            assert eventually(lambda: server.process_ids[1] not in (0, victim))
            assert eventually(lambda: server.lanes_up == 2)
        _require_all_right(server, 5, 5)
        require_nothing_held(server)
    assert set(children()) <= before


def test_a_launcher_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server states why it has stopped deciding; what was decided before continues."""

    def fail(*_: object) -> None:
        raise ValueError("no such action")

    monkeypatch.setattr(OnlineLauncher, "follow", fail)
    with Server(_given(tmp_path), "learned", virtual=True) as server:
        assert eventually(lambda: server.lost == "the launcher failed: no such action")
        _require_all_right(server, 1, 1)


@pytest.mark.slow
def test_load_runs_a_learned_launcher(tmp_path: Path) -> None:
    """Both policies of a launcher run for real; that auto may take either, test_online_launcher.py has."""
    given = _given(tmp_path, held=0.3)
    for name in ("learned", "learned-static"):
        loaded = load(given, name, virtual=True)
        assert loaded.wrong == ""
        assert unaccounted(loaded.result.total) == 0 < loaded.result.total.offered
        assert loaded.result.launcher == "learned"


def test_simulator_and_server_decide_the_same(tmp_path: Path) -> None:
    """One class decides for both: shown the same queues and blocks, it decides the same at every step."""
    given = scenario(tmp_path)
    launcher = _launcher(given)
    seen: list[Any] = []

    class _Shown:
        """A device whose queues a test states: nothing waits, then twenty requests for the second model."""

        now = 0.0
        change = staticmethod(lambda pipeline, queues: seen.append((pipeline.combined, queues[0].interval_s)))

        def run_to(self, until_s: float) -> None:
            self.now = until_s

        def lengths(self) -> list[int]:
            return [0, 20 * (self.now > 0.12)]

        def progress(self) -> list[bool]:
            return [False] * sum(len(model.blocks) for model in given.models)

        def waits_s(self) -> float:
            return 0.1 * (self.now > 0.12)

    online = OnlineLauncher(given, launcher)
    online.follow(_Shown(), online.first(), 0.5)
    (changed,) = seen  # once, though it decides after each of the steps that follow
    decision = launcher.decide(_state(given, 20))
    assert changed == (decision.combined, decision.intervals_s[0])
    assert online.made > 2


def _state(given: Scenario, waiting: int) -> Any:
    """A state in which nothing runs and so many requests for the second model wait."""
    blocks = [len(model.blocks) for model in given.models]
    row = [*[0.0] * sum(blocks), -waiting / 2, waiting / 2]
    return np.array(row * 2, np.float32)


def test_what_is_over_is_left_alone() -> None:
    """After the end, moments pass at once, time is infinite, and nothing is changed."""
    changes: list[Any] = []
    steps = LiveLauncher(None, [], None, lambda *change: changes.append(change))  # type: ignore[arg-type]
    assert steps.now < math.inf
    steps.stop()
    steps.run_to(1e9)
    steps.change(None, [])  # type: ignore[arg-type]
    assert (steps.now, changes) == (math.inf, [])
