"""The environment of the agents: a scenario in the simulator, one decision a step."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from hios.errors import HiosError
from hios.machine.statistics import Laps
from hios.schedulers.policy.network import Array
from hios.serving.calibration import with_interference, with_jitter_of
from hios.serving.launcher.actions import LauncherDecision, Watched, sampled, state_size
from hios.serving.launcher.launcher_settings import LauncherSettings
from hios.serving.pipeline import Pipeline, queue_rules
from hios.serving.scenario import MOST_TASKS, Scenario, Trace, draw, slos_ms
from hios.serving.simulator import Simulation, StepMeasures
from hios.serving.top_pipeline import TopPipelines

#: Steps after which the device is emptied and other tasks arrive.
EPISODE = 50
#: What rounding may take from a number of steps.
_ROUNDING = 1e-9
#: Traces of training have these numbers and the following ones: no scenario's repeats, nor those that auto holds out.
_FIRST_TRACE = 3_000_000


class Decisions:
    """Pipelines and queues that follow from the decisions of a launcher, whose settings say how the device runs."""

    def __init__(self, scenario: Scenario, settings: LauncherSettings) -> None:
        if settings.stages == "gpg":
            scenario = scenario.with_top(stages="gpg", stage_passes=1)
        self.scenario, self._limited = scenario, settings.admission == "deadline"
        #: The repeat that is simulated, which has jitter of its own.
        self.repeat = 0
        device = settings.device
        self._pipelines = TopPipelines(scenario, shared=device == "top-open" or (device == "any" and not scenario.gpu))

    def pipeline(self, decision: LauncherDecision) -> Pipeline:
        """The combined blocks, with the launcher's intervals."""
        own = with_interference(self._pipelines.of(decision.combined), self.scenario)
        own = with_jitter_of(own, self.repeat)
        return replace(own, intervals_s=decision.intervals_s, in_flight=own.at_once if self._limited else None)

    def begin(self, decision: LauncherDecision, trace: Trace, duration_s: float) -> Simulation:
        """A simulation under a decision."""
        queues = queue_rules(self.scenario, decision.intervals_s)
        return Simulation(self.pipeline(decision), queues, trace, duration_s)

    def change(self, steps: Watched, decision: LauncherDecision, laps: Laps | None = None) -> None:
        """Go on under another decision; ``laps`` is told how long its stages and the exchange of blocks take."""
        laps = laps or Laps()
        pipeline = self.pipeline(decision)
        laps.lap("stages")
        steps.change(pipeline, queue_rules(self.scenario, decision.intervals_s))
        laps.lap("graph")


class LauncherEnvironment:
    """Steps of a scenario, one after another.

    Every ``EPISODE`` steps, or at the end of arrivals from a file, the device is empty again. The first decision holds
    until another one is no superblock. The next step begins in the state ``state``. ``laps`` is told how long stages,
    the exchange of combined blocks and the simulated execution take.

    Raises:
        HiosError: more tasks would arrive in an episode than a scenario may have.
    """

    def __init__(
        self, scenario: Scenario, settings: LauncherSettings, first: LauncherDecision, laps: Laps | None = None
    ) -> None:
        _require_few_tasks(scenario, settings)
        self._settings, self._decision, self._laps = settings, first, laps or Laps()
        self._decisions = Decisions(scenario, settings)
        blocks = [len(model.blocks) for model in scenario.models]
        self._nothing = np.zeros(state_size(blocks, settings.samples), np.float32)
        self._chance = random.Random(f"{settings.seed}/samples")
        #: Steps until the device is empty again: of a file no more than it has.
        self._length = EPISODE
        if scenario.rows is not None:
            self._length = max(1, min(EPISODE, int(scenario.duration_s / settings.step_s + _ROUNDING)))
        self._scenario = scenario.with_settings(duration_s=self._length * settings.step_s)
        self._slos_ms = slos_ms(scenario)
        self._episodes = 0
        self.state = self._nothing
        self._begin()

    def _begin(self) -> None:
        trace = draw(self._scenario, _FIRST_TRACE + self._episodes)
        self._episodes += 1
        self._left = self._length
        self._steps = self._decisions.begin(self._decision, trace, self._scenario.duration_s)
        self.state = self._nothing

    def step(self, decision: LauncherDecision) -> tuple[Array, StepMeasures | None]:
        """Lines 6 to 16 of Algorithm 1: the state that follows, and what the step brought.

        A superblock brings None: nothing runs, and state, intervals and combined blocks stay. After the last step of an
        episode, the attribute ``state`` is that of the next one, in which nothing has happened.
        """
        if decision.largest > self._settings.most:
            return self.state, None
        self._decision = decision
        self._decisions.change(self._steps, decision, self._laps)
        began = self._steps.now
        end = (self._length - self._left + 1) * self._settings.step_s
        after = self.state = sampled(self._steps, end, self._settings.samples, self._chance)
        measures = self._steps.measured(began, self._settings.latency, self._slos_ms)
        self._left -= 1
        if not self._left:
            self._begin()
        self._laps.lap("execution")
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
