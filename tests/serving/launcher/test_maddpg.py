"""Actors and critics: gradients, targets, and a game whose best actions are known; the replay buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hios.serving.launcher.launcher_settings import LauncherSettings
from hios.serving.launcher.maddpg import Agents, Replay, actor_weights

_SIZES, _STATE = (2, 1, 3), 4


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """With several threads, waiting for each other would take longer than networks as small as these."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _agents(dtype: type = np.float64, first: Any = None, **changes: Any) -> Agents:
    settings = LauncherSettings(**{"value_layers": (8, 6), "policy_layers": (5,), "alone": 0, **changes})
    middle = np.full(sum(_SIZES), 0.4) if first is None else first
    return Agents(actor_weights(_SIZES, middle, _STATE, settings), _SIZES, _STATE, settings, dtype)


def _batch(count: int = 7) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    chance = np.random.default_rng(3)
    sizes = (_STATE, sum(_SIZES), len(_SIZES), _STATE)
    states, actions, rewards, after = (torch.from_numpy(chance.random((count, size))) for size in sizes)
    return states, actions, rewards, after


def _finite_differences(parameter: Tensor, loss: Any, place: tuple[int, ...]) -> float:
    with torch.no_grad():
        kept, sides = float(parameter[place]), []
        for step in (1e-6, -1e-6):
            parameter[place] = kept + step
            sides.append(float(loss()))
        parameter[place] = kept
    return (sides[0] - sides[1]) / 2e-6


@pytest.mark.parametrize("what", ["critic", "actor"])
def test_gradients_by_finite_differences(what: str) -> None:
    """Gradients of (3) and (4) with respect to the weights of every layer."""
    agents, (states, actions, rewards, after) = _agents(), _batch()
    targets = agents.targets(rewards, after)
    for agent in range(len(_SIZES)):
        network = (agents.critics if what == "critic" else agents.actors)[agent]

        def loss(agent: int = agent) -> Tensor:
            if what == "critic":
                return agents.critic_loss(agent, states, actions, targets[:, agent])
            return agents.actor_loss(agent, states, actions)

        gradients = torch.autograd.grad(loss(), network.parameters)
        for parameter, gradient in zip(network.parameters, gradients, strict=True):
            place = (0,) * parameter.ndim
            assert _finite_differences(parameter, loss, place) == pytest.approx(float(gradient[place]), abs=1e-7)


def test_targets_and_critic_by_hand() -> None:
    """With y = r + gamma Q'(s', rho'(s')), every critic sees all actions; the loss is half a mean square."""
    agents, (states, actions, rewards, after) = _agents(), _batch()
    joined = torch.cat([after, agents.act(after)], dim=1)  # targets begin as copies
    targets = agents.targets(rewards, after)
    for agent, critic in enumerate(agents.critics):
        assert torch.allclose(targets[:, agent], rewards[:, agent] + 0.95 * critic(joined)[:, 0])
        errors = critic(torch.cat([states, actions], dim=1))[:, 0] - targets[:, agent]
        loss = agents.critic_loss(agent, states, actions, targets[:, agent])
        assert torch.allclose(loss, (errors**2).mean() / 2)


def test_printed_update_moves_by_y_alone() -> None:
    """(3) as printed: the gradient is the mean of y grad Q, whatever Q is."""
    agents, (states, actions, rewards, after) = _agents(update="printed"), _batch()
    targets = agents.targets(rewards, after)
    critic = agents.critics[0]
    gradients = torch.autograd.grad(agents.critic_loss(0, states, actions, targets[:, 0]), critic.parameters)
    values = critic(torch.cat([states, actions], dim=1))[:, 0]
    expected = torch.autograd.grad((targets[:, 0] * values).mean(), critic.parameters)
    assert all(torch.allclose(own, other) for own, other in zip(gradients, expected, strict=True))
    # Targets above 0 drive Q down, step after step, where the TD error finds the rewards.
    means = {}
    for update in ("printed", "error"):
        agents = _agents(update=update, gamma=0.0, policy_rate=0.0, rate=0.01)
        for _ in range(100):
            agents.update(states, actions, rewards, after)
        means[update] = float(agents.critics[0](torch.cat([states, actions], dim=1)).mean().detach())
    assert means["printed"] < -1
    assert means["error"] == pytest.approx(float(rewards[:, 0].mean()), abs=0.1)


