"""How far apart two outputs are, and how far they may be."""

from __future__ import annotations

import torch
from torch import Tensor

#: Allowed difference by the precision of the output, as a share of how much its values vary.
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float32: 1e-4, torch.float64: 1e-8}
#: What the size of the values adds to that: numbers near each other are still rounded by their size.
_SIZE_SHARE = 0.1


def difference(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    """Largest difference, and the largest that is allowed; values that are not finite must be the same.

    What is allowed goes by the values: probabilities of a thousand classes differ by far less than one would notice by
    a fixed number.
    """
    finite = torch.isfinite(theirs)
    if not torch.allclose(ours[~finite], theirs[~finite], rtol=0.0, atol=0.0, equal_nan=True):
        return float("inf"), 0.0
    found, expected = ours[finite].double(), theirs[finite].double()
    if expected.numel() == 0:
        return 0.0, 0.0
    spread = expected.std(correction=0) + _SIZE_SHARE * expected.abs().max()
    return (found - expected).abs().max().item(), TOLERANCE.get(theirs.dtype, 0.0) * spread.item()
