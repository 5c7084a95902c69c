"""The cpu platform: a device is a core, its worker a process pinned to it."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from hios.errors import PlatformError


def usable_cores() -> list[int]:
    """Cores this process may run on."""
    return sorted(os.sched_getaffinity(0))


def device_cores(devices: int) -> list[list[int]]:
    """Cores of every device: one core each, the lowest first.

    Raises:
        PlatformError: fewer than one device, or more devices than cores.
    """
    cores = usable_cores()
    if not 1 <= devices <= len(cores):
        raise PlatformError(
            f"platform cpu: devices: found {devices}; allowed: 1 to {len(cores)}, as this process may run on "
            f"{len(cores)} core(s) and a device is a core"
        )
    return [[core] for core in cores[:devices]]


def describe(devices: int) -> dict[str, Any]:
    """The platform as artifacts state it."""
    return {
        "name": "cpu",
        "devices": devices,
        "cores": device_cores(devices),
        "processor": _processor(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of the software that costs and runs depend on."""
    found = {"python": platform.python_version(), "kernel": platform.release()}
    for package in ("hios", "torch", "apache-tvm", "numpy", "snakemake"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
