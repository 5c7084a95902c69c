"""Fully connected networks with ReLU in numpy: forward, gradients, and Adam."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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
