"""Checks of the kernel table, one of each entry, in files by the same names as in hios/kernels/table."""

from tests.kernels.table import (
    convolution,
    creation,
    elementwise,
    indexing,
    layout,
    linear,
    normalisation,
    ordering,
    pooling,
    reduction,
    resizing,
)
from tests.kernels.table.checks import CHECKS, Run

__all__ = [
    "CHECKS",
    "Run",
    "convolution",
    "creation",
    "elementwise",
    "indexing",
    "layout",
    "linear",
    "normalisation",
    "ordering",
    "pooling",
    "reduction",
    "resizing",
]
