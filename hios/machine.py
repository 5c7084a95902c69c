"""The machine: which cores this process may use, its processor, and what else keeps its cores busy."""

from __future__ import annotations

import platform
import time
from collections.abc import Collection
from pathlib import Path

from hios import cpu_topology

#: Share of the cores' time that other work takes from which on measurements are not to be trusted: they are not kept,
#: and people are warned.
BUSY = 0.1

_STATISTICS = Path("/proc/stat")


def usable_cores() -> list[int]:
    """Logical CPUs that this process may run on, in the order of `cpu_topology.in_order`."""
    return cpu_topology.in_order(cpu_topology.read())


def processor() -> str:
    """Model name of the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def busy_share(cores: Collection[int], seconds: float = 0.5) -> float:
    """Share of the next ``seconds`` that cores spend on other work, stolen time included; 0 where unknown."""
    if not _STATISTICS.exists():
        return 0.0
    before = _times(cores)
    time.sleep(seconds)
    total, idle = (after - earlier for after, earlier in zip(_times(cores), before, strict=True))
    return 0.0 if total <= 0 else round(max(0.0, 1 - idle / total), 3)


def _times(cores: Collection[int]) -> tuple[int, int]:
    """Ticks of all kinds, and idle ones, over some cores."""
    total = idle = 0
    for line in _STATISTICS.read_text(encoding="utf-8").splitlines():
        name, *ticks = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cores:
            total += sum(map(int, ticks[:8]))
            idle += int(ticks[3]) + int(ticks[4])
    return total, idle
