"""The kernel table: one torch call for every Relax operator that hios runs.

An entry is a builder. It takes the operator's attributes (by their Relax names, as in graph.json) and returns a
function of its tensor arguments, so that everything that is known before the run is worked out before the run.
To add an operator, add a builder here; tests compare every entry with eager torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.errors import UnsupportedError

Attributes = Mapping[str, Any]
Kernel = Callable[..., Any]
Builder = Callable[[Attributes], Kernel]

#: Builders by Relax operator name.
KERNELS: dict[str, Builder] = {}


def kernel(*names: str) -> Callable[[Builder], Builder]:
    """Register a builder for Relax operators."""

    def decorate(builder: Builder) -> Builder:
        for name in names:
            if name in KERNELS:
                raise ValueError(f"the kernel table has an entry for {name} already")
            KERNELS[name] = builder
        return builder

    return decorate


def build(function: str, attributes: Attributes, place: str) -> Kernel:
    """The torch call of a Relax operator.

    Args:
        function: Relax operator name.
        attributes: its attributes.
        place: which operator of the graph needs it, for the message.

    Raises:
        UnsupportedError: the table has no entry, or not for these attributes.
    """
    if function not in KERNELS:
        raise UnsupportedError(
            f"operator {place}: the kernel table has no entry for {function}; add a builder to hios/kernels/table.py"
        )
    try:
        return KERNELS[function](attributes)
    except UnsupportedError as error:
        raise UnsupportedError(f"operator {place}: {function}: {error}") from None


def _only(attributes: Attributes, name: str, allowed: str) -> None:
    if attributes.get(name, allowed) not in (allowed, ""):
        raise UnsupportedError(f"{name} {attributes[name]} is not supported, only {allowed}")


def _symmetric_padding(attributes: Attributes) -> tuple[tuple[int, int], tuple[int, int, int, int] | None]:
    """Padding for torch, and an explicit ``F.pad`` where top/bottom or left/right differ (then padding is 0)."""
    top, left, bottom, right = attributes["padding"]
    if top == bottom and left == right:
        return (top, left), None
    return (0, 0), (left, right, top, bottom)


@kernel("relax.nn.conv2d")
def _conv2d(attributes: Attributes) -> Kernel:
    _only(attributes, "data_layout", "NCHW")
    _only(attributes, "kernel_layout", "OIHW")
    stride, dilation = tuple(attributes["strides"]), tuple(attributes["dilation"])
    groups = attributes["groups"]
    padding, explicit = _symmetric_padding(attributes)

    def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return torch.conv2d(x, weight, bias, stride, padding, dilation, groups)

    if explicit is None:
        return conv2d
    return lambda x, weight, bias=None: conv2d(F.pad(x, explicit), weight, bias)


@kernel("relax.nn.max_pool2d")
def _max_pool2d(attributes: Attributes) -> Kernel:
    _only(attributes, "layout", "NCHW")
    size, stride = tuple(attributes["pool_size"]), tuple(attributes["strides"])
    dilation, ceil_mode = tuple(attributes["dilation"]), attributes["ceil_mode"]
    padding, explicit = _symmetric_padding(attributes)
    if explicit is not None:
        return lambda x: torch.max_pool2d(
            F.pad(x, explicit, value=float("-inf")), size, stride, padding, dilation, ceil_mode
        )
    return lambda x: torch.max_pool2d(x, size, stride, padding, dilation, ceil_mode)


@kernel("relax.nn.avg_pool2d")
def _avg_pool2d(attributes: Attributes) -> Kernel:
    _only(attributes, "layout", "NCHW")
    size, stride = tuple(attributes["pool_size"]), tuple(attributes["strides"])
    ceil_mode, count_include_pad = attributes["ceil_mode"], attributes["count_include_pad"]
    padding, explicit = _symmetric_padding(attributes)
    if explicit is not None:
        raise UnsupportedError(f"padding {attributes['padding']} is not supported, only symmetric padding")
    if any(step != 1 for step in attributes["dilation"]):
        raise UnsupportedError(f"dilation {attributes['dilation']} is not supported, only 1")
    return lambda x: F.avg_pool2d(x, size, stride, padding, ceil_mode, count_include_pad)


@kernel("relax.nn.adaptive_avg_pool2d")
def _adaptive_avg_pool2d(attributes: Attributes) -> Kernel:
    _only(attributes, "layout", "NCHW")
    size = tuple(attributes["output_size"])
    return lambda x: F.adaptive_avg_pool2d(x, size)


@kernel("relax.nn.batch_norm")
def _batch_norm(attributes: Attributes) -> Kernel:
    if attributes["axis"] != 1:
        raise UnsupportedError(f"axis {attributes['axis']} is not supported, only 1")
    epsilon = attributes["epsilon"]

    # Relax returns (output, mean, variance); in inference only the output exists, see frontends.lowering.
    def batch_norm(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return F.batch_norm(x, mean, variance, gamma, beta, training=False, eps=epsilon)

    return batch_norm


@kernel("relax.concat")
def _concat(attributes: Attributes) -> Kernel:
    axis = 0 if attributes["axis"] is None else attributes["axis"]
    return lambda *tensors: torch.cat(tensors, axis)


@kernel("relax.reshape")
def _reshape(attributes: Attributes) -> Kernel:
    shape = tuple(attributes["shape"])
    return lambda x: torch.reshape(x, shape)


@kernel("relax.permute_dims")
def _permute_dims(attributes: Attributes) -> Kernel:
    axes = attributes["axes"]
    if axes is None:
        return lambda x: x.permute(*reversed(range(x.ndim)))
    axes = tuple(axes)
    return lambda x: x.permute(axes)


@kernel("relax.nn.softmax")
def _softmax(attributes: Attributes) -> Kernel:
    axis = attributes["axis"]
    return lambda x: torch.softmax(x, axis)


@kernel("relax.mean")
def _mean(attributes: Attributes) -> Kernel:
    axes, keepdims = attributes["axis"], attributes["keepdims"]
    axes = None if axes is None else tuple(axes)
    return lambda x: torch.mean(x, axes, keepdims)


def _plain(function: Callable[..., Tensor]) -> Builder:
    return lambda attributes: function


_PLAIN: dict[str, Callable[..., Tensor]] = {
    "relax.add": torch.add,
    "relax.subtract": torch.sub,
    "relax.multiply": torch.mul,
    "relax.divide": torch.div,
    "relax.matmul": torch.matmul,
    "relax.sigmoid": torch.sigmoid,
    "relax.tanh": torch.tanh,
    "relax.nn.relu": torch.relu,
    "relax.nn.silu": F.silu,
}
for _name, _function in _PLAIN.items():
    kernel(_name)(_plain(_function))

#: Calls that may overwrite their argument where a call of ``ALLOCATES`` made it and nothing else reads it.
IN_PLACE: dict[str, Kernel] = {"relax.nn.relu": torch.relu_, "relax.sigmoid": torch.sigmoid_}

#: Calls whose result is memory of its own, never a view of an argument.
ALLOCATES = frozenset({"relax.nn.conv2d", "relax.nn.batch_norm", "relax.matmul"})
