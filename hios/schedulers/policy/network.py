"""The policy of GPG: embeddings of operators (5) and of what is left (6), and the network mu, in numpy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hios.schedulers.policy.features import FEATURES
from hios.schedulers.policy.perceptron import Array, Perceptron, Weights, initial

#: Units of h1, g1, h2 and g2, and of the hidden layers of mu (TOP section VI-B).
GRAPH_LAYERS = (64, 32)
POLICY_LAYERS = (500, 128)
#: Size of an embedding.
EMBEDDING = GRAPH_LAYERS[-1]
#: Inputs of the sigmoid beyond which nothing is learned any more; m is 0.00005 or 0.99995 there.
SATURATED = 10.0
#: Input of the sigmoid for an untrained policy: m is about 0.95.
_FIRST = 3.0
#: The largest action below 1.
_BELOW_ONE = float(np.nextafter(1.0, 0.0))


class _Level(NamedTuple):
    """Operators of one depth; ``source`` and ``slot`` have an entry an edge: the parent, the place in ``nodes``."""

    nodes: npt.NDArray[np.intp]
    source: npt.NDArray[np.intp]
    slot: npt.NDArray[np.intp]


class Structure:
    """Operators that are embedded together: their features, and by depth who reads from whom.

    ``features`` are operators x ``FEATURES``; ``predecessors`` are those of every operator, by number.
    """

    def __init__(self, features: npt.ArrayLike, predecessors: Sequence[Iterable[int]]) -> None:
        self.features = np.asarray(features, dtype=np.float64).reshape(-1, FEATURES)
        parents = [sorted(set(before)) for before in predecessors]
        depth = _depths(parents)
        rows: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
        for operator, level in enumerate(depth):
            rows[level].append(operator)
        self.levels = [
            _Level(
                np.array(row, dtype=np.intp),
                np.array([u for v in row for u in parents[v]], dtype=np.intp),
                np.array([slot for slot, v in enumerate(row) for _ in parents[v]], dtype=np.intp),
            )
            for row in rows
        ]


def _depths(parents: Sequence[Sequence[int]]) -> list[int]:
    depth = [-1] * len(parents)
    for start in range(len(parents)):
        waiting = [start]
        while waiting:
            v = waiting[-1]
            unknown = [u for u in parents[v] if depth[u] < 0]
            if not unknown:
                depth[v] = max((depth[u] + 1 for u in parents[v]), default=0)
                waiting.pop()
            waiting += unknown
    return depth


def initial_weights(seed: int, dtype: npt.DTypeLike = np.float32) -> Weights:
    """Weights of an untrained policy."""
    chance = np.random.default_rng(seed)
    sizes = {
        "encoder": (FEATURES, EMBEDDING),
        **dict.fromkeys(("h1", "g1", "h2", "g2"), (EMBEDDING, *GRAPH_LAYERS)),
        "mu": (EMBEDDING, *POLICY_LAYERS, 1),
    }
    weights: Weights = {}
    for name, layers in sizes.items():
        weights |= initial(name, layers, chance, dtype)
    # Few of the endings with the fewest groups are good: start where many groups are, with little else decided.
    weights["mu.2.weight"] *= 0.1
    weights["mu.2.bias"] += _FIRST
    return weights


@dataclass
class Embedding:
    """Embeddings of all operators of a structure, with what their gradients need."""

    structure: Structure
    nodes: Array
    #: g2(e_v) of every operator.
    messages: Array
    kept: list[tuple[list[Array], list[Array]]] = field(repr=False)
    outward: list[Array] = field(repr=False)
    inputs: Array = field(repr=False)


@dataclass
class StepActions:
    """States z and actions m of several steps, with what their gradients need."""

    z: Array
    actions: Array
    operators: npt.NDArray[np.intp] = field(repr=False)
    slots: npt.NDArray[np.intp] = field(repr=False)
    first: list[Array] = field(repr=False)
    second: list[Array] = field(repr=False)


class GpgPolicy:
    """{h1, g1, h2, g2, mu} of TOP, and a linear encoder of features to the size of an embedding.

    (5) adds the features of an operator to an output of h1 with 32 entries, so they are mapped to that size.
    h and g have ReLU after both layers, mu ends in a sigmoid.

    Weights are as `initial_weights` makes them.
    """

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.dtype = weights["encoder.0.weight"].dtype
        self._encoder = Perceptron(weights, "encoder", last=False)
        self._h1, self._g1, self._h2, self._g2 = (
            Perceptron(weights, name, last=True) for name in ("h1", "g1", "h2", "g2")
        )
        self._mu = Perceptron(weights, "mu", last=False)

    def embed(self, structure: Structure) -> Embedding:
        """e_v = h1(sum over parents of g1(e_parent)) + s_v for all operators, from top to bottom (5)."""
        inputs = structure.features.astype(self.dtype)
        nodes = self._encoder(inputs)
        upward = np.zeros((len(nodes), EMBEDDING), self.dtype)
        kept = []
        for level in structure.levels:
            total = np.zeros((len(level.nodes), EMBEDDING), self.dtype)
            np.add.at(total, level.slot, upward[level.source])
            gathered = self._h1.forward(total)
            nodes[level.nodes] += gathered[-1]
            passed = self._g1.forward(nodes[level.nodes])
            upward[level.nodes] = passed[-1]
            kept.append((gathered, passed))
        outward = self._g2.forward(nodes)
        return Embedding(structure, nodes, outward[-1], kept, outward, inputs)

    def decide(self, embedding: Embedding, leaves: Sequence[Sequence[int]]) -> StepActions:
        """States z = h2(sum over leaves of g2(e_leaf)) (6) and m = mu(z) of several steps, given by their leaves."""
        operators = np.array([v for row in leaves for v in row], dtype=np.intp)
        slots = np.array([slot for slot, row in enumerate(leaves) for _ in row], dtype=np.intp)
        total = np.zeros((len(leaves), EMBEDDING), self.dtype)
        np.add.at(total, slots, embedding.messages[operators])
        first = self._h2.forward(total)
        second = self._mu.forward(first[-1])
        return StepActions(first[-1], _sigmoid(second[-1][:, 0]), operators, slots, first, second)

    def gradients(self, embedding: Embedding, decision: StepActions, slope: Array, pull: float = 0.0) -> Weights:
        """Gradients of the weights, those with respect to the actions being ``slope``, one a step.

        ``pull`` is added for each unit by which the input of the sigmoid is beyond ``SATURATED``, back towards it.
        """
        gradients: Weights = {}
        before = decision.second[-1][:, 0]
        slope = slope * decision.actions * (1 - decision.actions)
        slope = slope - pull * (before - np.clip(before, -SATURATED, SATURATED))
        slope = slope[:, None].astype(self.dtype)
        slope = self._h2.backward(decision.first, self._mu.backward(decision.second, slope, gradients), gradients)
        below = np.zeros_like(embedding.messages)
        np.add.at(below, decision.operators, slope[decision.slots])
        nodes = self._g2.backward(embedding.outward, below, gradients)
        upward = np.zeros_like(nodes)
        for level, (gathered, passed) in zip(
            reversed(embedding.structure.levels), reversed(embedding.kept), strict=True
        ):
            nodes[level.nodes] += self._g1.backward(passed, upward[level.nodes], gradients)
            total = self._h1.backward(gathered, nodes[level.nodes], gradients)
            np.add.at(upward, level.source, total[level.slot])
        self._encoder.backward([embedding.inputs, nodes], nodes, gradients)
        return gradients

    def action(self, embedding: Embedding, leaves: Sequence[int]) -> float:
        """The action m of one step, at least 0 and below 1."""
        return min(float(self.decide(embedding, [leaves]).actions[0]), _BELOW_ONE)


def _sigmoid(x: Array) -> Array:
    values: Array = 1 / (1 + np.exp(-np.clip(x, -30, 30)))
    return values
