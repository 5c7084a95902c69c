"""The policy of GPG, in numpy: embeddings of operators (5) and of what is left (6), and the network mu.

`Perceptron` and `Adam` are fully connected networks with ReLU and their training; `features` is the raw state s_v of
TOP, items (i) to (ix) of section V-C. Files of trained policies are safetensors with the weights by name, and how they
were trained.
"""

from __future__ import annotations

import graphlib
import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hios.core.graph import Call, Graph, Operator
from hios.errors import ArtifactError
from hios.files import read_limits
from hios.files.artifacts import Json, write_whole

Array = npt.NDArray[np.floating[Any]]
#: Weights or gradients by name.
Weights = dict[str, Array]


def initial(name: str, sizes: Sequence[int], chance: np.random.Generator, dtype: npt.DTypeLike) -> Weights:
    """Weights of a network of layers of these sizes, by ``NAME.LAYER.weight`` (inputs x outputs) and ``.bias``.

    Uniform within 1 / sqrt(inputs), the initialization of the papers on DDPG and of torch.nn.Linear.
    """
    weights: Weights = {}
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        most = 1 / np.sqrt(inputs)
        weights[f"{name}.{layer}.weight"] = chance.uniform(-most, most, (inputs, outputs)).astype(dtype)
        weights[f"{name}.{layer}.bias"] = chance.uniform(-most, most, outputs).astype(dtype)
    return weights


class Perceptron:
    """Layers of a network: ReLU after each, but after the last only if ``last`` is set.

    Weights may be those of several networks, and may change between calls.
    """

    def __init__(self, weights: Weights, name: str, *, last: bool) -> None:
        self._weights, self._name, self._last = weights, name, last
        self._layers = sum(key.startswith(f"{name}.") and key.endswith(".weight") for key in weights)

    def _rectified(self, layer: int) -> bool:
        return self._last or layer < self._layers - 1

    def forward(self, x: Array) -> list[Array]:
        """The input and the outputs of all layers, rows x features each."""
        values = [x]
        for layer in range(self._layers):
            y = values[-1] @ self._weights[f"{self._name}.{layer}.weight"] + self._weights[f"{self._name}.{layer}.bias"]
            values.append(np.maximum(y, 0, out=y) if self._rectified(layer) else y)
        return values

    def __call__(self, x: Array) -> Array:
        """The output of the last layer."""
        return self.forward(x)[-1]

    def backward(self, values: Sequence[Array], slope: Array, gradients: Weights | None) -> Array:
        """The gradient with respect to the input, that with respect to the output being ``slope``.

        ``values`` are those of ``forward``, ``slope`` is rows x outputs; gradients with respect to the weights are
        added to ``gradients``, unless that is None.
        """
        for layer in reversed(range(self._layers)):
            if self._rectified(layer):
                slope = slope * (values[layer + 1] > 0)
            if gradients is not None:
                _add(gradients, f"{self._name}.{layer}.weight", values[layer].T @ slope)
                _add(gradients, f"{self._name}.{layer}.bias", slope.sum(axis=0))
            slope = slope @ self._weights[f"{self._name}.{layer}.weight"].T
        return slope


def _add(gradients: Weights, key: str, gradient: Array) -> None:
    if key in gradients:
        gradients[key] += gradient
    else:
        gradients[key] = gradient


class Adam:
    """Adam (Kingma and Ba, ICLR 2015) with its usual constants, downhill."""

    def __init__(self, weights: Weights, rate: float) -> None:
        self._weights, self._rate, self._steps = weights, rate, 0
        self._mean = {key: np.zeros_like(value) for key, value in weights.items()}
        self._square = {key: np.zeros_like(value) for key, value in weights.items()}

    def step(self, gradients: Mapping[str, Array]) -> None:
        """Change the weights in place by their gradients."""
        self._steps += 1
        rate = self._rate * float(np.sqrt(1 - 0.999**self._steps)) / (1 - 0.9**self._steps)
        for key, gradient in gradients.items():
            mean, square = self._mean[key], self._square[key]
            mean *= 0.9
            mean += 0.1 * gradient
            square *= 0.999
            square += 0.001 * gradient * gradient
            self._weights[key] -= rate * mean / (np.sqrt(square) + 1e-8)


#: (i) Types that are distinguished, by a word of the operator's type; the first match counts.
TYPES = (
    *("conv2d", "sepconv", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "mean", "concat", "add", "matmul"),
    *("relu", "other"),
)
#: (viii) Activations; an operator without one has the identity.
ACTIVATIONS = ("relu", "sigmoid", "tanh", "identity")
#: (ix) Kinds of pooling.
POOLS = ("max", "avg", "global max", "global avg")
#: Sizes of a shape that count: batch, channels, height, width.
_SIZES = 4

#: Number of features of an operator.
FEATURES = len(TYPES) + 2 * _SIZES + 3 * 2 + 1 + len(ACTIVATIONS) + len(POOLS)

_CONVOLUTION = "relax.nn.conv2d"
_POOLING = {
    "relax.nn.max_pool2d": "max",
    "relax.nn.avg_pool2d": "avg",
    "relax.nn.adaptive_max_pool2d": "global max",
    "relax.nn.adaptive_avg_pool2d": "global avg",
    "relax.max": "global max",
    "relax.mean": "global avg",
}


