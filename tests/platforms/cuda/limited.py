"""A worker whose GPU has no memory left once everything is loaded."""

from __future__ import annotations

from typing import Any

import torch

from hios.platforms.cuda import worker as device
from hios.workers.worker import Worker


def load(worker: Worker, **given: Any) -> bool:
    """What ``device.load`` does; then nothing more can be allocated."""
    loaded = device.load(worker, **given)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-6)
    return loaded
