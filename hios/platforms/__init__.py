"""Devices: what there is, and the worker processes that stand for them.

cpu      cores as devices, what they are, how many may be asked for
cuda     the same of GPUs
parent   processes that end with the one that started them
pool     worker processes, one a device, pinned to its cores, and calls to them
worker   the main function of a worker process
messages what goes between it and its pool, in parts
memory   memory of a device, kept between operators
arena    memory that the workers share: flags to signal with and buffers to hand tensors over in
streams  threads of a device that run groups or streams beside each other
"""

from __future__ import annotations

from types import ModuleType

from hios.errors import PlatformError
from hios.models import PLATFORMS


def find(name: str) -> ModuleType:
    """The module of a platform: ``describe(devices, virtual=False)`` says what its devices are, for artifacts.

    Raises:
        PlatformError: there is no platform of that name.
    """
    from hios.platforms import cpu, cuda

    if name not in PLATFORMS:
        raise PlatformError(f"unknown platform {name}; allowed: {', '.join(PLATFORMS)}")
    return {"cpu": cpu, "cuda": cuda}[name]
