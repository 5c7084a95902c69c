"""Precision of float32: full where outputs are compared, and while timing what torch does by default.

By default torch lets cuDNN convolve in TF32, with the 10 bits of a half-precision fraction, on GPUs that can. Two ways
to compute the same network then differ by about a thousandth of its outputs, and it could not be told whether one of
them is wrong. So every way is compared once in full float32, where a difference of 1e-4 means something; timed runs,
in TF32, are held to a tolerance that finds what is missing or mixed up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from hios.platforms.outputs import ReducedPrecision, compared

#: Allowed difference of timed runs in TF32, as a share of the largest value of an output.
TF32_TOLERANCE = 2e-2
#: TF32 came with compute capability 8.0.
_FIRST_MAJOR = 8


def uses_tf32(majors: list[int]) -> bool:
    """Whether convolutions or matrix products run in TF32 now.

    Args:
        majors: first number of the compute capability of every GPU.
    """
    allowed = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    return bool(allowed) and max(majors) >= _FIRST_MAJOR


@contextlib.contextmanager
def exactly() -> Iterator[None]:
    """Full float32 for what is launched within."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32
    cudnn.allow_tf32 = matmul.allow_tf32 = False
    try:
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32 = before


def scaled(found: Tensor, expected: Tensor, tolerance: float) -> tuple[float, bool]:
    """Largest absolute difference of an output, and whether every value is within the tolerance.

    As ``compared``, but the tolerance is a share of the largest finite value of the output, or of 1 where that is less:
    rounding of the sums behind an output shows in its small values too.
    """
    if not expected.is_floating_point():
        return compared(found, expected, tolerance)
    finite = expected[torch.isfinite(expected)].abs()
    size = max(1.0, finite.max().item() if finite.numel() else 0.0)
    off, within = compared(found / size, expected / size, tolerance)
    return off * size, within


#: How runs in TF32 are held to the expected outputs.
TF32 = ReducedPrecision("TF32", TF32_TOLERANCE, scaled)
