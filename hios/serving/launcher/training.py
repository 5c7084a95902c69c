"""Algorithm 1 offline: the agents learn in the simulator, and are compared with what needs no learning."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import torch
from torch import Tensor

from hios.errors import warn
from hios.files.artifacts import Json
from hios.formats.scenario import Objective
from hios.formats.serving_result import ComparedPolicy
from hios.machine.statistics import Laps
from hios.schedulers.policy.network import Array
from hios.serving.launcher.actions import ActionSpace, Launcher, LauncherDecision, blocks_of, squeezed, state_size
from hios.serving.launcher.environment import Decisions, LauncherEnvironment
from hios.serving.launcher.launcher_settings import LauncherSettings
from hios.serving.launcher.maddpg import Agents, Batch, Replay, actor_weights
from hios.serving.launcher.online_launcher import OnlineLauncher
from hios.serving.launcher.rewards import Scores, rewards
from hios.serving.measures import RepeatOutcome, result
from hios.serving.objective import candidate_of, fair_keys, order
from hios.serving.policies import LEARNED, LEARNED_STATIC, POLICIES, combined_blocks
from hios.serving.scenario import Scenario, Trace, draw
from hios.serving.simulate import HELD_OUT, compare, outcomes_of
from hios.serving.simulator import Simulation, StepMeasures
from hios.serving.stage_times import fair_rates, least_works_s

#: Traces on which policies are judged while they learn; those of the comparison at the end are others.
JUDGING = range(2_000_000, 2_000_002)
#: Decisions of the training that are tried as static ones: those with the largest rewards of the launcher.
_TRIED = 24
#: Noise on part of the actions is drawn so often at most, until they are no superblock.
_REDRAWN = 4

#: Is told the number of steps, and the goodput a second where the policy was judged.
Progress = Callable[[int, float | None], None]


class Judge:
    """Compares decisions and launchers by the scenario's objective, on traces that nothing learns from."""

    def __init__(self, scenario: Scenario, settings: LauncherSettings, repeats: Sequence[int] = JUDGING) -> None:
        self.decisions = Decisions(scenario, settings)
        #: Sub-blocks that a combined block may have (H).
        self.most = settings.most
        self._scenario = scenario
        self._traces = {repeat: draw(scenario, repeat) for repeat in repeats}

    def static(self, decision: LauncherDecision) -> ComparedPolicy:
        """How a decision that is held throughout serves the models."""
        return self._judged(LEARNED_STATIC, self.outcomes(decision))

    def online(self, launcher: Launcher) -> ComparedPolicy:
        """How a launcher serves the models."""
        online = OnlineLauncher(self._scenario, launcher, self.decisions)
        return self._judged(LEARNED, [online.run(trace, repeat).outcome() for repeat, trace in self._traces.items()])

    def outcomes(self, decision: LauncherDecision) -> list[RepeatOutcome]:
        """What becomes of the tasks under a decision that is held throughout."""
        return [self._held(decision, trace, repeat).outcome() for repeat, trace in self._traces.items()]

    def best(self, candidates: Sequence[ComparedPolicy], objective: Objective | None = None) -> int:
        """Position of the best of them, by the scenario's objective if None."""
        return order(candidates, objective or self._scenario.file.objective)[0]

    def _held(self, decision: LauncherDecision, trace: Trace, repeat: int) -> Simulation:
        self.decisions.repeat = repeat
        steps = self.decisions.begin(decision, trace, self._scenario.duration_s)
        steps.run_to(self._scenario.duration_s)
        return steps

    def _judged(self, policy: str, outcomes: Sequence[RepeatOutcome]) -> ComparedPolicy:
        return candidate_of(result(self._scenario, policy, LEARNED, outcomes, simulated=True))


def train_launcher(
    scenario: Scenario,
    settings: LauncherSettings,
    progress: Progress | None = None,
    *,
    compared: bool = True,
    laps: Laps | None = None,
) -> Launcher:
    """Train a launcher on a scenario, in the simulator; ``progress`` is told how it goes.

    ``compared``: whether it is then compared with all policies. ``laps`` is told how long the parts of steps take:
    decision, stages, graph, execution (simulated) and update.

    Torch uses one thread meanwhile: sums are added up in the same order on every number of cores, so the same seed
    gives the same launcher.

    Returns:
        The launcher as it was when it was best on the traces that judge. ``facts`` has what all policies achieve on
        held-out traces, best first, and the best of them as ``deployed``.

    Raises:
        HiosError: no pipeline can be made of the scenario.
    """
    if settings.steps < settings.learns_from:
        warn(
            f"steps: found {settings.steps}; actors learn from step {settings.learns_from} on, once the replay buffer "
            f"has {settings.replay} transitions and the critics have learned alone for {settings.alone} steps: this "
            "launcher learns nothing; train it for more steps, or with smaller replay and alone"
        )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        launcher = _Training(scenario, settings, laps).run(progress)
    finally:
        torch.set_num_threads(threads)
    return replace(launcher, facts={**launcher.facts, **comparison(scenario, launcher)}) if compared else launcher


