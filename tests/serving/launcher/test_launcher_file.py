"""Files of launchers: inference without torch, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from hios.errors import ArtifactError
from hios.schedulers.policy.network import initial_weights, read_policy, write_policy
from hios.serving.launcher.actions import ActionSpace, Launcher, blocks_of, squeezed, state_size
from hios.serving.launcher.launcher_settings import LauncherSettings
from hios.serving.launcher.maddpg import Agents, actor_weights
from tests.serving.launcher.launchers import deciding, two_models
from tests.serving.scenarios import scenario, served


@pytest.mark.parametrize("deviations", ["log", "raw"])
def test_numpy_does_what_torch_does(deviations: str, tmp_path: Path) -> None:
    """The actions of the file's networks are those of the networks that learned, also far from the beginning."""
    given, settings = two_models(), LauncherSettings(deviations=deviations)  # type: ignore[arg-type]
    space = ActionSpace.of(given, settings)
    size = state_size(space.blocks, settings.samples)
    chance = np.random.default_rng(0)
    actors = actor_weights(space.sizes, space.alone(), size, settings)
    actors = {name: value + chance.normal(0, 0.1, value.shape).astype(np.float32) for name, value in actors.items()}
    agents = Agents(actors, space.sizes, size, settings)
    Launcher(agents.weights(), space, settings, space.decision(space.alone()), blocks_of(given), 2).write(
        tmp_path / "l"
    )
    states = chance.normal(0, 5, (50, size)).astype(np.float32)
    seen = squeezed(states) if deviations == "log" else states
    expected = agents.act(torch.from_numpy(seen)).numpy()
    assert np.ptp(expected, axis=0).min() > 0.05  # actions depend on the state
    assert np.abs(Launcher.read(tmp_path / "l").act(states) - expected).max() < 1e-5


def test_equal_launchers_give_equal_bytes(tmp_path: Path) -> None:
    """And reading gives what was written."""
    launcher = deciding(two_models(), [0.5] * 5)
    for name in ("one", "two"):
        launcher.write(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    kept = Launcher.read(tmp_path / "one")
    assert (kept.space, kept.settings, kept.static, kept.models) == (
        launcher.space,
        launcher.settings,
        launcher.static,
        launcher.models,
    )


def test_launchers_of_other_scenarios_are_refused() -> None:
    """Other models, blocks or lanes: one line that says which; other rates are fine."""
    launcher = deciding(two_models(), [0.5] * 5)
    launcher.require(two_models(left_rate=90.0), "l")
    other = scenario(served("left", [[1.0]], 1.0), served("right", [[1.0]], 1.0))
    for given, message in (
        (
            other,
            "l: models: found left (2 blocks, 3 operators), right (1 blocks, 1 operators); required by scenario: left",
        ),
        (two_models(lanes=3), "l: device: found 2 lane(s); required by scenario: 3 lane(s)"),
        (two_models(gpu=True, lanes=1), "l: device: found 2 lane(s); required by scenario: a GPU"),
    ):
        with pytest.raises(ArtifactError, match=re.escape(message)) as refused:
            launcher.require(given, "l")
        assert "hios train --learn launcher" in str(refused.value)


def test_what_is_no_launcher_is_refused(tmp_path: Path) -> None:
    """A missing file, a damaged one, a policy of gpg, networks of other sizes; and gpg refuses a launcher."""
    given = two_models()
    launcher = deciding(given, [0.5] * 5)
    launcher.write(tmp_path / "whole")
    (tmp_path / "cut").write_bytes((tmp_path / "whole").read_bytes()[:-10])
    write_policy(tmp_path / "policy", initial_weights(0), {})
    launcher.actors["actor1.1.weight"] = np.zeros((3, 7), np.float32)
    launcher.write(tmp_path / "shapes")
    for name, message in (
        ("none", "cannot be read: No such file or directory"),
        ("cut", "damaged or not a safetensors file"),
        ("policy", "found no launcher; required: a file that hios train --learn launcher wrote"),
        ("shapes", r"written by another version of hios \(actor1.1.weight has shape \[3, 7\], not \[3, 2\]\)"),
    ):
        with pytest.raises(ArtifactError, match=message):
            Launcher.read(tmp_path / name)
    with pytest.raises(ArtifactError, match="train it again"):
        read_policy(tmp_path / "whole")
