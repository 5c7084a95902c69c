"""Tests that need a GPU: marked, and skipped with a reason where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

#: GPUs that torch finds.
GPUS = torch.cuda.device_count()
_skip = pytest.mark.skipif(GPUS < 1, reason="no CUDA device")
needs_two_gpus = pytest.mark.skipif(GPUS < 2, reason="needs two CUDA devices")


def requires_gpu(test: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a test ``gpu``; it is skipped, and says so, where there is no CUDA device."""
    marked: Callable[..., Any] = pytest.mark.gpu(_skip(test))
    return marked
