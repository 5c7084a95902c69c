"""The cpu platform: a device is a core or a group of cores, its worker a process pinned to them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from hios.errors import PlatformError
from hios.files.base import Platform
from hios.machine import description, topology

#: Maximum number of virtual devices per core: each is a process with torch and the weights.
_MOST_OF_A_CORE = 16
#: Pause in seconds after a run with several threads: idle threads of OpenMP keep spinning for some milliseconds, which
#: would slow the next run on their cores.
SETTLE_S = 0.03
VIRTUAL = True
GROUPS_CORES = True
RUNTIMES = ("eager", "compile", "onnxruntime", "openvino")
TRANSPORTS = ("gloo", "mpi")
OPTIMIZES = True


def device_cores(devices: int, cores_per_device: int = 1, *, virtual: bool = False) -> list[list[int]]:
    """Cores of every device: groups by the topology of the machine (`topology.shared_groups`).

    Virtual devices may share cores if there are too few; cores are then assigned in turn.

    Raises:
        PlatformError: fewer than one device or core, more than there are cores, or too many processes.
    """
    usable = topology.read()
    most = len(usable) * (_MOST_OF_A_CORE if virtual else 1)
    if not 1 <= cores_per_device <= most:
        raise PlatformError(
            f"platform cpu: cores_per_device: found {cores_per_device}; allowed: 1 to {most}, as this process may run "
            f"on {len(usable)} core(s)"
        )
    if not 1 <= devices <= most // cores_per_device:
        of = f" of {cores_per_device} cores each" if cores_per_device > 1 else ""
        what = f"a device is {cores_per_device} cores" if cores_per_device > 1 else "a device is a core"
        reason = "each is a process" if virtual else f"{what}; --virtual lets devices share cores"
        raise PlatformError(
            f"platform cpu: devices: found {devices}{of}; allowed: 1 to {most // cores_per_device}, as this process "
            f"may run on {len(usable)} core(s) and {reason}"
        )
    return topology.shared_groups(usable, devices, cores_per_device)


def cores_of(platform: Platform) -> list[list[int]]:
    """Cores of every device that a description states."""
    return [list(own) for own in platform.cores or ()]


def all_cores(cores: Sequence[Sequence[int]]) -> list[int]:
    """The cores of all devices together; virtual devices share some."""
    return list(dict.fromkeys(core for own in cores for core in own))


def describe(devices: int, *, virtual: bool = False, cores_per_device: int = 1, **_: Any) -> Platform:
    """The platform as artifacts state it; takes half a second to see what else keeps its cores busy.

    It has ``virtual`` if devices share cores.

    Raises:
        PlatformError: as of `device_cores`.
    """
    cores = device_cores(devices, cores_per_device, virtual=virtual)
    used = {core for own in cores for core in own}
    return Platform(
        name="cpu",
        devices=devices,
        cores=tuple(map(tuple, cores)),
        cores_per_device=cores_per_device,
        processor=description.processor(),
        governor=description.governor(used),
        load_average=round(os.getloadavg()[0], 2),
        busy_share=description.busy_share(used),
        virtual=True if len(used) < devices * cores_per_device else None,
    )


def device_limit(cores: int, cores_per_device: int = 1) -> tuple[int, str]:
    """As many devices as groups of cores, unless they are virtual."""
    if cores_per_device > 1:
        return cores // cores_per_device, (
            f"as platform cpu pins every device to {cores_per_device} cores of its own (cores_per_device), unless they "
            f"are virtual: true, and {cores} can be used here"
        )
    return cores, (
        "the cores that can be used here (platform cpu pins every device to a core of its own, unless they are "
        "virtual: true)"
    )