def comparison(scenario: Scenario, launcher: Launcher) -> Json:
    """All policies and what was learned on held-out traces, under the scenario's launcher or all of them if it is auto.

    ``candidates``, best first, as result.json has them; and ``deployed``, the policy of the first.
    """
    online = OnlineLauncher(scenario, launcher)

    def run(name: str, by: str, repeats: Sequence[int]) -> list[RepeatOutcome]:
        if name == LEARNED:
            return online.outcomes(repeats)
        if name == LEARNED_STATIC:
            judge = Judge(scenario, launcher.settings, repeats)
            return judge.outcomes(launcher.static)
        return outcomes_of(scenario, name, by, repeats)

    candidates = compare(scenario, run, [*POLICIES, LEARNED, LEARNED_STATIC])
    shown = [msgspec.to_builtins(entry) for entry in candidates if entry.left_out is None]
    return {"candidates": shown, "deployed": candidates[0].policy, "held_out": list(HELD_OUT)}


class _Training:
    def __init__(self, scenario: Scenario, settings: LauncherSettings, laps: Laps | None = None) -> None:
        self._scenario, self._settings, self._laps = scenario, settings, laps or Laps()
        self._space = space = ActionSpace.of(scenario, settings)
        self._chance = np.random.default_rng([settings.seed, 2])
        first = self._chance.random(space.total) if settings.start == "random" else space.alone()
        self._alone = self._searched = space.decision(space.alone())
        self._environment = LauncherEnvironment(scenario, settings, self._alone, self._laps)
        self._agents = self._from(first)
        state = state_size(space.blocks, settings.samples)
        self._replay = Replay(settings.replay, state, space.total, len(space.blocks) + 2)
        self._judge = Judge(scenario, settings)
        self._scores: Scores | None = None
        self._seen: list[tuple[LauncherDecision, StepMeasures]] = []
        self._random = random.Random(f"{settings.seed}/decisions")
        #: Whether there are parts of [0, 1] enough for all blocks.
        self._distinct = space.parts >= sum(space.blocks)
        self._superblocks = 0

    def run(self, progress: Progress | None) -> Launcher:
        """Lines 2 to 24 of Algorithm 1."""
        settings = self._settings
        judged: list[tuple[Launcher, ComparedPolicy]] = []
        curve: list[tuple[int, float]] = []
        for step in range(settings.steps + 1):
            goodput = None
            if step == settings.steps or (step % settings.judged_every == 0 and (not step or self._replay.full)):
                launcher = self._launcher(self._alone)
                judged.append((launcher, self._judge.online(launcher)))
                goodput = judged[-1][1].goodput_per_s
                curve.append((step, goodput))
            if progress is not None:
                progress(step, goodput)
            if step < settings.steps:
                self._step(step / settings.steps)
        best, value = judged[self._judge.best([own for _, own in judged])]
        static, static_value = self._best_static(best)
        return replace(
            best,
            static=static,
            curve=tuple(curve),
            facts={
                "load": self._scenario.load,
                "superblocks": self._superblocks / settings.steps,
                "judged": {"learned": value.goodput_per_s, "static": static_value.goodput_per_s},
            },
        )

    def _from(self, first: Array) -> Agents:
        """Agents whose first actions are these."""
        space, settings = self._space, self._settings
        state = state_size(space.blocks, settings.samples)
        return Agents(actor_weights(space.sizes, first, state, settings), space.sizes, state, settings)

    def _launcher(self, static: LauncherDecision) -> Launcher:
        given = self._scenario
        lanes = 0 if given.gpu else given.lanes
        return Launcher(self._agents.weights(), self._space, self._settings, static, blocks_of(given), lanes)

    def _step(self, done: float) -> None:
        """Act, carry out, store, learn."""
        self._laps.lap()
        state = self._environment.state
        if self._settings.exploration == "part" and not self._replay.full and self._distinct:
            decision = self._space.drawn(self._random, self._settings.most)
            actions = self._space.numbers(decision)
        else:
            actions = self._noisy(self._agents.act(self._tensor(state[None])).numpy()[0], done)
            decision = self._space.decision(actions)
        self._laps.lap("decision")
        after, measures = self._environment.step(decision)
        self._replay.add(state, actions, None if measures is None else np.array(measures.row), after)
        if measures is None:
            self._superblocks += 1
        else:
            self._seen.append((decision, measures))
        if self._replay.count == self._settings.replay and self._settings.start == "searched":
            # By the reward alone, learning would begin where a model is starved, as waiting in vain is no latency.
            by: Objective | None = "fair" if self._scenario.file.objective == "reward" else None
            self._searched = best_static(self._judge, [self._alone, *self._neighbors(), *self._promising()], by)[0]
            self._agents = self._from(self._space.numbers(self._searched))
        self._laps.lap()
        if self._replay.full:
            self._learn(self._replay.drawn(self._settings.batch, self._chance))
            self._laps.lap("update")

    def _noisy(self, actions: Array, done: float) -> Array:
        settings, count = self._settings, len(actions)
        if settings.exploration == "none":
            return actions
        size = settings.noise_first + (settings.noise_last - settings.noise_first) * done
        noisy = actions
        for _ in range(_REDRAWN if settings.exploration == "part" else 1):
            noise = self._chance.normal(0.0, size, count)
            if settings.exploration == "part":
                noise *= self._chance.random(count) < self._chance.random() ** 2
            noisy = np.clip(actions + noise, 0.0, 1.0).astype(np.float32)
            if self._space.decision(noisy).largest <= settings.most:
                break
        return noisy

    def _learn(self, batch: Batch) -> None:
        self._agents.update(
            self._tensor(batch.states),
            torch.from_numpy(batch.actions),
            torch.from_numpy(self._rewards(batch).astype(np.float32)),
            self._tensor(batch.next_states),
        )

    def _rewards(self, batch: Batch) -> Array:
        """Rewards of transitions, a column for each agent."""
        if self._scores is None or self._settings.scores == "running":
            self._scores = Scores.of(self._replay.measured())
        gained = rewards(self._scores.normalized(batch.measures, self._settings.clip))
        gained[batch.superblock] = 0.0
        return gained

    def _tensor(self, states: Array) -> Tensor:
        """States as the networks take them."""
        values = squeezed(states) if self._settings.deviations == "log" else states
        return torch.from_numpy(np.ascontiguousarray(values, np.float32))

    def _best_static(self, best: Launcher) -> tuple[LauncherDecision, ComparedPolicy]:
        """The best of the promising decisions, those that began, and what the launcher decides first."""
        online = OnlineLauncher(self._scenario, best, self._judge.decisions)
        return best_static(self._judge, [self._alone, self._searched, online.first(), *self._promising()])

    def _neighbors(self) -> list[LauncherDecision]:
        """On a GPU, neighboring blocks combined, 2 to H of them, as random decisions hardly ever have them."""
        plain = self._scenario.with_top(combined=())
        every = [tuple(combined_blocks(plain, size)) for size in range(2, self._settings.most + 1) if plain.gpu]
        return [replace(self._alone, combined=own) for own in every if len(own) <= self._space.parts]

    def _promising(self) -> list[LauncherDecision]:
        return promising(self._scenario, self._seen, self._settings, self._scores)


