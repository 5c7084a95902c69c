"""Several convolutions on the same value as a single one (IOS, operator merge); shapes and dtypes of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.core.graph import Graph, Operator
from hios.core.merging import Convolution, merged_kernel
from hios.errors import UnsupportedError
from hios.kernels import cudnn, onednn
from hios.kernels.compiled_operator import External
from hios.kernels.onednn import as_made
from hios.kernels.table import IN_PLACE, Kernel, build


def compile_merged(
    operators: Sequence[Operator],
    members: Sequence[Convolution | None],
    weights: Mapping[str, Tensor],
    *,
    packed: bool = False,
) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Turn two operators or more into one function that computes all their outputs with one convolution.

    It takes the value that all of them read, and gives parts of one tensor in the order of the operators. ``members``
    are those of ``hios.core.merging.convolutions``; packed as in ``compile_operator``.

    Kernels are padded with zeros to the elementwise largest and stacked here, once.

    Raises:
        UnsupportedError: they cannot be merged.
    """
    merged = merged_kernel(members)
    if merged is None:
        raise UnsupportedError(f"operators {', '.join(operator.id for operator in operators)} cannot run as one")
    calls = [operator.calls[0] for operator in operators]
    names = [[argument.weight or "" for argument in call.arguments[1:]] for call in calls]
    filters = torch.cat([_padded(weights[own[0]], merged.kernel) for own in names])
    bias = torch.cat([weights[own[1]] if len(own) > 1 else _no_bias(weights[own[0]]) for own in names])
    sizes = [weights[own[0]].shape[0] for own in names]
    attributes = {**calls[0].attributes, "padding": merged.padding * 2}
    library = next((own for own in (onednn, cudnn) if packed and own.is_packable(filters)), None)
    following = list(operators[0].calls[1:])
    if library is None:
        convolution = _convolution(attributes, filters, bias)
    else:
        fused = following.pop(0).function if following and library.can_fuse(following[0]) else None
        convolution = library.packed_convolution(attributes, filters, bias, fused)
    activations = [IN_PLACE[call.function](call.attributes) for call in following]

    def run(x: Tensor) -> tuple[Tensor, ...]:
        result = convolution(x)
        for activation in activations:
            result = activation(result)
        parts = torch.split(result, sizes, dim=1)
        return tuple(map(as_made, parts)) if library is cudnn else parts  # as cuDNN copies what is not contiguous

    return run


def _convolution(attributes: Mapping[str, Any], filters: Tensor, bias: Tensor) -> Kernel:
    run = build("relax.nn.conv2d", attributes, "merged")
    return lambda x: run(x, filters, bias)


def _padded(filters: Tensor, kernel: tuple[int, int]) -> Tensor:
    """Filters padded with zeros: floor((K - k) / 2) before, the rest after, on each axis."""
    (above, below), (left, right) = (
        ((largest - own) // 2, largest - own - (largest - own) // 2)
        for largest, own in zip(kernel, filters.shape[2:], strict=True)
    )
    return F.pad(filters, (left, right, above, below))


def _no_bias(filters: Tensor) -> Tensor:
    return torch.zeros(filters.shape[0], dtype=filters.dtype, device=filters.device)


def torch_dtype(name: str) -> torch.dtype:
    """Torch's dtype of a name such as float32."""
    return getattr(torch, name)


def nbytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a tensor."""
    return math.prod(shape) * int(torch_dtype(dtype).itemsize)


def value_type(graph: Graph, value: External) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of an operator's output."""
    return graph.operators[graph.index[value[1]]].output_types[value[2]]
