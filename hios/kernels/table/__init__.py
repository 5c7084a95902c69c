"""The kernel table: one torch call for every Relax operator that hios runs.

An entry is a builder. It takes the operator's attributes (by their Relax names, as in graph.json) and returns a
function of its tensor arguments, so that everything that is known before the run is worked out before the run.
Numbers that Relax passes as arguments, such as the bounds of a clip, are arguments here too. Where a builder is
for several attributes but not for all values, it refuses the others.

To add an operator, add a builder to the file of its kind; tests compare every entry with eager torch.
"""

from hios.kernels.table import (
    convolution,
    creation,
    elementwise,
    indexing,
    layout,
    linear,
    normalization,
    pooling,
    reduction,
    resizing,
)
from hios.kernels.table.kernel_registry import ALLOCATES, IN_PLACE, KERNELS, Attributes, Builder, Kernel, build, kernel

__all__ = [
    "ALLOCATES",
    "IN_PLACE",
    "KERNELS",
    "Attributes",
    "Builder",
    "Kernel",
    "build",
    "convolution",
    "creation",
    "elementwise",
    "indexing",
    "kernel",
    "layout",
    "linear",
    "normalization",
    "pooling",
    "reduction",
    "resizing",
]
