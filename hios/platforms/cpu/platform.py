"""The cpu platform: a device is a core, its worker a process pinned to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from hios import machine
from hios.errors import PlatformError
from hios.formats.base import Platform
from hios.machine import usable_cores

#: Virtual devices of a core at most: each is a process that holds torch and the weights.
_MOST_OF_A_CORE = 16
#: Pause in seconds after something that ran with several threads: idle threads of OpenMP spin on for some milliseconds,
#: and would slow whoever takes its turn next on their cores.
SETTLE_S = 0.03
VIRTUAL = True
RUNTIMES = ("eager", "compile", "onnxruntime", "openvino")
TRANSPORTS = ("gloo", "mpi")
OPTIMIZES = True


def device_cores(devices: int, *, virtual: bool = False) -> list[list[int]]:
    """Cores of every device: one core each, separate physical cores first.

    Args:
        devices: how many there are to be.
        virtual: whether devices may share cores: device i has core i modulo the number of cores.

    Raises:
        PlatformError: fewer than one device, more than cores that are not virtual, or too many processes.
    """
    cores = usable_cores()
    most = len(cores) * (_MOST_OF_A_CORE if virtual else 1)
    if not 1 <= devices <= most:
        reason = "each is a process" if virtual else "a device is a core; --virtual lets devices share cores"
        raise PlatformError(
            f"platform cpu: devices: found {devices}; allowed: 1 to {most}, as this process may run on {len(cores)} "
            f"core(s) and {reason}"
        )
    return [[cores[device % len(cores)]] for device in range(devices)]


def cores_of(description: Platform) -> list[list[int]]:
    """Cores of every device that a description states."""
    return [list(own) for own in description.cores or ()]


def all_cores(cores: Sequence[Sequence[int]]) -> list[int]:
    """The cores of all devices together; virtual devices share some."""
    return list(dict.fromkeys(core for own in cores for core in own))


def describe(devices: int, *, virtual: bool = False, **_: Any) -> Platform:
    """The platform as artifacts state it; takes half a second to see what else keeps its cores busy.

    Args:
        devices: how many there are to be.
        virtual: whether devices may share cores; the description then has ``virtual`` if they do.

    Raises:
        PlatformError: as of `device_cores`.
    """
    cores = device_cores(devices, virtual=virtual)
    used = {core for own in cores for core in own}
    return Platform(
        name="cpu",
        devices=devices,
        cores=tuple(map(tuple, cores)),
        processor=machine.processor(),
        load_average=round(os.getloadavg()[0], 2),
        busy_share=machine.busy_share(used),
        virtual=True if len(used) < devices else None,
    )


def device_limit(cores: int) -> tuple[int, str]:
    """As many devices as cores, unless they are virtual."""
    return cores, (
        "the cores that can be used here (platform cpu pins every device to a core of its own, unless they are "
        "virtual: true)"
    )
