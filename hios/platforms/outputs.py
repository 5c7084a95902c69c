"""Whether outputs of a run are those of the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class ReducedPrecision:
    """How runs that are timed are less precise than float32, and how their outputs are then compared.

    Attributes:
        name: of the precision, for messages.
        tolerance: allowed difference at least.
        compare: as `compared`, with a tolerance that is a share of the largest value of an output.
    """

    name: str
    tolerance: float
    compare: Callable[[Tensor, Tensor, float], tuple[float, bool]]


def compared(found: Tensor, expected: Tensor, tolerance: float) -> tuple[float, bool]:
    """Largest absolute difference of an output, and whether every value is within the tolerance.

    A value that is not a number on one side only differs infinitely.

    Args:
        found: of the run.
        expected: of the reference, of the same shape. Values that are not finite there must be the same.
        tolerance: allowed difference, absolute plus relative.
    """
    ours, theirs = found.double(), expected.double()
    same = (ours == theirs) | (torch.isnan(ours) & torch.isnan(theirs))
    off = torch.where(same, 0.0, (ours - theirs).abs().nan_to_num(nan=torch.inf, posinf=torch.inf))
    within = same | (off <= tolerance * (1 + theirs.abs())) & torch.isfinite(theirs)
    return (off.max().item() if off.numel() else 0.0), bool(within.all())
