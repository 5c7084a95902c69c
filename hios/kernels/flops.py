"""Floating-point operations of a Relax operator; a multiply-add counts two, as in torch's own counter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Shape = Sequence[int]


def flops(function: str, attributes: Mapping[str, Any], arguments: Sequence[Shape], output: Shape) -> int:
    """Operations of one call.

    Convolution and matrix product are counted exactly, pooling one per element of the window, operators that
    only move data none, everything else one per element of the output.

    Args:
        function: Relax operator name.
        attributes: its attributes.
        arguments: shapes of its tensor arguments.
        output: shape of its (first) output.
    """
    size = math.prod(output)
    if function == "relax.nn.conv2d":
        return 2 * size * math.prod(arguments[1][1:])
    if function == "relax.matmul":
        return 2 * size * arguments[0][-1]
    if function in ("relax.nn.max_pool2d", "relax.nn.avg_pool2d"):
        return size * math.prod(attributes["pool_size"])
    if function in ("relax.nn.adaptive_avg_pool2d", "relax.mean"):
        return math.prod(arguments[0])
    if function in ("relax.concat", "relax.reshape", "relax.permute_dims"):
        return 0
    return size
