"""Pooling over windows and to a fixed size."""

from __future__ import annotations

import math

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.kernels.table.attributes import explicit_padding, only, refuse, sizes, split_padding
from hios.kernels.table.kernel_registry import Attributes, Builder, Kernel, kernel

#: By number of dimensions.
_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_MAX: dict[int, Kernel] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE: dict[int, Kernel] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_ADAPTIVE: dict[int, Kernel] = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def _require_layout(attributes: Attributes, dimensions: int) -> None:
    only(attributes, "layout", _LAYOUT[dimensions])
    only(attributes, "out_layout", _LAYOUT[dimensions])


def _max_pool(dimensions: int) -> Builder:
    function = _MAX[dimensions]

    def builder(attributes: Attributes) -> Kernel:
        _require_layout(attributes, dimensions)
        size, stride = sizes(attributes, "pool_size", dimensions), sizes(attributes, "strides", dimensions)
        dilation, ceil_mode = sizes(attributes, "dilation", dimensions), attributes["ceil_mode"]
        padding, explicit = split_padding(sizes(attributes, "padding", 2 * dimensions, 0))
        if any(side > window // 2 for side, window in zip(padding, size, strict=True)):
            # torch's own padding is limited to half the window.
            padding, explicit = (0,) * dimensions, explicit_padding(attributes["padding"])

        def run(x: Tensor) -> Tensor:
            if explicit is not None:
                x = F.pad(x, explicit, value=-math.inf)
            result: Tensor = function(x, size, stride, padding, dilation, ceil_mode)
            return result

        return run

    return builder


def _avg_pool(dimensions: int) -> Builder:
    function = _AVERAGE[dimensions]

    def builder(attributes: Attributes) -> Kernel:
        _require_layout(attributes, dimensions)
        size, stride = sizes(attributes, "pool_size", dimensions), sizes(attributes, "strides", dimensions)
        ceil_mode, count_include_pad = attributes["ceil_mode"], attributes["count_include_pad"]
        padding, explicit = split_padding(sizes(attributes, "padding", 2 * dimensions, 0))
        if any(step != 1 for step in sizes(attributes, "dilation", dimensions)):
            raise refuse("dilation", attributes["dilation"], "1")
        if explicit is not None and (ceil_mode or not count_include_pad):
            raise refuse("padding", attributes["padding"], "equal padding on both sides of an axis")
        if any(side > window // 2 for side, window in zip(padding, size, strict=True)):
            raise refuse("padding", attributes["padding"], f"half of the window {list(size)}")

        def run(x: Tensor) -> Tensor:
            if explicit is not None:
                x = F.pad(x, explicit)
            result: Tensor = function(x, size, stride, padding, ceil_mode, count_include_pad)
            return result

        return run

    return builder


def _adaptive_avg_pool(dimensions: int) -> Builder:
    function = _ADAPTIVE[dimensions]

    def builder(attributes: Attributes) -> Kernel:
        _require_layout(attributes, dimensions)
        if attributes["output_size"] is None:
            raise refuse("output_size", None, "a size")
        size = sizes(attributes, "output_size", dimensions)
        return lambda x: function(x, size)

    return builder


for _dimensions in _LAYOUT:
    kernel(f"relax.nn.max_pool{_dimensions}d", allocates=True)(_max_pool(_dimensions))
    kernel(f"relax.nn.avg_pool{_dimensions}d", allocates=True)(_avg_pool(_dimensions))
    # torch may return its input if the size does not change, so this does not allocate.
    kernel(f"relax.nn.adaptive_avg_pool{_dimensions}d")(_adaptive_avg_pool(_dimensions))