def test_as_printed_nothing_but_the_value_moves_actors() -> None:
    """With ``pull`` 0 the loss is minus the mean of Q^i, also at the ends of [0, 1]; else there it is larger."""
    states, actions, _, _ = _batch()
    far = np.full(sum(_SIZES), 0.9999)
    losses = {pull: _agents(first=far, pull=pull).actor_loss(0, states, actions) for pull in (0.0, 1.0, 2.0)}
    agents = _agents(first=far)
    own = agents.act(states)[:, : _SIZES[0]]
    value = agents.critics[0](torch.cat([states, own, actions[:, _SIZES[0] :]], dim=1)).mean()
    assert torch.allclose(losses[0.0], -value)
    assert losses[1.0] > losses[0.0]
    assert torch.allclose(losses[2.0] - losses[0.0], 2 * (losses[1.0] - losses[0.0]))


def test_first_actions() -> None:
    """The first policy says nearly the same in every state, what it was made for."""
    first = np.linspace(0.05, 0.95, sum(_SIZES))
    actions = _agents(first=first).act(_batch()[0]).numpy()
    assert np.abs(actions - first).max() < 0.02


def test_targets_follow() -> None:
    """Target networks move by a share of the difference; with 1 there are none."""
    for follow, same in ((0.01, False), (1.0, True)):
        agents, (states, actions, rewards, after) = _agents(follow=follow, rate=0.1), _batch()
        agents.update(states, actions, rewards, after)
        joined = torch.cat([after, agents.act(after)], dim=1)
        expected = rewards[:, 0] + 0.95 * agents.critics[0](joined)[:, 0]
        assert torch.allclose(agents.targets(rewards, after)[:, 0], expected, atol=1e-9) is same


def test_actors_wait_for_the_critics() -> None:
    """In the first steps the critics learn alone."""
    agents, batch = _agents(alone=2), _batch()
    first = agents.weights()
    for step in range(3):
        agents.update(*batch)
        same = all((agents.weights()[name] == value).all() for name, value in first.items())
        assert same is (step < 2)


@pytest.mark.slow
def test_a_game_of_one_state_is_solved() -> None:
    """Each agent's reward falls with the distance of its actions from known ones: the actors find them."""
    best = np.array([0.2, 0.8, 0.5, 0.1, 0.65, 0.9])
    home = np.repeat(np.arange(3), _SIZES)
    settings: dict[str, Any] = {"value_layers": (32, 32), "policy_layers": (16,), "gamma": 0.0, "rate": 0.01}
    agents = _agents(np.float32, policy_rate=0.005, alone=100, **settings)
    chance = np.random.default_rng(0)
    states = torch.ones((64, _STATE))
    for _ in range(600):
        noise = chance.normal(0, 0.3, (64, len(best)))
        actions = np.clip(agents.act(states).numpy() + noise, 0, 1)
        off = (actions - best) ** 2
        gained = np.stack([-off[:, home == agent].sum(axis=1) for agent in range(3)], axis=1)
        agents.update(
            states, torch.from_numpy(actions.astype(np.float32)), torch.from_numpy(gained.astype(np.float32)), states
        )
    assert np.abs(agents.act(states).numpy()[0] - best).max() < 0.15


def test_same_seed_same_networks() -> None:
    """Equal seeds give equal weights, others do not."""
    batch = _batch()
    weights = []
    for seed in (0, 0, 1):
        agents = _agents(seed=seed)
        agents.update(*batch)
        weights.append(np.concatenate([value.ravel() for value in agents.weights().values()]))
    assert (weights[0] == weights[1]).all()
    assert (weights[0] != weights[2]).any()


def _filled(capacity: int, count: int) -> Replay:
    replay = Replay(capacity, 2, 1, 3)
    for number in range(count):
        measures = None if number % 2 else np.full(3, float(number))
        replay.add(np.full(2, number), np.array([number]), measures, np.full(2, number + 1))
    return replay


def test_keeps_the_last_transitions() -> None:
    """Once it is full, the oldest goes."""
    assert [(_filled(4, count).full, len(_filled(4, count))) for count in (3, 4, 6)] == [
        (False, 3),
        (True, 4),
        (True, 4),
    ]
    batch = _filled(4, 6).drawn(200, np.random.default_rng(0))
    assert set(batch.actions[:, 0]) == {2, 3, 4, 5}


def test_transitions_stay_together() -> None:
    """A row of a batch is one transition; a superblock has no measures."""
    batch = _filled(8, 5).drawn(100, np.random.default_rng(0))
    assert (batch.next_states == batch.states + 1).all()
    assert (batch.states[:, :1] == batch.actions).all()
    assert (batch.superblock == (batch.actions[:, 0] % 2 == 1)).all()
    assert (batch.measures[batch.superblock] == 0).all()
    assert (batch.measures[~batch.superblock] == batch.actions[~batch.superblock]).all()
    assert sorted(_filled(8, 5).measured()[:, 0]) == [0, 2, 4]
