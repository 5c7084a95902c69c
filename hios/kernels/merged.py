"""Several convolutions on the same value as a single one (IOS, operator merge); shapes and dtypes of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.core.graph import Graph
from hios.core.merging import convolutions, merged_kernel
from hios.errors import UnsupportedError
from hios.kernels import cudnn, onednn
from hios.kernels.compiled_operator import External
from hios.kernels.onednn import as_made
from hios.kernels.table import IN_PLACE, Kernel, build


def compile_merged(
    graph: Graph, names: Sequence[str], weights: Mapping[str, Tensor], *, packed: bool = False
) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Turn two operators of a graph or more, by id, into one function that makes all their outputs by one convolution.

    It takes the value that all of them read, and gives parts of one tensor in the order of the operators; packed as in
    ``compile_operator``.

    Kernels are padded with zeros to the elementwise largest and stacked here, once.

    Raises:
        UnsupportedError: they cannot be merged.
    """
    known, places = convolutions(graph), [graph.index[name] for name in names]
    merged = merged_kernel([known[place] for place in places])
    if merged is None:
        raise UnsupportedError(f"operators {', '.join(names)} cannot run as one")
    operators = [graph.operators[place] for place in places]
    calls = [operator.calls[0] for operator in operators]
    tensors = [[weights[argument.weight or ""] for argument in call.arguments[1:]] for call in calls]
    sizes = [own[0].shape[0] for own in tensors]
    filters = torch.cat([_padded(own[0], merged.kernel) for own in tensors])
    bias = torch.cat([own[1] if len(own) > 1 else own[0].new_zeros(own[0].shape[0]) for own in tensors])
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


def torch_dtype(name: str) -> torch.dtype:
    """Torch's dtype of a name such as float32."""
    return getattr(torch, name)


def nbytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a tensor."""
    return math.prod(shape) * int(torch_dtype(dtype).itemsize)


def value_type(graph: Graph, value: External) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of an operator's output."""
    return graph.operators[graph.index[value[1]]].output_types[value[2]]
