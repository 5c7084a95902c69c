"""Algorithm 1 online: a learned launcher decides, and decides again when the queues require it."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Sequence

import numpy as np

from hios.errors import HiosError
from hios.serving.launcher.actions import Launcher, LauncherDecision, Watched, sampled, state_size
from hios.serving.launcher.environment import Decisions
from hios.serving.measures import RepeatOutcome, variance
from hios.serving.scenario import Scenario, Trace, draw
from hios.serving.simulator import Simulation


def launcher_of(scenario: Scenario) -> Launcher:
    """The launcher that a scenario names; HiosError if there is none, or it was trained for another scenario."""
    if not scenario.file.top.weights:
        raise HiosError(
            f"{scenario.source}: policy learned: needs a launcher that hios train --learn launcher wrote; name it as "
            "top.weights or with --weights"
        )
    path = scenario.folder / scenario.file.top.weights
    launcher = _read(str(path), path.stat().st_mtime_ns if path.exists() else 0)
    launcher.require(scenario, path)
    return launcher


@functools.lru_cache(maxsize=4)
def _read(path: str, changed_ns: int) -> Launcher:
    return Launcher.read(path)


class OnlineLauncher:
    """A learned launcher on a scenario, simulated or real.

    It decides at the beginning, and looks at the queues after every step of the length that it was trained with. Where
    their variance is above T, or tasks have waited too long, it decides anew from samples of this step. A superblock
    changes nothing. ``decisions`` are made before, for the same scenario; others if None.
    """

    def __init__(self, scenario: Scenario, launcher: Launcher, decisions: Decisions | None = None) -> None:
        self._scenario, self._launcher, self._settings = scenario, launcher, launcher.settings
        self._decisions = decisions or Decisions(scenario, launcher.settings)
        #: Decisions that were made in the last run, the first one included.
        self.made = 0

    @property
    def most(self) -> int:
        """Sub-blocks that a combined block has at most, whatever is decided."""
        return max(self._settings.most, self._launcher.static.largest)

    def first(self) -> LauncherDecision:
        """The decision for an empty device; the static one if that is a superblock."""
        blocks = [len(model.blocks) for model in self._scenario.models]
        decision = self._launcher.decide(np.zeros(state_size(blocks, self._settings.samples), np.float32))
        return decision if decision.largest <= self._settings.most else self._launcher.static

    def run(self, trace: Trace, repeat: int = 0) -> Simulation:
        """One repeat, at its end."""
        self._decisions.repeat = repeat
        duration_s, first = self._scenario.duration_s, self.first()
        steps = self._decisions.begin(first, trace, duration_s)
        self.follow(steps, first, duration_s)
        return steps

    def follow(self, steps: Watched, first: LauncherDecision, until_s: float = math.inf) -> None:
        """Decide for a device up to a moment, or until it is over: it is looked at after every step.

        ``steps`` is a simulation or a server at its beginning, where the decision ``first`` holds.
        """
        decision, length_s = first, self._settings.step_s
        self.made = 1
        chance = random.Random(f"{self._scenario.file.seed}/online")
        while (now := steps.now) < until_s:
            state = sampled(steps, min(until_s, now + length_s), self._settings.samples, chance)
            if not self._due(steps):
                continue
            after = self._launcher.decide(state)
            self.made += 1
            if after != decision and after.largest <= self._settings.most:
                decision = after
                self._decisions.change(steps, decision)

    def outcomes(self, repeats: Sequence[int]) -> list[RepeatOutcome]:
        """Several repeats."""
        return [self.run(draw(self._scenario, repeat), repeat).outcome() for repeat in repeats]

    def _due(self, steps: Watched) -> bool:
        """Whether the queues ask for another decision (line 30 of Algorithm 1)."""
        if variance(steps.lengths()) > self._settings.variance:
            return True
        return self._settings.wait_ms > 0 and 1e3 * steps.waits_s() > self._settings.wait_ms
