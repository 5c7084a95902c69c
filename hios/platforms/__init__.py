"""Where costs are measured and schedules run: a folder a platform, and what all of them share.

cpu             devices are cores
cuda            devices are GPUs
model           GPUs that are not here: predicts costs, and runs nothing
bench           what a platform measures
workloads       what is timed: operators with random weights and inputs
device_program  a schedule as what each device does
competitor      what runs in a session, with what was measured of it
weights         weights.safetensors, checked against the graph
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
    from hios.platforms.cpu import platform as cpu
    from hios.platforms.cuda import platform as cuda

    if name not in PLATFORMS:
        raise PlatformError(f"unknown platform {name}; allowed: {', '.join(PLATFORMS)}")
    return {"cpu": cpu, "cuda": cuda}[name]
