"""Checks of the kernel table, one of each entry, in NAME_checks.py for hios/kernels/table/NAME.py."""

from tests.kernels.table import (
    convolution_checks,
    creation_checks,
    elementwise_checks,
    indexing_checks,
    layout_checks,
    linear_checks,
    normalization_checks,
    pooling_checks,
    reduction_checks,
    resizing_checks,
)
from tests.kernels.table.checks import CHECKS, Run

__all__ = [
    "CHECKS",
    "Run",
    "convolution_checks",
    "creation_checks",
    "elementwise_checks",
    "indexing_checks",
    "layout_checks",
    "linear_checks",
    "normalization_checks",
    "pooling_checks",
    "reduction_checks",
    "resizing_checks",
]
