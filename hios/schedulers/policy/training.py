"""Training of the policy of GPG on random combinations of the blocks of some networks.

`Learner` is the actor-critic method: temporal differences (7) and the deterministic policy gradient (8) of TOP.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from hios.core.problem import Group, Problem, Stage
from hios.core.sums import add_up
from hios.errors import HiosError
from hios.files.artifacts import Json
from hios.formats.settings import TrainingSettings
from hios.machine.statistics import Laps
from hios.schedulers.policy.endings import (
    CombinedState,
    SubBlock,
    combined,
    combined_problem,
    index_of,
    labels_of,
    model_blocks,
    sub_blocks,
)
from hios.schedulers.policy.network import (
    EMBEDDING,
    Adam,
    Array,
    Embedding,
    GpgPolicy,
    Perceptron,
    StepActions,
    Structure,
    Weights,
    features,
    initial,
    initial_weights,
)

#: Learning rate of q (TOP section VI-B, for both), that of the policy, and how far the target networks follow in each
#: step. With 0.001 the policy runs into an end of [0, 1) and stays there, before q has learned anything.
RATE, POLICY_RATE, FOLLOW = 0.001, 0.0001, 0.01
#: How strongly actions are kept from the ends of [0, 1), where the gradient of the sigmoid vanishes.
PULL = 1.0
#: Steps in which q learns alone, for the same reason.
WARM_UP = 200


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """A step of Algorithm 2: leaves before and after it, m, and the reward; no leaves: nothing is left."""

    leaves: Sequence[int]
    action: float
    reward: float
    next_leaves: Sequence[int]


class Learner:
    """Policy and value network with their target networks.

    ``structure`` has all operators that steps name; ``weights``, those of the policy, change in place. ``gamma`` is the
    discount of later rewards, ``seed`` that of the initial value network, which in ``warm_up`` steps learns alone.
    """

    def __init__(
        self,
        structure: Structure,
        weights: Weights,
        *,
        gamma: float,
        seed: int,
        value_layers: Sequence[int] = TrainingSettings().value_layers,
        warm_up: int = WARM_UP,
    ) -> None:
        self.structure, self.gamma = structure, gamma
        self._steps, self._warm_up = 0, warm_up
        self.policy = GpgPolicy(weights)
        chance = np.random.default_rng(seed)
        self.value_weights = initial("q", (EMBEDDING + 1, *value_layers, 1), chance, self.policy.dtype)
        self._q = Perceptron(self.value_weights, "q", last=False)
        self._target_weights = {name: value.copy() for name, value in weights.items()}
        self._target_policy = GpgPolicy(self._target_weights)
        self._target_value_weights = {name: value.copy() for name, value in self.value_weights.items()}
        self._target_q = Perceptron(self._target_value_weights, "q", last=False)
        self._policy_steps = Adam(weights, POLICY_RATE)
        self._value_steps = Adam(self.value_weights, RATE)

    def value(self, z: Array, actions: Array) -> Array:
        """q(z, m), one number a row."""
        values: Array = self._q(_joined(z, actions))[:, 0]
        return values

    def update(self, steps: Sequence[PlayedStep]) -> None:
        """One step of gradient descent of q and one of ascent of the policy, on a batch of steps."""
        embedding = self.policy.embed(self.structure)
        decision = self.policy.decide(embedding, [step.leaves for step in steps])
        actions = np.array([step.action for step in steps], self.policy.dtype)
        self._value_steps.step(self.value_gradients(decision.z, actions, self._targets(steps)))
        self._steps += 1
        if self._steps > self._warm_up:
            ascent = self.policy_gradients(embedding, decision, PULL)
            self._policy_steps.step({name: -gradient for name, gradient in ascent.items()})
        _follow(self._target_weights, self.policy.weights)
        _follow(self._target_value_weights, self.value_weights)

    def _targets(self, steps: Sequence[PlayedStep]) -> Array:
        """The targets u + gamma q(z', mu(z')) of the target networks; u alone where nothing is left."""
        targets = np.array([step.reward for step in steps], self.policy.dtype)
        going = [number for number, step in enumerate(steps) if step.next_leaves]
        if going:
            embedding = self._target_policy.embed(self.structure)
            after = self._target_policy.decide(embedding, [steps[number].next_leaves for number in going])
            targets[going] += self.gamma * self._target_q(_joined(after.z, after.actions))[:, 0]
        return targets

    def value_gradients(self, z: Array, actions: Array, targets: Array) -> Weights:
        """Mean of delta * grad q(z, m), with delta = q(z, m) - target: (7), downhill."""
        values = self._q.forward(_joined(z, actions))
        gradients: Weights = {}
        self._q.backward(values, (values[-1] - targets[:, None]) / len(targets), gradients)
        return gradients

    def policy_gradients(self, embedding: Embedding, decision: StepActions, pull: float = 0.0) -> Weights:
        """Mean of grad mu(z) * dq(z, m)/dm at m = mu(z): (8), uphill. z counts as given in q, as in the paper.

        ``pull`` keeps actions away from the ends of [0, 1), as `GpgPolicy.gradients` says.
        """
        values = self._q.forward(_joined(decision.z, decision.actions))
        count = len(decision.actions)
        slope = self._q.backward(values, np.full((count, 1), 1 / count, self.policy.dtype), None)[:, -1]
        return self.policy.gradients(embedding, decision, slope, pull / count)


def _joined(z: Array, actions: Array) -> Array:
    return np.concatenate([z, actions[:, None].astype(z.dtype)], axis=1)


def _follow(target: Weights, weights: Weights) -> None:
    for name, value in weights.items():
        target[name] += FOLLOW * (value - target[name])


#: Rewards by name: the paper's exp(-l) with its discount, and minus the share of the sequential time, undiscounted.
REWARDS = {"paper": 0.95, "relative": 1.0}
#: Size of the replay buffer, and steps of a batch from it (as the paper does for MADDPG).
REPLAY, BATCH = 20000, 100
#: Episodes that are played at once between two steps of learning.
_EPISODES = 4
#: Standard deviation of the noise on actions, and share of random ones, at the beginning and at the end.
_NOISE, _RANDOM = (0.2, 0.02), (0.5, 0.05)
#: Combinations that decide which policy is kept, and the steps between these decisions.
_JUDGES, _JUDGED_EVERY = 64, 250


@dataclass(frozen=True)
class Trained:
    """A trained policy, and how it was trained.

    ``weights`` are those of the best policy on the combinations that judge, ``last`` those after the last step;
    ``curve`` has (steps learned, mean latency over the sequential one on these combinations).
    """

    weights: Weights
    last: Weights
    curve: tuple[tuple[int, float], ...]
    settings: TrainingSettings
    models: tuple[str, ...]

    @property
    def facts(self) -> Json:
        """What is saved with the weights, as JSON."""
        return {**msgspec.structs.asdict(self.settings), "models": self.models, "curve": self.curve}


def reward(kind: str, latency_ms: float, sequential_ms: float) -> float:
    """Reward of a stage: exp(-l) with l in milliseconds (paper), or -l over the sequential time of the combination."""
    if kind == "paper":
        return math.exp(-latency_ms)
    return -latency_ms / sequential_ms if sequential_ms else 0.0


#: Time in milliseconds of a stage: of groups, each with the name of its model and numbers of operators of its problem.
StageTime = Callable[[Sequence[tuple[str, Group]]], float]


class Pool:
    """The blocks of all models as one problem, of which combinations are drawn.

    ``stage_time`` says how long stages take, if not `Problem.stage_ms` of the problem.
    """

    def __init__(self, problems: Mapping[str, Problem], r: int, s: int, stage_time: StageTime | None = None) -> None:
        blocks = [
            block
            for label, problem in problems.items()
            for block in model_blocks(label, problem)
            if any(problem.time[v] for v in block.operators)
        ]
        if not blocks:
            raise HiosError("train: found no operator that takes any time; required: at least one")
        self.problem = combined_problem(blocks, one_block=False)
        self._stage_time = stage_time
        #: Of every operator of the problem, the name of its model and its number there.
        self._home = [(block.label, v) for block in blocks for v in block.operators]
        before = [[u for u, _ in row] for row in self.problem.predecessors]
        labels, index, place = labels_of(self.problem), self.problem.graph.index, self.problem.place
        self.blocks: list[list[SubBlock]] = [
            sub_blocks(sorted((index[v] for v in block), key=place.__getitem__), before, labels, r, s)
            for block in self.problem.graph.blocks
        ]
        self.structure = Structure(features(self.problem.graph), before)

    def draw(self, chance: random.Random, most: int) -> CombinedState:
        """A combination of 1 to ``most`` different blocks."""
        count = chance.randint(1, min(most, len(self.blocks)))
        return combined(part for block in chance.sample(self.blocks, count) for part in block)

    def stage_ms(self, stage: Stage) -> float:
        """Time of a stage in milliseconds."""
        if self._stage_time is None:
            return self.problem.stage_ms(stage)
        return self._stage_time([(self._home[group[0]][0], tuple(self._home[v][1] for v in group)) for group in stage])

    def sequential_ms(self, start: CombinedState) -> float:
        """Time of the operators of a combination one after another."""
        operators = (v for state in start.states for v in state.block.operators)
        if self._stage_time is None:
            return add_up(self.problem.time[v] for v in operators)
        return add_up(self.stage_ms(((v,),)) for v in operators)


def train(
    problems: Mapping[str, Problem],
    settings: TrainingSettings,
    progress: Callable[[int, float | None], None] | None = None,
    stage_time: StageTime | None = None,
    laps: Laps | None = None,
) -> Trained:
    """Train a policy on random combinations of the blocks of some models.

    Between two steps of learning, four combinations are played with noise on the actions; each step learns from 100
    steps drawn from the last 20000. Of the policies after every 250 steps the one with the least mean latency over the
    sequential one counts, on 64 combinations drawn beforehand.

    ``problems`` are by the name of the model, all on one platform. ``progress`` is told the number of steps learned,
    and the mean latency where it was taken; ``stage_time`` says how long stages take, if not what the problems say: on
    lanes, say. ``laps`` is told how long the parts of steps take: encoding, decision, endings, execution (the cost
    model's) and update.

    Raises:
        HiosError: no operator takes any time, or the costs have different contention models.
    """
    pool = Pool(problems, settings.r, settings.s, stage_time)
    chance = random.Random(settings.seed)
    judges = [pool.draw(chance, settings.most) for _ in range(_JUDGES)]
    weights = initial_weights(settings.seed)
    learner = Learner(
        pool.structure,
        weights,
        gamma=REWARDS[settings.reward],
        seed=settings.seed + 1,
        value_layers=settings.value_layers,
    )
    kept: list[PlayedStep] = []
    best, best_weights = math.inf, weights
    curve: list[tuple[int, float]] = []
    laps = laps or Laps()
    for step in range(settings.steps + 1):
        judged = None
        if step % _JUDGED_EVERY == 0 or step == settings.steps:
            judged = mean_share(pool, learner.policy, judges)
            curve.append((step, judged))
            if judged < best:
                best, best_weights = judged, {name: value.copy() for name, value in weights.items()}
        if progress is not None:
            progress(step, judged)
        if step < settings.steps:
            laps.lap()
            done = step / settings.steps
            for played in _played(pool, learner.policy, settings, chance, done, laps):
                if len(kept) < REPLAY:
                    kept.append(played)
                else:
                    kept[chance.randrange(REPLAY)] = played
            learner.update([kept[chance.randrange(len(kept))] for _ in range(BATCH)])
            laps.lap("update")
    return Trained(best_weights, weights, tuple(curve), settings, tuple(problems))


def _played(
    pool: Pool, policy: GpgPolicy, settings: TrainingSettings, chance: random.Random, done: float, laps: Laps
) -> Iterator[PlayedStep]:
    """The steps of some episodes on random combinations, with noise on the actions."""
    noise, free = (first + (last - first) * done for first, last in (_NOISE, _RANDOM))
    starts = [pool.draw(chance, settings.most) for _ in range(_EPISODES)]
    sequential = {id(start): pool.sequential_ms(start) for start in starts}
    laps.lap("execution")
    embedding = policy.embed(pool.structure)
    laps.lap("encoding")
    going = [(start, start) for start in starts]
    while going:
        actions = policy.decide(embedding, [state.leaves for _, state in going]).actions
        laps.lap("decision")
        after = []
        for (start, state), planned in zip(going, actions, strict=True):
            action = chance.random() if chance.random() < free else float(planned) + chance.gauss(0.0, noise)
            action = min(max(action, 0.0), 1.0)
            ending = state.ending(index_of(action, state.count))
            left = ending.left
            more = left.count > 0
            laps.lap("endings")
            gained = reward(settings.reward, pool.stage_ms(ending.stage), sequential[id(start)])
            laps.lap("execution")
            yield PlayedStep(state.leaves, action, gained, left.leaves)
            if more:
                after.append((start, left))
        going = after


def mean_share(pool: Pool, policy: GpgPolicy, starts: Sequence[CombinedState]) -> float:
    """Mean latency of the policy's stages over the sequential one, without noise."""
    embedding = policy.embed(pool.structure)
    total = np.zeros(len(starts))
    going = list(enumerate(starts))
    while going:
        actions = policy.decide(embedding, [state.leaves for _, state in going]).actions
        after = []
        for (number, state), action in zip(going, actions, strict=True):
            ending = state.ending(index_of(float(action), state.count))
            total[number] += pool.stage_ms(ending.stage)
            if ending.left.count:
                after.append((number, ending.left))
        going = after
    return float(
        np.mean([time / (pool.sequential_ms(start) or 1.0) for time, start in zip(total, starts, strict=True)])
    )
