"""Resizing images."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.kernels.table.attributes import only, refuse
from hios.kernels.table.kernel_registry import Attributes, Kernel, kernel

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
