"""Constant folding: operators on weights only, biases and batch norm.

Done in torch, one unit at a time, in well under a second; Relax's FoldConstant takes 16 to 30 s on these networks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hios.errors import UnsupportedError, first_line
from hios.frontends.relax_calls import NodeError, RelaxCall, Weight, is_constant
from hios.frontends.units import CONVOLUTIONS, Unit
from hios.kernels import build


class Folder:
    """Evaluates weight-only calls, each once, and folds biases and batch norm into convolutions."""

    def __init__(self) -> None:
        self._results: dict[RelaxCall, list[Weight]] = {}

    def weight(self, value: Any) -> Weight | float | int | bool:
        """The tensor or number of a constant value; operators on weights are evaluated."""
        call, item = value if isinstance(value, tuple) else (value, 0)
        if not isinstance(call, RelaxCall):
            return value
        if call not in self._results:
            self._results[call] = self._evaluated(call)
        return self._results[call][item]

    def _evaluated(self, call: RelaxCall) -> list[Weight]:
        arguments = [self.weight(argument) for argument in call.arguments]
        names = [argument.name for argument in arguments if isinstance(argument, Weight)]
        place = call.function if call.origin is None else call.origin.place
        try:
            run = build(call.function, call.attributes, place)
        except UnsupportedError as error:
            raise NodeError.at(call.origin, str(error)) from None
        tensors = [argument.tensor if isinstance(argument, Weight) else argument for argument in arguments]
        with torch.inference_mode():
            try:
                result = run(*tensors)
            except Exception as error:  # torch's kernels raise many types; all mean the same to the user
                raise UnsupportedError(f"{place}: {call.function} on weights: {first_line(error)}") from error
        name = names[0] if names else call.function.removesuffix(".default").rsplit(".", 1)[1]
        return [Weight(name, part) for part in (result if isinstance(result, tuple | list) else [result])]

    def fold(self, unit: Unit) -> Unit:
        """The unit with constant arguments as weights, and with bias and batch norm folded into its convolution."""
        calls: list[RelaxCall] = []
        replaced: dict[RelaxCall, RelaxCall] = {}
        for original in unit.calls:
            call = replace(original, arguments=[self._argument(value, replaced) for value in original.arguments])
            convolution = calls[-1] if calls and calls[-1].function in CONVOLUTIONS else None
            if convolution is not None and call.arguments[0] is convolution and self._folded(convolution, call):
                replaced[original] = convolution
            else:
                replaced[original] = call
                calls.append(call)
        return Unit(unit.type, calls, unit.output)

    def _argument(self, value: Any, replaced: dict[RelaxCall, RelaxCall]) -> Any:
        if isinstance(value, RelaxCall) and value in replaced:
            return replaced[value]
        return self.weight(value) if is_constant(value) else value

    @staticmethod
    def _folded(convolution: RelaxCall, call: RelaxCall) -> bool:
        """Fold ``call`` into the preceding convolution if it is a bias or a batch norm; returns whether it was."""
        weight = convolution.arguments[1]
        if call.function == "relax.add" and isinstance(call.arguments[1], Weight):
            return _fold_bias(convolution, weight, call.arguments[1])
        if call.function == "relax.nn.batch_norm" and call.attributes["axis"] == 1:
            _fold_batch_norm(convolution, weight, call.arguments[1:], call.attributes["epsilon"])
            return True
        return False


def _fold_bias(convolution: RelaxCall, weight: Weight, bias: Weight) -> bool:
    filters, dimensions = weight.tensor.shape[0], weight.tensor.ndim
    one_a_filter = (filters, *[1] * (dimensions - 2))
    # A bias with more dimensions than the image would broadcast the result to more dimensions.
    if bias.tensor.ndim > dimensions or bias.tensor.numel() != filters:
        return False
    if bias.tensor.shape[1 - dimensions :] != one_a_filter:
        return False
    added = bias.tensor.reshape(filters)
    if len(convolution.arguments) > 2:
        added = convolution.arguments[2].tensor + added
    convolution.arguments[2:] = [Weight(_bias_name(weight), added)]
    return True


def _fold_batch_norm(convolution: RelaxCall, weight: Weight, statistics: list[Weight], epsilon: float) -> None:
    """W' = w * g, b' = (b - mean) * g + beta with g = gamma / sqrt(variance + epsilon), in double precision."""
    gamma, beta, mean, variance = (part.tensor.double() for part in statistics)
    scale = gamma / torch.sqrt(variance + epsilon)
    bias = convolution.arguments[2].tensor.double() if len(convolution.arguments) > 2 else torch.zeros_like(mean)
    kind = weight.tensor.dtype
    scaled = weight.tensor.double() * scale.reshape(-1, *[1] * (weight.tensor.ndim - 1))
    shifted: Tensor = (bias - mean) * scale + beta
    convolution.arguments[1] = Weight(weight.name, scaled.to(kind))
    convolution.arguments[2:] = [Weight(_bias_name(weight), shifted.to(kind))]


def _bias_name(weight: Weight) -> str:
    return f"{weight.name.removesuffix('.weight')}.bias"
