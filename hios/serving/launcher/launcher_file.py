"""Files of trained launchers: safetensors with the actors, what they were trained for, and what came of it."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hios.artifacts import Json, replacing
from hios.errors import ArtifactError, HiosError
from hios.schedulers.policy.perceptron import Array, Perceptron, Weights
from hios.serving.launcher.actions import ActionSpace, LauncherDecision
from hios.serving.launcher.launcher_settings import LauncherSettings
from hios.serving.launcher.observation import squeezed, state_size
from hios.serving.scenario import Scenario

#: The one key of the metadata: several would be written in any order, and equal launchers give equal files.
_KEY = "hios-launcher"


@dataclass(frozen=True)
class Launcher:
    """What was learned.

    Attributes:
        actors: weights of the actors by name; networks of `hios.schedulers.policy.perceptron`.
        space: what their numbers mean.
        settings: of the training.
        static: the best decision among those that were tried, held throughout: what learning has to beat.
        models: labels with the number of operators of every block.
        lanes: of the device; 0: a GPU.
        curve: steps, and goodput a second of the policy on the traces that judge.
        facts: what else is kept: load, comparison on held-out traces, the policy to use.
    """

    actors: Weights
    space: ActionSpace
    settings: LauncherSettings
    static: LauncherDecision
    models: dict[str, list[int]]
    lanes: int
    curve: tuple[tuple[int, float], ...] = ()
    facts: Json = field(default_factory=dict)

    def act(self, states: Array) -> Array:
        """Actions of all agents in rows, in numpy: as ``maddpg.Agents.act``."""
        if self.settings.deviations == "log":
            states = squeezed(states)
        logits = [
            Perceptron(self.actors, f"actor{agent}", last=False)(states) for agent in range(len(self.space.sizes))
        ]
        actions: Array = 1 / (1 + np.exp(-np.concatenate(logits, axis=1)))
        return actions

    def decide(self, state: Array) -> LauncherDecision:
        """What the agents decide in a state."""
        return self.space.decision(self.act(state[None])[0])

    def write(self, path: str | Path) -> None:
        """Write the launcher; equal ones give equal bytes."""
        from safetensors.numpy import save

        facts = {
            **{name: value for name, value in asdict(self).items() if name not in ("actors", "static")},
            "static": {"intervals_s": self.static.intervals_s, "combined": self.static.combined},
        }
        tensors = {name: np.ascontiguousarray(value, np.float32) for name, value in sorted(self.actors.items())}
        with replacing(path) as part:
            part.write_bytes(save(tensors, metadata={_KEY: json.dumps(facts, sort_keys=True)}))

    @classmethod
    def read(cls, path: str | Path) -> Launcher:
        """A launcher from its file.

        Raises:
            ArtifactError: missing, damaged, or not a launcher.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "numpy") as stored:
                metadata = stored.metadata() or {}
                actors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118, no mapping
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be read: {error.strerror or 'no such file'}") from error
        except SafetensorError as error:
            raise ArtifactError(f"{path}: damaged or not a safetensors file ({error}); train it again") from error
        if _KEY not in metadata:
            raise ArtifactError(
                f"{path}: found no launcher; required: a file that hios train --learn launcher wrote, which is not one "
                "of the algorithm gpg"
            )
        try:
            return _of(json.loads(metadata[_KEY]), actors)
        except (HiosError, ValueError, KeyError, TypeError) as error:
            raise ArtifactError(f"{path}: written by another version of hios ({error}); train it again") from error

    def require(self, scenario: Scenario, path: str | Path) -> None:
        """Refuse a scenario that the launcher was not trained for; rates may differ.

        Raises:
            ArtifactError: other models, blocks or device.
        """
        theirs = blocks_of(scenario)
        for what, stated, required in (
            ("models", self.models, theirs),
            ("device", self.lanes, 0 if scenario.gpu else scenario.lanes),
        ):
            if stated != required:
                raise ArtifactError(
                    f"{path}: {what}: found {_shown(stated)}; required by {scenario.source}: {_shown(required)}; train "
                    "a launcher on this scenario (hios train --learn launcher)"
                )


def blocks_of(scenario: Scenario) -> dict[str, list[int]]:
    """Labels of the models with the number of operators of every block."""
    return {model.label: [len(block) for block in model.blocks] for model in scenario.models}


def _shown(value: dict[str, list[int]] | int) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{label} ({len(blocks)} blocks, {sum(blocks)} operators)" for label, blocks in value.items())
    return f"{value} lane(s)" if value else "a GPU"


def _of(facts: dict[str, Any], actors: Weights) -> Launcher:
    static = msgspec.convert(facts["static"], _Static)
    launcher = Launcher(
        actors,
        msgspec.convert(facts["space"], ActionSpace),
        msgspec.convert(facts["settings"], LauncherSettings),
        LauncherDecision(static.intervals_s, static.combined),
        facts["models"],
        facts["lanes"],
        tuple((step, goodput) for step, goodput in facts["curve"]),
        facts["facts"],
    )
    state = state_size(launcher.space.blocks, launcher.settings.samples)
    for agent, size in enumerate(launcher.space.sizes):
        layers = [state, *launcher.settings.policy_layers, size]
        for layer, shape in enumerate(itertools.pairwise(layers)):
            if (own := actors[f"actor{agent}.{layer}.weight"].shape) != shape:
                raise ValueError(f"actor{agent}.{layer}.weight has shape {list(own)}, not {list(shape)}")
    return launcher


class _Static(msgspec.Struct):
    intervals_s: tuple[float, ...]
    combined: tuple[tuple[tuple[int, int], ...], ...]
