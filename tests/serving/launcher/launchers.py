"""Launchers that decide what a test wants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hios.schedulers.policy.network import Weights
from hios.serving.launcher.actions import ActionSpace, Launcher, LauncherDecision, blocks_of, state_size
from hios.serving.launcher.launcher_settings import LauncherSettings
from hios.serving.scenario import Scenario
from tests.serving.scenarios import scenario, served


def two_models(left_rate: float = 60.0, **settings: Any) -> Scenario:
    """A scenario of two models, of two blocks and of one."""
    left = served("left", [[2.0, 2.0], [3.0]], left_rate, slo_ms=50.0)
    right = served("right", [[1.0]], 100.0, slo_ms=50.0)
    return scenario(left, right, **{"lanes": 2, "duration_s": 4.0, **settings})


def deciding(given: Scenario, actions: list[float], static: LauncherDecision | None = None, **changes: Any) -> Launcher:
    """A launcher that decides the same in all states: actions of all agents one after another."""
    settings = LauncherSettings(**{"samples": 2, "step_s": 0.5, "policy_layers": (3,), **changes})
    space = ActionSpace.of(given, settings)
    weights: Weights = {}
    begin = 0
    for agent, size in enumerate(space.sizes):
        own = np.clip(np.array(actions[begin : begin + size], np.float32), 1e-6, 1 - 1e-6)
        begin += size
        state = state_size(space.blocks, settings.samples)
        weights[f"actor{agent}.0.weight"] = np.zeros((state, 3), np.float32)
        weights[f"actor{agent}.0.bias"] = np.zeros(3, np.float32)
        weights[f"actor{agent}.1.weight"] = np.zeros((3, size), np.float32)
        weights[f"actor{agent}.1.bias"] = np.log(own / (1 - own))
    lanes = 0 if given.gpu else given.lanes
    static = static or space.decision(space.alone())
    return Launcher(weights, space, settings, static, blocks_of(given), lanes)


def with_launcher(given: Scenario, folder: Path, actions: list[float], **changes: Any) -> Scenario:
    """The scenario with the file of such a launcher."""
    path = folder / "launcher.safetensors"
    deciding(given, actions, **changes).write(path)
    return given.with_launcher(path)