def promising(
    scenario: Scenario,
    seen: Sequence[tuple[LauncherDecision, StepMeasures]],
    settings: LauncherSettings,
    scores: Scores | None = None,
) -> list[LauncherDecision]:
    """Decisions that were carried out, those whose step was best by the scenario's objective.

    ``seen`` has each with what it brought; ``scores`` normalize the measures of the reward: those of what was seen if
    None.
    """
    if not seen:
        return []
    keys: list[tuple[float, ...]]
    if scenario.file.objective == "reward":
        measures = np.array([own.row for _, own in seen])
        scores = scores or Scores.of(measures)
        keys = [(-reward,) for reward in rewards(scores.normalized(measures, settings.clip))[:, 0].tolist()]
    else:
        good = np.array([own.good for _, own in seen]) / settings.step_s
        if scenario.file.objective == "fair":
            fair = np.array(fair_rates(scenario, [model.rate for model in scenario.models]))
            shares = np.divide(good, fair, out=np.ones_like(good), where=fair > 0)
            work = (good * least_works_s(scenario)).sum(axis=1)
            keys = fair_keys(np.minimum(shares, 1.0).tolist(), work.tolist())
        else:
            keys = [(-own,) for own in good.sum(axis=1).tolist()]
    return [seen[place][0] for place in sorted(range(len(seen)), key=keys.__getitem__)[:_TRIED]]


def best_static(
    judge: Judge, decisions: Sequence[LauncherDecision], objective: Objective | None = None
) -> tuple[LauncherDecision, ComparedPolicy]:
    """The best of some decisions on the traces of a judge, and how it serves; superblocks do not count."""
    allowed = [decision for decision in dict.fromkeys(decisions) if decision.largest <= judge.most]
    judged = [judge.static(decision) for decision in allowed]
    best = judge.best(judged, objective)
    return allowed[best], judged[best]


def random_search(
    scenario: Scenario, settings: LauncherSettings, judge: Judge
) -> tuple[LauncherDecision, ComparedPolicy]:
    """What a search without learning finds with the steps of a training: random decisions, a step each.

    No step is lost on superblocks. The promising decisions are judged, as many as those of a training.
    """
    space = ActionSpace.of(scenario, settings)
    first = space.decision(space.alone())
    environment = LauncherEnvironment(scenario, settings, first)
    chance = random.Random(f"{settings.seed}/search")
    seen = []
    for _ in range(settings.steps):
        decision = space.drawn(chance, settings.most)
        measures = environment.step(decision)[1]
        if measures is not None:
            seen.append((decision, measures))
    return best_static(judge, [first, *promising(scenario, seen, settings)])
