"""The environment of the agents: a scenario in the simulator, one decision a step.

The rewards (2) of TOP, of measures that are normalized by mean and standard deviation.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from hios.errors import HiosError
from hios.schedulers.policy.network import Array
from hios.serving.calibration import with_interference
from hios.serving.launcher.actions import LauncherDecision, Watched, sampled, state_size
from hios.serving.launcher.launcher_settings import LauncherSettings
from hios.serving.pipeline import Pipeline, queue_rules
from hios.serving.scenario import MOST_TASKS, Scenario, Trace, draw
from hios.serving.simulator import Simulation, StepMeasures
from hios.serving.top_pipeline import TopPipelines

#: Weights a, b and c of utilisation, latency and variance (TOP, section VI-B).
WEIGHTS = (0.4, 0.4, 0.2)
#: A larger exponent counts as this, so that rewards are numbers that single precision has.
_LARGEST = 80.0


def measures_row(measures: StepMeasures) -> list[float]:
    """Utilisation, latency of every model, variance."""
    return [measures.utilisation, *measures.latencies_ms, measures.variance]


@dataclass(frozen=True)
class Scores:
    """Mean and standard deviation of every measure."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, rows: Array) -> Scores:
        """Those of steps that were carried out, a row each; a measure that never changes has a deviation of 1."""
        if not len(rows):
            return cls(np.zeros(rows.shape[1]), np.ones(rows.shape[1]))
        deviation = rows.std(axis=0)
        return cls(rows.mean(axis=0), np.where(deviation > 0, deviation, 1.0))

    def normalized(self, rows: Array, clip: float) -> Array:
        """Z-scores, of at most ``clip`` in size; 0: no limit."""
        scores: Array = (rows - self.mean) / self.deviation
        return np.clip(scores, -clip, clip) if clip else scores


def rewards(scores: Array) -> Array:
    """The rewards of all agents, of z-scores (utilisation, latency of every model, variance) in rows.

    r^0 = exp(a xi - b mean_j l_j - c sigma) for the launcher, r^i = exp(a xi - b l_i - c sigma) for model i.
    """
    a, b, c = WEIGHTS
    utilisation, latencies, variance = scores[:, :1], scores[:, 1:-1], scores[:, -1:]
    own = np.concatenate([latencies.mean(axis=1, keepdims=True), latencies], axis=1)
    values: Array = np.exp(np.minimum(a * utilisation - b * own - c * variance, _LARGEST))
    return values


#: Steps after which the device is emptied and other tasks arrive.
EPISODE = 50
#: Traces of training have these numbers and the following ones: no scenario's repeats, nor those that auto holds out.
_FIRST_TRACE = 3_000_000


class Decisions:
    """Pipelines and queues that follow from the decisions of a launcher, whose settings say how the device runs."""

    def __init__(self, scenario: Scenario, settings: LauncherSettings) -> None:
        self.scenario, self._limited = scenario, settings.admission == "deadline"
        device = settings.device
        self._pipelines = TopPipelines(scenario, shared=device == "top-open" or (device == "any" and not scenario.gpu))

    def pipeline(self, decision: LauncherDecision) -> Pipeline:
        """The combined blocks, with the launcher's intervals."""
        own = with_interference(self._pipelines.of(decision.combined), self.scenario)
        return replace(own, intervals_s=decision.intervals_s, in_flight=own.at_once if self._limited else None)

    def begin(self, decision: LauncherDecision, trace: Trace, duration_s: float) -> Simulation:
        """A simulation under a decision."""
        queues = queue_rules(self.scenario, decision.intervals_s)
        return Simulation(self.pipeline(decision), queues, trace, duration_s)

    def change(self, steps: Watched, decision: LauncherDecision) -> None:
        """Go on under another decision."""
        steps.change(self.pipeline(decision), queue_rules(self.scenario, decision.intervals_s))


class LauncherEnvironment:
    """Steps of a scenario, one after another; every ``EPISODE`` steps the device is empty again.

    The first decision holds until another one is no superblock. The next step begins in the state ``state``.

    Raises:
        HiosError: more tasks would arrive in an episode than a scenario may have.
    """

    def __init__(self, scenario: Scenario, settings: LauncherSettings, first: LauncherDecision) -> None:
        _require_few_tasks(scenario, settings)
        self._settings, self._decision = settings, first
        self._decisions = Decisions(scenario, settings)
        blocks = [len(model.blocks) for model in scenario.models]
        self._nothing = np.zeros(state_size(blocks, settings.samples), np.float32)
        self._chance = random.Random(f"{settings.seed}/samples")
        file = msgspec.structs.replace(scenario.file, duration_s=EPISODE * settings.step_s)
        self._scenario = replace(scenario, file=file)
        self._episodes = 0
        self.state = self._nothing
        self._begin()

    def _begin(self) -> None:
        trace = draw(self._scenario, _FIRST_TRACE + self._episodes)
        self._episodes += 1
        self._left = EPISODE
        self._steps = self._decisions.begin(self._decision, trace, self._scenario.duration_s)
        self.state = self._nothing

    def step(self, decision: LauncherDecision) -> tuple[Array, Sequence[float] | None]:
        """Lines 6 to 16 of Algorithm 1: the state that follows, and what the step brought.

        A superblock brings None: nothing runs, and state, intervals and combined blocks stay. After the last step of an
        episode, the attribute ``state`` is that of the next one, in which nothing has happened.
        """
        if decision.largest > self._settings.most:
            return self.state, None
        self._decision = decision
        self._decisions.change(self._steps, decision)
        began = self._steps.now
        end = (EPISODE - self._left + 1) * self._settings.step_s
        after = self.state = sampled(self._steps, end, self._settings.samples, self._chance)
        measures = measures_row(self._steps.measured(began, self._settings.latency))
        self._left -= 1
        if not self._left:
            self._begin()
        return after, measures


def _require_few_tasks(scenario: Scenario, settings: LauncherSettings) -> None:
    """Refuse steps so long that the tasks of an episode would fill the memory; those of a file are given."""
    if scenario.rows is not None:
        return
    label, rate = max(((model.label, model.rate) for model in scenario.models), key=lambda entry: entry[1])
    if rate * EPISODE * settings.step_s > MOST_TASKS:
        raise HiosError(
            f"step_s: found {settings.step_s:g} with {rate:g} tasks/s of {label}; allowed: at most "
            f"{MOST_TASKS / (rate * EPISODE):.3g}, as {EPISODE} steps may have {MOST_TASKS:,} tasks of a model"
        )
