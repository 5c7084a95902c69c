"""TOP itself on a scenario: a launcher of MADDPG and stages of GPG, both trained for it; and TOP without one of them.

GPG chooses stages in one pass, as published. Without the launcher, neighboring blocks of a model are combined, and
tasks leave their queues as soon as there is room; without GPG, stages are those of IOS beside each other.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hios.formats.config import TopStudy
from hios.formats.serving_result import ResultFile
from hios.formats.settings import TrainingSettings
from hios.formats.study import NEITHER, NO_GPG, NO_LAUNCHER, TOP
from hios.serving.measures import result
from hios.serving.pipeline import SubBlock
from hios.serving.scenario import Scenario, draw
from hios.serving.simulate import simulate
from hios.serving.top_pipeline import stages_to_learn

if TYPE_CHECKING:
    from hios.serving.launcher.actions import Launcher

ABLATIONS = (NO_LAUNCHER, NO_GPG, NEITHER)
_LEARNS, _GPG = (TOP, NO_GPG), (TOP, NO_LAUNCHER)
#: Tasks that arrive in a step of training, at most; the longest step is that of the size of the training.
_STEP_TASKS = 150
_LEAST_STEP_S = 0.001


class TopItself:
    """TOP and its ablations.

    Policies of GPG are kept for other scenarios that differ in nothing that they are trained on, as in rates; a
    launcher is trained for every scenario, and keeps what is best by its ``objective``, the reward (2) in the paper. A
    context manager, as policies are files.

    Attributes:
        trained_s: processor time of training for what `results` returned last, by system, seconds; of systems with a
            launcher. That of a policy that was kept counts again.
    """

    def __init__(self, study: TopStudy, seed: int = 0) -> None:
        self._study, self._seed = study, seed
        self._folder = tempfile.TemporaryDirectory()
        #: Files of policies, each with what it was trained on and the processor time of that.
        self._policies: list[tuple[tuple[Any, ...], str, float]] = []
        self.trained_s: dict[str, float] = {}

    def __enter__(self) -> TopItself:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def results(self, scenario: Scenario, systems: Iterable[str] = (TOP, *ABLATIONS)) -> dict[str, ResultFile]:
        """What becomes of the tasks under TOP and its ablations, by system."""
        results = {}
        for system in systems:
            given, stages_s = self._with_stages(scenario, system)
            if system in _LEARNS:
                from hios.serving.launcher.online_launcher import OnlineLauncher

                began = time.process_time()
                launcher = self._launcher(given)
                self.trained_s[system] = stages_s + time.process_time() - began
                online = OnlineLauncher(given, launcher)
                outcomes = [online.run(draw(given, repeat)).outcome() for repeat in range(given.file.repeats)]
                results[system] = result(given, TOP, "learned", outcomes, simulated=True)
            else:
                results[system] = simulate(given, TOP)
        return results

    def combined(self, scenario: Scenario) -> Scenario:
        """The scenario with the combined blocks that a launcher learned for it, held, and stages of GPG."""
        given, _ = self._with_stages(scenario, TOP)
        return given.with_top(combined=_stated(given, self._launcher(given).static.combined), most=None)

    def _with_stages(self, scenario: Scenario, system: str) -> tuple[Scenario, float]:
        """The scenario with the stages of a system, and the processor time that training for them took."""
        if system not in _GPG:
            return scenario.with_top(stages="ios", stage_policy=""), 0.0
        path, trained_s = self._policy(scenario)
        return scenario.with_top(stages="gpg", stage_policy=path, stage_passes=1), trained_s

    def _policy(self, scenario: Scenario) -> tuple[str, float]:
        """The file of a policy of GPG for a scenario, which is trained if there is none, and how long that took."""
        from hios.schedulers.policy.network import write_policy
        from hios.schedulers.policy.training import train

        most, plain = scenario.file.top.most or 2, scenario.plain
        models = [(model.label, model.problem.graph, model.costs) for model in scenario.models]
        by = (models, scenario.gpu, scenario.lanes, plain.file.overheads, most)
        for known, path, trained_s in self._policies:
            if known == by:
                return path, trained_s
        began = time.process_time()
        problems, stage_time = stages_to_learn(scenario)
        settings = TrainingSettings(steps=self._study.steps, most=most, seed=self._seed)
        trained = train(problems, settings, None, stage_time)
        path = str(Path(self._folder.name) / f"stages-{len(self._policies)}.safetensors")
        write_policy(path, trained.weights, trained.facts)
        trained_s = time.process_time() - began
        self._policies.append((by, path, trained_s))
        return path, trained_s

    def _launcher(self, scenario: Scenario) -> Launcher:
        from hios.serving.launcher.launcher_settings import settings_of
        from hios.serving.launcher.training import train_launcher

        settings = settings_of(
            self._study.launcher_size,
            {},
            steps=self._study.launcher_steps,
            seed=self._seed,
            device="top",
            most=max(scenario.file.top.most or 2, *map(_most, scenario.file.top.combined or ({},))),
        )
        step_s = min(settings.step_s, _STEP_TASKS / sum(model.rate for model in scenario.models))
        settings = dataclasses.replace(settings, step_s=max(_LEAST_STEP_S, step_s))
        return train_launcher(scenario, settings, compared=False)


def _most(combined: dict[str, tuple[int, ...]]) -> int:
    """Sub-blocks of a combined block; 1 at least."""
    return max(1, sum(map(len, combined.values())))


def _stated(scenario: Scenario, combined: Sequence[Sequence[SubBlock]]) -> tuple[dict[str, tuple[int, ...]], ...]:
    """Combined blocks as a scenario states them."""
    stated = []
    for members in combined:
        by_label: dict[str, tuple[int, ...]] = {}
        for number, block in sorted(members):
            label = scenario.models[number].label
            by_label[label] = (*by_label.get(label, ()), block)
        stated.append(by_label)
    return tuple(stated)
