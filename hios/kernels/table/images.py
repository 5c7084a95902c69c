"""Pooling over windows and to a fixed size; resizing images."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.kernels.table.kernel_registry import (
    Attributes,
    Kernel,
    explicit_padding,
    kernel,
    only,
    refuse,
    sizes,
    split_padding,
)

#: By number of dimensions.
_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_MAX: dict[int, Kernel] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE: dict[int, Kernel] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_ADAPTIVE: dict[int, Kernel] = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def _require_layout(attributes: Attributes, dimensions: int) -> None:
    only(attributes, "layout", _LAYOUT[dimensions])
    only(attributes, "out_layout", _LAYOUT[dimensions])


def _max_pool(dimensions: int, attributes: Attributes) -> Kernel:
    function = _MAX[dimensions]
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
        if not (x.is_cuda and dimensions == 2 and _is_channels_last(x)):
            return function(x, size, stride, padding, dilation, ceil_mode)
        # torch's kernel for that order starts few blocks: 24 to 40 us for the pools of GoogLeNet on an H100.
        result = function(x.contiguous(), size, stride, padding, dilation, ceil_mode)
        return result.contiguous(memory_format=torch.channels_last)

    return run


def _is_channels_last(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def _avg_pool(dimensions: int, attributes: Attributes) -> Kernel:
    function = _AVERAGE[dimensions]
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
        return function(x, size, stride, padding, ceil_mode, count_include_pad)

    return run


def _adaptive_avg_pool(dimensions: int, attributes: Attributes) -> Kernel:
    function = _ADAPTIVE[dimensions]
    _require_layout(attributes, dimensions)
    if attributes["output_size"] is None:
        raise refuse("output_size", None, "a size")
    size = sizes(attributes, "output_size", dimensions)
    return lambda x: function(x, size)


for _dimensions in _LAYOUT:
    kernel(f"relax.nn.max_pool{_dimensions}d", allocates=True)(functools.partial(_max_pool, _dimensions))
    kernel(f"relax.nn.avg_pool{_dimensions}d", allocates=True)(functools.partial(_avg_pool, _dimensions))
    # torch may return its input if the size does not change, so this does not allocate.
    kernel(f"relax.nn.adaptive_avg_pool{_dimensions}d")(functools.partial(_adaptive_avg_pool, _dimensions))


#: Torch's names of Relax's methods.
_SMOOTH = {"linear": "bilinear", "cubic": "bicubic"}


@kernel("relax.image.resize2d", allocates=True)
def _resize2d(attributes: Attributes) -> Kernel:
    """To the size in the attribute ``shape``; methods and coordinates that torch has, or importers emit."""
    only(attributes, "layout", "NCHW")
    only(attributes, "out_dtype", None)
    size, method = tuple(attributes["shape"]), attributes["method"]
    coordinates = attributes["coordinate_transformation_mode"]
    if method == "nearest_neighbor":
        return _nearest(size, coordinates, attributes["rounding_method"])
    if method not in _SMOOTH:
        raise refuse("method", method, "nearest_neighbor, linear or cubic")
    if method == "cubic":
        only(attributes, "cubic_alpha", -0.75)
        only(attributes, "cubic_exclude", 0)
    # The two differ only in images of one row or column.
    half_pixel = coordinates == "half_pixel" or (coordinates == "pytorch_half_pixel" and min(size) > 1)
    if not half_pixel and coordinates != "align_corners":
        raise refuse("coordinate_transformation_mode", coordinates, "half_pixel or align_corners")
    return lambda x: F.interpolate(x, size, mode=_SMOOTH[method], align_corners=not half_pixel)


def _nearest(size: tuple[int, ...], coordinates: str, rounding: str) -> Kernel:
    if (coordinates, rounding) == ("asymmetric", "floor"):
        return lambda x: F.interpolate(x, size)
    if (coordinates, rounding) != ("half_pixel", "round"):
        raise refuse(
            "coordinate_transformation_mode and rounding_method",
            f"{coordinates} and {rounding}",
            "half_pixel and round, or asymmetric and floor",
        )

    def nearest(x: Tensor) -> Tensor:
        if all(own % given == 0 for own, given in zip(size, x.shape[2:], strict=True)):
            return F.interpolate(x, size)  # for integer factors all rounding modes agree
        rows, columns = (_places(given, own, x.device) for given, own in zip(x.shape[2:], size, strict=True))
        return x.index_select(2, rows).index_select(3, columns)

    return nearest


@functools.cache
def _places(given: int, own: int, device: torch.device) -> Tensor:
    """The pixels, of ``given``, that an axis of ``own`` pixels is sampled from: center to center, halves to even."""
    centers = (torch.arange(own, dtype=torch.float32) + 0.5) * (given / own) - 0.5
    return torch.round(centers).long().clamp(0, given - 1).to(device)