def features(graph: Graph) -> list[list[float]]:
    """The features of every operator, ``FEATURES`` numbers each.

    Type, activation and kind of pooling are one number for each that is possible, 1 for that of the operator. Sizes are
    logarithms to the base 2 (of padding, plus one), and 0 where they do not apply or the graph does not state them.
    A unit of several calls has the stride, kernel, padding and groups of its first convolution, or else of its first
    pooling; of several inputs the largest counts.
    """
    kernels = {weight.name: weight.shape for weight in graph.weights}
    return [_features(operator, kernels) for operator in graph.operators]


def _features(operator: Operator, kernels: Mapping[str, Sequence[int]]) -> list[float]:
    shapes = operator.shapes
    window = next((call for call in operator.calls if call.function == _CONVOLUTION), None)
    pooling = next((call for call in operator.calls if call.function in _POOLING), None)
    window = window or pooling
    attributes = window.attributes if window is not None else {}
    return [
        *_one_hot(TYPES, _type(operator)),
        *_sizes(max(shapes.inputs, key=math.prod) if shapes and shapes.inputs else ()),
        *_sizes(shapes.outputs[0] if shapes and shapes.outputs else ()),
        *_pair(attributes.get("strides", ())),
        *_pair(_kernel(window, kernels)),
        *_pair([step + 1 for step in attributes.get("padding", ())]),
        _log(attributes.get("groups", 1)),
        *_one_hot(ACTIVATIONS, _activation(operator)),
        *_one_hot(POOLS, None if pooling is None else _POOLING[pooling.function]),
    ]


def _type(operator: Operator) -> str:
    words = operator.type.replace("-", " ").split()
    return next((name for name in TYPES if name in words), "other")


def _activation(operator: Operator) -> str:
    for call in reversed(operator.calls):
        for name in ACTIVATIONS:
            if call.function in (f"relax.{name}", f"relax.nn.{name}"):
                return name
    words = operator.type.split("-")
    return next((name for name in ACTIVATIONS if name in words[1:]), "identity")


def _kernel(window: Call | None, kernels: Mapping[str, Sequence[int]]) -> Sequence[int]:
    if window is None:
        return ()
    if window.function == _CONVOLUTION:
        weight = window.arguments[1].weight if len(window.arguments) > 1 else None
        return list(kernels.get(weight or "", ()))[2:]
    return list(window.attributes.get("pool_size", ()))


def _one_hot(names: Sequence[str], name: str | None) -> list[float]:
    return [float(name == known) for known in names]


def _sizes(shape: Sequence[int]) -> list[float]:
    return [_log(size) for size in (*shape, *(1,) * _SIZES)[:_SIZES]]


def _pair(sizes: Any) -> list[float]:
    return [_log(size) for size in (*sizes, 1, 1)[:2]]


def _log(size: float) -> float:
    return math.log2(size) if size > 0 else 0.0


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
    depth = [0] * len(parents)
    for v in graphlib.TopologicalSorter(dict(enumerate(parents))).static_order():
        depth[v] = max((depth[u] + 1 for u in parents[v]), default=0)
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


def write_weights(path: str | Path, weights: Weights, key: str, facts: Json) -> None:
    """Write weights, and facts as JSON; equal ones give equal bytes.

    The key is the only one of the file's metadata: several would be written in any order.
    """
    from safetensors.numpy import save

    tensors = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in sorted(weights.items())}
    write_whole(path, save(tensors, metadata={key: json.dumps(facts, sort_keys=True)}))


def read_weights(path: str | Path) -> tuple[Weights, dict[str, str]]:
    """Weights of a file, and its metadata; an `ArtifactError` if it is missing or damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with Path(path).open("rb") as file:  # says what is wrong, and safe_open does not
            read_limits.require_memory(path, "weights", os.fstat(file.fileno()).st_size)
        with safe_open(path, "numpy") as stored:
            return {name: stored.get_tensor(name) for name in stored.keys()}, stored.metadata() or {}  # noqa: SIM118
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (SafetensorError, TypeError, AttributeError) as error:  # these two for types that NumPy has not
        raise ArtifactError(f"{path}: damaged or not a safetensors file ({error}); train it again") from error


def write_policy(path: str | Path, weights: Weights, training: Json) -> None:
    """Write a policy, whose weights are named as by `initial_weights`; ``training`` is saved with them."""
    write_weights(path, weights, "hios-gpg", training)


def read_policy(path: str | Path) -> Weights:
    """The weights of a policy; an `ArtifactError` if the file is missing, damaged, or not one of a policy."""
    weights, _ = read_weights(path)
    for name, expected in initial_weights(0).items():
        shape = list(weights[name].shape) if name in weights else None
        if shape != list(expected.shape):
            raise ArtifactError(
                f"{path}: {name}: found {'none' if shape is None else f'shape {shape}'}; required: shape "
                f"{list(expected.shape)}, as hios train writes it; train it again with this version"
            )
    return {name: weights[name] for name in initial_weights(0)}
