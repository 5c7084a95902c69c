"""Handing values over."""

from __future__ import annotations

import pytest
import torch

from hios.errors import PlatformError
from hios.platforms.workloads import deliver


def test_fitting_value_is_copied() -> None:
    """A value of the stated shape and dtype arrives in its buffer."""
    buffer = torch.zeros(2, 3)
    deliver(torch.ones(2, 3), buffer)
    assert bool((buffer == 1).all())


@pytest.mark.parametrize("value", [torch.ones(3), torch.ones(1, 3), torch.ones(2, 3, dtype=torch.float64)])
def test_other_shape_or_dtype_is_refused(value: torch.Tensor) -> None:
    """What copy_ would broadcast or convert is refused, and the buffer stays as it was."""
    buffer = torch.zeros(2, 3)
    with pytest.raises(PlatformError, match=r"the graph states \(2, 3\) and torch\.float32"):
        deliver(value, buffer)
    assert bool((buffer == 0).all())
