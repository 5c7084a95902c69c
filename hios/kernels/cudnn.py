"""Convolutions for NVIDIA GPUs: channels last, the layout of tensor cores, with bias and ReLU in one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.core.graph import Call, Graph
from hios.kernels.table import Kernel
from hios.kernels.table.kernel_registry import dtype_of, split_padding


def can_pack(call: Call, weights: Mapping[str, Tensor]) -> bool:
    """Whether a call is a 2-d convolution with constant filters on a GPU.

    Depthwise convolutions are not, nor are others in groups: torch's own kernels for them want the default layout.
    """
    if not _is_ungrouped(call):
        return False
    constants = [weights[argument.weight] for argument in call.arguments[1:] if argument.weight is not None]
    if len(constants) != len(call.arguments) - 1 or not is_packable(constants[0]):
        return False
    return dtype_of(call.attributes, "out_dtype") in (None, constants[0].dtype)


def _is_ungrouped(call: Call) -> bool:
    return call.function == "relax.nn.conv2d" and call.attributes["groups"] == 1


def packed_filters(graph: Graph) -> set[str]:
    """The names of filters that only packed convolutions read, on a GPU: kept channels last, they are not copied."""
    read: dict[str, bool] = {}
    for call in (call for operator in graph.operators for call in operator.calls):
        for place, argument in enumerate(call.arguments):
            if argument.weight is not None:
                read[argument.weight] = read.get(argument.weight, True) and place == 1 and _is_ungrouped(call)
    return {name for name, only in read.items() if only}


def is_packable(filters: Tensor) -> bool:
    """Whether filters are on a GPU, in float32: other types have not been measured."""
    return filters.device.type == "cuda" and filters.dtype is torch.float32


def can_fuse(call: Call) -> bool:
    """Whether a call is an activation that a packed convolution can compute too."""
    return call.function == "relax.nn.relu"


def packed_convolution(
    attributes: Mapping[str, Any], weight: Tensor, bias: Tensor | None, activation: str | None = None
) -> Kernel:
    """A convolution of images (N, C, H, W) as a function of the image alone; its result is in channels-last order.

    ``attributes`` are those of relax.nn.conv2d, filters are (O, I, H, W), the bias is (O,); ``activation`` is the Relax
    name of the one that follows.
    """
    stride, dilation = tuple(attributes["strides"]), tuple(attributes["dilation"])
    padding, explicit = split_padding(attributes["padding"])
    filters = weight.contiguous(memory_format=torch.channels_last)

    def convolution(x: Tensor) -> Tensor:
        if explicit is not None:
            x = F.pad(x, explicit)
        x = x.contiguous(memory_format=torch.channels_last)
        if activation is None:
            return torch.conv2d(x, filters, bias, stride, padding, dilation)
        if torch.compiler.is_exporting():
            return _traced(x, filters, bias, stride, padding, dilation)
        return torch.cudnn_convolution_relu(x, filters, bias, stride, padding, dilation, 1)

    return convolution


@torch.library.custom_op(
    "hios::convolution_relu",
    mutates_args=(),
    schema="(Tensor x, Tensor filters, Tensor? bias, int[] stride, int[] padding, int[] dilation) -> Tensor",
)
def _traced(x: Tensor, filters: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    """The fused call for torch.export, which does not know the shape that torch's own makes."""
    stride, padding, dilation = how
    made = torch.cudnn_convolution_relu(x, filters, bias, stride, padding, dilation, 1)
    return made.contiguous(memory_format=torch.channels_last)


@_traced.register_fake
def _shape(x: Tensor, filters: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    return torch.conv2d(x, filters, bias, *how).contiguous(memory_format=torch.channels_last)
