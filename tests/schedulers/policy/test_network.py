"""Features of operators, embeddings, actions and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hios import Graph, Operator, Problem
from hios.schedulers.policy.endings import combined, sub_blocks
from hios.schedulers.policy.network import (
    ACTIVATIONS,
    EMBEDDING,
    FEATURES,
    POOLS,
    TYPES,
    Adam,
    Array,
    GpgPolicy,
    Structure,
    Weights,
    features,
    initial_weights,
)
from hios.schedulers.policy.training import WARM_UP, Learner, PlayedStep
from tests.convolution_graphs import Conv, conv_graph
from tests.platforms.model.gpu_graphs import one_operator
from tests.problems import predecessors_of, problems

#: A diamond with a tail, and an operator apart.
_PARENTS = [[], [0], [0], [1, 2], [3], []]


def _features(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(0, 3, (count, FEATURES))


def _policy(seed: int = 0) -> GpgPolicy:
    return GpgPolicy(initial_weights(seed, np.float64))


def test_equations() -> None:
    """(5), (6) and mu, written out for a chain of two operators."""
    weights = initial_weights(3, np.float64)

    def layers(name: str, x: Array, *, last: bool) -> Array:
        count = sum(key.startswith(f"{name}.") and key.endswith("weight") for key in weights)
        for layer in range(count):
            x = x @ weights[f"{name}.{layer}.weight"] + weights[f"{name}.{layer}.bias"]
            x = np.maximum(x, 0) if last or layer < count - 1 else x
        return x

    features = _features(2)
    s = layers("encoder", features, last=False)
    first = layers("h1", np.zeros(EMBEDDING), last=True) + s[0]
    second = layers("h1", layers("g1", first, last=True), last=True) + s[1]
    z = layers("h2", layers("g2", second, last=True), last=True)
    m = 1 / (1 + np.exp(-layers("mu", z, last=False)[0]))
    policy = GpgPolicy(weights)
    embedding = policy.embed(Structure(features, [[], [0]]))
    assert np.allclose(embedding.nodes, [first, second])
    assert policy.decide(embedding, [[1]]).z[0] == pytest.approx(z)
    assert policy.action(embedding, [1]) == pytest.approx(m)


def test_sizes_are_those_of_the_paper() -> None:
    """Networks h and g have 64 and 32 units, mu 500 and 128, q 1024, 512 and 300 (section VI-B)."""
    weights = initial_weights(0)
    for name in ("h1", "g1", "h2", "g2"):
        assert [weights[f"{name}.{layer}.weight"].shape[1] for layer in (0, 1)] == [64, 32]
    assert [weights[f"mu.{layer}.weight"].shape[1] for layer in (0, 1, 2)] == [500, 128, 1]
    learner = Learner(Structure(_features(1), [[]]), weights, gamma=1.0, seed=0)
    assert [learner.value_weights[f"q.{layer}.weight"].shape for layer in range(4)] == [
        (EMBEDDING + 1, 1024),
        (1024, 512),
        (512, 300),
        (300, 1),
    ]


@given(instance=problems(12), chooser=st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_reused_embeddings_equal_recomputed_ones(instance: Problem, chooser: object) -> None:
    """At every step, z of the embedding of the whole block equals that of what is left, embedded anew."""
    predecessors = predecessors_of(instance)
    features = _features(len(instance))
    policy = _policy()
    whole = policy.embed(Structure(features, predecessors))
    state = combined(sub_blocks(instance.order, predecessors, instance.time, 3, 8))
    while state.count:
        left = [v for part in state.states for place, v in enumerate(part.block.operators) if part.left >> place & 1]
        new = {v: number for number, v in enumerate(left)}
        rest = policy.embed(Structure(features[left], [[new[u] for u in predecessors[v]] for v in left]))
        reused = policy.decide(whole, [state.leaves]).z
        again = policy.decide(rest, [[new[v] for v in state.leaves]]).z
        assert np.allclose(reused, again, rtol=0, atol=1e-6)
        state = state.ending(chooser.randrange(state.count)).left  # type: ignore[attr-defined]


def test_relabeling_changes_nothing() -> None:
    """Embeddings go with their operators, and z and m stay, when operators are numbered otherwise."""
    policy, features = _policy(), _features(len(_PARENTS))
    new = [3, 5, 0, 1, 4, 2]
    parents: list[list[int]] = [[] for _ in new]
    for v, before in enumerate(_PARENTS):
        parents[new[v]] = [new[u] for u in before]
    one = policy.embed(Structure(features, _PARENTS))
    two = policy.embed(Structure(features[np.argsort(new)], parents))
    assert np.allclose(one.nodes, two.nodes[new])
    leaves = [4, 5]
    a, b = policy.decide(one, [leaves]), policy.decide(two, [[new[v] for v in leaves]])
    assert np.allclose(a.z, b.z)
    assert a.actions == pytest.approx(b.actions)


def _differences(objective: Callable[[], float], weights: Weights, gradients: Weights) -> None:
    """Compare gradients with central differences in 6 entries of every weight."""
    chance = np.random.default_rng(1)
    for name, gradient in gradients.items():
        flat, slope = weights[name].reshape(-1), gradient.reshape(-1)
        for place in chance.choice(len(flat), min(6, len(flat)), replace=False):
            kept = flat[place]
            step = 1e-5
            flat[place] = kept + step
            above = objective()
            flat[place] = kept - step
            below = objective()
            flat[place] = kept
            assert slope[place] == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-8), name


def _learner() -> Learner:
    structure = Structure(_features(len(_PARENTS)), _PARENTS)
    return Learner(structure, initial_weights(1, np.float64), gamma=0.95, seed=2)


_LEAVES: Sequence[Sequence[int]] = ([4, 5], [3], [1, 2, 5], [0])


def test_value_gradients() -> None:
    """(7): delta times the gradient of q is the gradient of half the mean squared error, targets held."""
    learner = _learner()
    z = learner.policy.decide(learner.policy.embed(learner.structure), _LEAVES).z
    actions, targets = np.array([0.1, 0.9, 0.5, 0.3]), np.array([-1.0, 0.5, 0.0, 2.0])
    gradients = learner.value_gradients(z, actions, targets)
    assert set(gradients) == set(learner.value_weights)

    def objective() -> float:
        return float(np.mean((learner.value(z, actions) - targets) ** 2)) / 2

    _differences(objective, learner.value_weights, gradients)


def test_policy_gradients() -> None:
    """(8): grad mu times dq/dm is the gradient of mean q(z, mu(z)) with the z that q is given held."""
    learner = _learner()
    policy = learner.policy
    embedding = policy.embed(learner.structure)
    decision = policy.decide(embedding, _LEAVES)
    gradients = learner.policy_gradients(embedding, decision)
    assert set(gradients) == set(policy.weights)

    def objective() -> float:
        actions = policy.decide(policy.embed(learner.structure), _LEAVES).actions
        return float(np.mean(learner.value(decision.z, actions)))

    _differences(objective, policy.weights, gradients)


def test_targets() -> None:
    """The target of a step is its reward plus gamma q(z', mu(z')), and the reward alone at the end."""
    learner = _learner()
    policy = learner.policy
    after = policy.decide(policy.embed(learner.structure), [[3]])
    expected = -0.5 + 0.95 * float(learner.value(after.z, after.actions)[0])
    steps = [PlayedStep([4, 5], 0.5, -0.5, [3]), PlayedStep([0], 0.5, -0.25, [])]
    assert learner._targets(steps) == pytest.approx([expected, -0.25])


def test_learning_finds_the_best_action() -> None:
    """A single step whose reward is greatest at m = 0.4: a policy that begins elsewhere goes there."""
    structure = Structure(_features(1), [[]])
    weights = initial_weights(0, np.float64)
    weights["mu.2.bias"][:] = 1.0
    learner = Learner(structure, weights, gamma=1.0, seed=1, value_layers=(64, 64))
    chance = np.random.default_rng(0)
    assert learner.policy.action(learner.policy.embed(structure), [0]) > 0.6
    for _ in range(WARM_UP + 300):
        actions = chance.uniform(0, 1, 50)
        learner.update([PlayedStep([0], float(m), -4 * (float(m) - 0.4) ** 2, []) for m in actions])
    assert learner.policy.action(learner.policy.embed(structure), [0]) == pytest.approx(0.4, abs=0.1)


def test_adam_goes_downhill() -> None:
    """The first step of Adam has the size of its rate, against the gradient."""
    weights: Weights = {"w": np.array([1.0, -1.0])}
    Adam(weights, 0.1).step({"w": np.array([5.0, -0.001])})
    assert weights["w"] == pytest.approx([0.9, -0.9], abs=1e-4)


def _parts(row: list[float]) -> dict[str, Any]:
    """A row of features by their names in the paper."""
    sizes = {
        "type": len(TYPES),
        "input": 4,
        "output": 4,
        "stride": 2,
        "kernel": 2,
        "padding": 2,
        "groups": 1,
        "activation": len(ACTIVATIONS),
        "pool": len(POOLS),
    }
    assert sum(sizes.values()) == FEATURES == len(row)
    parts: dict[str, Any] = {}
    for name, size in sizes.items():
        parts[name], row = row[:size], row[size:]
    for name, names in (("type", TYPES), ("activation", ACTIVATIONS), ("pool", POOLS)):
        parts[name] = [word for word, value in zip(names, parts[name], strict=True) if value]
    return parts


def test_convolution() -> None:
    """(i) to (viii) of a convolution with ReLU, sizes as logarithms."""
    graph = conv_graph({"a": Conv((1, 3), (0, 1), stride=(2, 1), filters=16)})
    assert _parts(features(graph)[0]) == {
        "type": ["conv2d"],
        "input": [0.0, 1.0, 3.0, 3.0],
        "output": [0.0, 4.0, 2.0, 3.0],
        "stride": [1.0, 0.0],
        "kernel": [0.0, pytest.approx(1.585, abs=1e-3)],
        "padding": [0.0, 1.0],
        "groups": [0.0],
        "activation": ["relu"],
        "pool": [],
    }


@pytest.mark.parametrize(("function", "kind"), [("max_pool2d", "max"), ("avg_pool2d", "avg")])
def test_pooling(function: str, kind: str) -> None:
    """(ix) and the window of a pooling; it has the identity for activation."""
    attributes = {"pool_size": [4, 4], "strides": [2, 2], "padding": [1, 1, 1, 1]}
    graph = one_operator(f"relax.nn.{function}", [[1, 8, 16, 16]], [1, 8, 8, 8], attributes=attributes)
    parts = _parts(features(graph)[0])
    assert (parts["pool"], parts["kernel"], parts["stride"], parts["padding"]) == ([kind], [2, 2], [1, 1], [1, 1])
    assert parts["activation"] == ["identity"]


def test_global_pooling_and_groups() -> None:
    """A mean is a global pooling; the groups of a convolution count."""
    assert _parts(features(one_operator("relax.mean", [[1, 8, 4, 4]], [1, 8]))[0])["pool"] == ["global avg"]
    graph = conv_graph({"a": Conv(changes={"groups": 8}, activation=("relax.tanh",))})
    parts = _parts(features(graph)[0])
    assert parts["groups"] == [3.0]
    assert parts["activation"] == ["tanh"]


def test_operators_of_which_only_the_type_is_known() -> None:
    """Synthetic graphs have types; all sizes are 0."""
    graph = Graph("two", (Operator("a", "conv2d-relu"), Operator("b", "task")), ())
    one, other = map(_parts, features(graph))
    assert (one["type"], one["activation"]) == (["conv2d"], ["relu"])
    assert (other["type"], other["activation"]) == (["other"], ["identity"])
    assert one["input"] == other["kernel"] + other["stride"] == [0.0] * 4
