"""MADDPG in torch: an actor and a critic for every agent, with target networks, and what they learn from; TOP (3), (4).

Lowe et al.: Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments (NeurIPS 2017). Every critic sees
the state and the actions of all agents, every actor the state, which all agents share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hios.errors import HiosError
from hios.schedulers.policy.network import Array, Weights, initial
from hios.serving.launcher.actions import bounds
from hios.serving.launcher.launcher_settings import LauncherSettings

#: Beyond this, the input of the last sigmoid of an actor is pulled back (``LauncherSettings.pull``): its gradient would
#: vanish. An action of 0.011 is within it.
_FAR = 4.5
#: Weights of the last layer of an actor in the beginning, over those of other layers (DDPG has 3e-3): the first policy
#: says the same in all states.
_FIRST_LAST = 0.01
_EDGE = 1e-3


class TorchPerceptron:
    """The network of ``network.Perceptron`` in torch: ReLU after each layer but the last.

    Weights are by ``NAME.LAYER.weight`` (inputs x outputs) and ``.bias``.
    """

    def __init__(self, weights: Weights, name: str) -> None:
        self._keys = [key for key in weights if key.startswith(f"{name}.")]
        self.parameters = [torch.from_numpy(weights[key].copy()).requires_grad_() for key in self._keys]

    def __call__(self, x: Tensor) -> Tensor:
        """The output of the last layer."""
        for place in range(0, len(self.parameters), 2):
            x = torch.addmm(self.parameters[place + 1], x, self.parameters[place])
            if place + 2 < len(self.parameters):
                x = torch.relu(x)
        return x

    @torch.no_grad()
    def follow(self, other: TorchPerceptron, share: float) -> None:
        """Move towards another network of the same sizes."""
        torch._foreach_lerp_(self.parameters, other.parameters, share)

    def weights(self) -> Weights:
        """By name."""
        own = (parameter.detach().numpy().copy() for parameter in self.parameters)
        return dict(zip(self._keys, own, strict=True))


def actor_weights(sizes: Sequence[int], first: Array, state: int, settings: LauncherSettings) -> Weights:
    """Actors that give nearly the same actions in every state: ``first``, of all agents one after another.

    ``sizes`` says how many numbers every agent has, ``state`` how many a state has.
    """
    chance = np.random.default_rng([settings.seed, 0])
    weights: Weights = {}
    for agent, (begin, end) in enumerate(bounds(sizes)):
        layers = (state, *settings.policy_layers, end - begin)
        weights |= initial(f"actor{agent}", layers, chance, np.float32)
        last = f"actor{agent}.{len(layers) - 2}"
        wanted = np.clip(first[begin:end], _EDGE, 1 - _EDGE)
        weights[f"{last}.weight"] *= _FIRST_LAST
        weights[f"{last}.bias"] = np.log(wanted / (1 - wanted)).astype(np.float32)
    return weights


class Agents:
    """Actors and critics of all agents with their target networks, and how they learn.

    The actors have weights as `actor_weights` names them; ``sizes`` says how many numbers every agent has, ``state``
    how many a state has.
    """

    def __init__(
        self, actors: Weights, sizes: Sequence[int], state: int, settings: LauncherSettings, dtype: type = np.float32
    ) -> None:
        self._settings, self._bounds, self._updates = settings, bounds(sizes), 0
        chance = np.random.default_rng([settings.seed, 1])
        weights: Weights = {key: value.astype(dtype) for key, value in actors.items()}
        for agent in range(len(sizes)):
            layers = (state + sum(sizes), *settings.value_layers, 1)
            weights |= initial(f"critic{agent}", layers, chance, dtype)
        agents = range(len(sizes))
        self.actors = [TorchPerceptron(weights, f"actor{agent}") for agent in agents]
        self.critics = [TorchPerceptron(weights, f"critic{agent}") for agent in agents]
        self._target_actors = [TorchPerceptron(weights, f"actor{agent}") for agent in agents]
        self._target_critics = [TorchPerceptron(weights, f"critic{agent}") for agent in agents]
        self._critic_steps = [torch.optim.Adam(own.parameters, settings.rate) for own in self.critics]
        self._actor_steps = [torch.optim.Adam(own.parameters, settings.policy_rate) for own in self.actors]

    @torch.no_grad()
    def act(self, states: Tensor) -> Tensor:
        """Actions of all agents, one agent after another, in rows."""
        return _actions(self.actors, states)

    def weights(self) -> Weights:
        """Of the actors."""
        return {key: value for actor in self.actors for key, value in actor.weights().items()}

    def update(self, states: Tensor, actions: Tensor, rewards: Tensor, next_states: Tensor) -> None:
        """One step of every critic and, after the first ones, of every actor.

        A row for each transition: the state, the actions and rewards of all agents, and the state that followed.
        """
        targets = self.targets(rewards, next_states)
        for agent, step in enumerate(self._critic_steps):
            _descend(step, self.critics[agent], self.critic_loss(agent, states, actions, targets[:, agent]))
        if self._updates >= self._settings.alone:
            for agent, step in enumerate(self._actor_steps):
                _descend(step, self.actors[agent], self.actor_loss(agent, states, actions))
        self._updates += 1
        for target, own in zip(
            [*self._target_actors, *self._target_critics], [*self.actors, *self.critics], strict=True
        ):
            target.follow(own, self._settings.follow)

    @torch.no_grad()
    def targets(self, rewards: Tensor, next_states: Tensor) -> Tensor:
        """The y of (3): r^i + gamma Q'^i(s_t, rho'(s_t)), a column for each agent."""
        joined = torch.cat([next_states, _actions(self._target_actors, next_states)], dim=1)
        after = torch.cat([critic(joined) for critic in self._target_critics], dim=1)
        return rewards + self._settings.gamma * after

    def critic_loss(self, agent: int, states: Tensor, actions: Tensor, targets: Tensor) -> Tensor:
        """Half the mean square of the TD error, whose gradient is (Q - y) grad Q; as printed, y grad Q."""
        values = self.critics[agent](torch.cat([states, actions], dim=1))[:, 0]
        if self._settings.update == "printed":
            return (targets * values).mean()
        return 0.5 * (values - targets).square().mean()

    def actor_loss(self, agent: int, states: Tensor, actions: Tensor) -> Tensor:
        """Minus the mean of Q^i with the agent's own action from its policy (4), those of others from the replay.

        The setting ``pull`` adds what keeps actions from the ends of [0, 1].
        """
        begin, end = self._bounds[agent]
        logits = self.actors[agent](states)
        own = torch.sigmoid(logits)
        joined = torch.cat([states, actions[:, :begin], own, actions[:, end:]], dim=1)
        value = self.critics[agent](joined).mean()
        if not self._settings.pull:
            return -value
        far = torch.relu(logits.abs() - _FAR).square().mean()
        return self._settings.pull * far - value


def _actions(actors: Sequence[TorchPerceptron], states: Tensor) -> Tensor:
    return torch.cat([torch.sigmoid(actor(states)) for actor in actors], dim=1)


def _descend(step: torch.optim.Optimizer, network: TorchPerceptron, loss: Tensor) -> None:
    """Downhill for one network alone: gradients with respect to others are not computed."""
    for parameter, gradient in zip(network.parameters, torch.autograd.grad(loss, network.parameters), strict=True):
        parameter.grad = gradient
    step.step()


#: Memory that transitions may take.
_MOST_BYTES = 4 * 10**9


class Batch(NamedTuple):
    """Transitions in rows. Measures are kept, not rewards: those follow from frozen scores."""

    states: Array
    actions: Array
    measures: Array
    superblock: npt.NDArray[np.bool_]
    next_states: Array


class Replay:
    """The last transitions: so many, of so many numbers of a state, of the actions of all agents, and of measures.

    Raises:
        HiosError: they would take too much memory.
    """

    def __init__(self, capacity: int, state: int, actions: int, measures: int) -> None:
        row_bytes = 4 * (2 * state + actions) + 8 * measures + 1
        if capacity * row_bytes > _MOST_BYTES:
            raise HiosError(
                f"replay: found {capacity}, with {state} numbers in a state; allowed: at most "
                f"{_MOST_BYTES // row_bytes}, which take {_MOST_BYTES / 1e9:g} GB"
            )
        self.capacity, self.count = capacity, 0
        self._rows = Batch(
            np.zeros((capacity, state), np.float32),
            np.zeros((capacity, actions), np.float32),
            np.zeros((capacity, measures)),
            np.zeros(capacity, np.bool_),
            np.zeros((capacity, state), np.float32),
        )

    def __len__(self) -> int:
        return min(self.count, self.capacity)

    @property
    def full(self) -> bool:
        """Whether as many transitions have been added as it keeps."""
        return self.count >= self.capacity

    def add(self, state: Array, actions: Array, measures: Array | None, next_state: Array) -> None:
        """Add a transition, in place of the oldest where it is full; no measures: a superblock."""
        place = self.count % self.capacity
        self._rows.states[place], self._rows.actions[place] = state, actions
        self._rows.superblock[place] = measures is None
        self._rows.measures[place] = 0.0 if measures is None else measures
        self._rows.next_states[place] = next_state
        self.count += 1

    def drawn(self, count: int, chance: np.random.Generator) -> Batch:
        """Random transitions, some perhaps more than once."""
        rows = chance.integers(0, len(self), count)
        return Batch._make(own[rows] for own in self._rows)

    def measured(self) -> Array:
        """Measures of all steps that were no superblocks."""
        measures: Array = self._rows.measures[: len(self)][~self._rows.superblock[: len(self)]]
        return measures
