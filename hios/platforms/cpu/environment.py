"""The measurement environment on cores: part of the keys of cached measurements."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import torch

from hios.machine import topology
from hios.machine.description import processor, quota, variables
from hios.machine.topology import system_text
from hios.platforms.code_hash import code_hash

_CPUINFO = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")
#: Fields that distinguish processors of the same name, as is common in virtual machines.
_PROCESSOR_FIELDS = ("vendor_id", "cpu family", "model", "stepping", "microcode")
#: Settings that affect clock rates, if the system has them: of the machine, and of a core.
_MACHINE_CLOCKS = ("cpufreq/boost", "intel_pstate/no_turbo", "intel_pstate/max_perf_pct", "smt/active")
_CORE_CLOCKS = ("cpufreq/scaling_driver", "cpufreq/scaling_governor", "cpufreq/scaling_max_freq")
#: The code that runs operators and stages, transfers values and times the probe.
_CODE = (
    "hios.platforms.cpu.timing",
    "hios.platforms.cpu.core_probe",
    "hios.workers.worker",
)


def settings(cores: list[list[int]]) -> dict[str, object]:
    """The measurement environment on cores: processor, clocks and software, including hios itself."""
    return {**surroundings(cores), "code": code_hash(_CODE)}


def surroundings(cores: list[list[int]]) -> dict[str, object]:
    """The measurement environment on cores, without hios itself.

    The number of the core is left out: if cores differ, they differ in their caches or clock rates.
    """
    used = sorted({core for own in cores for core in own})
    return {
        "processor": {"name": processor(), **_processor_fields()},
        "caches": _caches(used),
        "clocks": {
            **{name: system_text(_CPUS / name) for name in _MACHINE_CLOCKS},
            **{name: sorted({system_text(_CPUS / f"cpu{core}" / name) for core in used}) for name in _CORE_CLOCKS},
        },
        "threads_per_device": len(cores[0]),
        "cores_caches_nodes": list(topology.shape(topology.read(), cores[0])),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "environment": variables(),
        "quota": quota(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "onnxruntime": _version("onnxruntime"),  # runs operators that torch does not have
    }


def _version(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cache_bytes(core: int) -> int:
    """Size of the largest cache that a core has, shared or not; 0 if unknown."""
    return max((_size(text) for text in _caches([core])), default=0)


def _size(text: str) -> int:
    size = text.rpartition(" ")[2]
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1:], 0)
    return int(size[:-1]) * unit if unit and size[:-1].isdigit() else 0


def _caches(cores: list[int]) -> list[str]:
    """Level, kind and size of every cache."""
    folders = [folder for core in cores for folder in (_CPUS / f"cpu{core}" / "cache").glob("index*")]
    return sorted({" ".join(system_text(folder / name) for name in ("level", "type", "size")) for folder in folders})


def _processor_fields() -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in system_text(_CPUINFO).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in _PROCESSOR_FIELDS:
            fields.setdefault(name.strip(), value.strip())
    return fields
