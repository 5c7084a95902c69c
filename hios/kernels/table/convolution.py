"""Convolutions of one, two and three dimensions as torch calls; ``kernels.onednn`` has faster ones for the CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.kernels.table.attributes import cast, count, dtype_of, only, refuse, sizes, split_padding
from hios.kernels.table.kernel_registry import Attributes, Builder, Kernel, kernel

#: By number of dimensions: spatial axes, and torch's functions. Images are NC and these, filters OI (transposed IO).
_AXES = {1: "W", 2: "HW", 3: "DHW"}
_CONVOLUTION: dict[int, Kernel] = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
_TRANSPOSED: dict[int, Kernel] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _convolution(dimensions: int, transposed: bool) -> Builder:
    function = (_TRANSPOSED if transposed else _CONVOLUTION)[dimensions]

    def builder(attributes: Attributes) -> Kernel:
        axes = _AXES[dimensions]
        only(attributes, "data_layout", f"NC{axes}")
        only(attributes, "kernel_layout", f"{'IO' if transposed else 'OI'}{axes}")
        only(attributes, "out_layout", f"NC{axes}")
        stride, dilation = sizes(attributes, "strides", dimensions), sizes(attributes, "dilation", dimensions)
        groups = count(attributes, "groups")
        more = (
            (sizes(attributes, "output_padding", dimensions, 0), groups, dilation) if transposed else (dilation, groups)
        )
        padding, explicit = split_padding(sizes(attributes, "padding", 2 * dimensions, 0))
        if explicit is not None and transposed:
            raise refuse("padding", attributes["padding"], "equal padding on both sides of an axis")

        # Relax's convolution has no bias; folding adds one, see hios.frontends.folding.
        def run(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
            if explicit is not None:
                x = F.pad(x, explicit)
            result: Tensor = function(x, weight, bias, stride, padding, *more)
            return result

        return cast(run, dtype_of(attributes, "out_dtype"))

    return builder


for _dimensions in _AXES:
    kernel(f"relax.nn.conv{_dimensions}d", allocates=True)(_convolution(_dimensions, transposed=False))
    kernel(f"relax.nn.conv{_dimensions}d_transpose", allocates=True)(_convolution(_dimensions, transposed=True))
