"""Several operators of graph.json as one module of torch, which torch.export takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hios.core.graph import Operator
from hios.errors import UnsupportedError, first_line
from hios.kernels.compiled_operator import External, compile_operator, weights_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram


class SegmentModule(nn.Module):
    """Operators in an order in which they can run, from values made outside them to some of their own.

    Weights of the inference mode are copied, as torch.export takes none. If ``packed``, operators are compiled so
    (`compile_operator`).
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        inputs: Sequence[External],
        outputs: Sequence[External],
        weights: Mapping[str, Tensor],
        *,
        packed: bool = False,
    ) -> None:
        super().__init__()
        self._operators, self._inputs, self._outputs, self._packed = operators, inputs, outputs, packed
        self._names = weights_of(operators)
        for number, name in enumerate(self._names):
            weight = weights[name]
            self.register_buffer(f"weight_{number}", weight.clone() if weight.is_inference() else weight)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The outputs in their order."""
        values: dict[External, Any] = dict(zip(self._inputs, tensors, strict=True))
        weights = {name: getattr(self, f"weight_{number}") for number, name in enumerate(self._names)}
        for operator in self._operators:
            compile_operator(operator, weights, packed=self._packed).run_on(values)
        return tuple(values[value] for value in self._outputs)


def exported(
    operators: Sequence[Operator],
    inputs: Mapping[External, Tensor],
    outputs: Sequence[External],
    weights: Mapping[str, Tensor],
    *,
    packed: bool = False,
    keep_strides: bool = False,
) -> ExportedProgram:
    """Operators as a program of torch.export; an `UnsupportedError` if it cannot trace them.

    Inputs are examples, traced with their strides or as contiguous tensors.
    """
    import torch.export  # loads much of torch

    with torch.inference_mode(False), torch.no_grad():
        module = SegmentModule(operators, list(inputs), outputs, weights, packed=packed).eval()
        examples = tuple(
            strided_copy(value, value.device) if keep_strides else value.clone(memory_format=torch.contiguous_format)
            for value in inputs.values()
        )
        try:
            return torch.export.export(module, examples)
        except Exception as error:  # it raises many types
            raise UnsupportedError(f"torch.export cannot trace it: {first_line(error)}") from error


def strided_copy(value: Tensor, place: torch.device) -> Tensor:
    """A copy of a tensor on a device, with its strides unless elements share memory."""
    if any(stride == 0 and size > 1 for stride, size in zip(value.stride(), value.shape, strict=True)):
        return value.to(place, copy=True)
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=place).copy_(value)
