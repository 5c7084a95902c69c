"""Checks of the kernel table, one of each entry, in NAME_checks.py for hios/kernels/table/NAME.py."""

from tests.kernels.table import elementwise_checks, images_checks, layout_checks, matrix_checks, reduction_checks
from tests.kernels.table.checks import CHECKS, Run

__all__ = [
    "CHECKS",
    "Run",
    "elementwise_checks",
    "images_checks",
    "layout_checks",
    "matrix_checks",
    "reduction_checks",
]
