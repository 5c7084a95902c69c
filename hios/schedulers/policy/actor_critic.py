"""Learning of the policy of GPG: temporal differences (7) and the deterministic policy gradient (8) of TOP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hios.schedulers.policy.network import EMBEDDING, Decision, Embedding, Policy, Structure
from hios.schedulers.policy.perceptron import Adam, Array, Perceptron, Weights, initial

#: Units of the hidden layers of the value network q (TOP section VI-B).
VALUE_LAYERS = (1024, 512, 300)
#: Learning rate of q (TOP section VI-B, for both), that of the policy, and how far the target networks follow in each
#: step. With 0.001 the policy runs into an end of [0, 1) and stays there, before q has learned anything.
RATE, POLICY_RATE, FOLLOW = 0.001, 0.0001, 0.01
#: How strongly actions are kept from the ends of [0, 1), where the gradient of the sigmoid vanishes.
PULL = 1.0
#: Steps in which q learns alone, for the same reason.
WARM_UP = 200


@dataclass(frozen=True, slots=True)
class Step:
    """A step of Algorithm 2: leaves before and after it, m, and the reward; no leaves: nothing is left."""

    leaves: Sequence[int]
    action: float
    reward: float
    next_leaves: Sequence[int]


class Learner:
    """Policy and value network with their target networks.

    Args:
        structure: all operators that steps name.
        weights: of the policy; changed in place.
        gamma: discount of later rewards.
        seed: of the initial value network.
        value_layers: hidden layers of the value network.
        warm_up: steps in which the value network learns alone.
    """

    def __init__(
        self,
        structure: Structure,
        weights: Weights,
        *,
        gamma: float,
        seed: int,
        value_layers: Sequence[int] = VALUE_LAYERS,
        warm_up: int = WARM_UP,
    ) -> None:
        self.structure, self.gamma = structure, gamma
        self._steps, self._warm_up = 0, warm_up
        self.policy = Policy(weights)
        chance = np.random.default_rng(seed)
        self.value_weights = initial("q", (EMBEDDING + 1, *value_layers, 1), chance, self.policy.dtype)
        self._q = Perceptron(self.value_weights, "q", last=False)
        self._target_weights = {name: value.copy() for name, value in weights.items()}
        self._target_policy = Policy(self._target_weights)
        self._target_value_weights = {name: value.copy() for name, value in self.value_weights.items()}
        self._target_q = Perceptron(self._target_value_weights, "q", last=False)
        self._policy_steps = Adam(weights, POLICY_RATE)
        self._value_steps = Adam(self.value_weights, RATE)

    def value(self, z: Array, actions: Array) -> Array:
        """q(z, m), one number a row."""
        values: Array = self._q(_joined(z, actions))[:, 0]
        return values

    def update(self, steps: Sequence[Step]) -> None:
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

    def _targets(self, steps: Sequence[Step]) -> Array:
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

    def policy_gradients(self, embedding: Embedding, decision: Decision, pull: float = 0.0) -> Weights:
        """Mean of grad mu(z) * dq(z, m)/dm at m = mu(z): (8), uphill. z counts as given in q, as in the paper.

        ``pull`` keeps actions away from the ends of [0, 1), as `Policy.gradients` says.
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
