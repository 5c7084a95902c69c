"""The machine: cores and time on them that this process may use, its processor, and how busy others keep the cores."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Collection
from pathlib import Path

from hios.machine import topology

#: Share of the cores' time used by other processes above which measurements are not trusted: they are not cached, and
#: users are warned.
BUSY = 0.1

_STATISTICS = Path("/proc/stat")
_CPUS = Path("/sys/devices/system/cpu")
#: Environment variables that affect torch's kernels and memory.
_VARIABLES = (
    "ATEN_",
    "DNNL_",
    "GLIBC_TUNABLES",
    "GOMP_",
    "KMP_",
    "LD_PRELOAD",
    "MALLOC_",
    "MKL_",
    "OMP_DYNAMIC",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "OMP_THREAD_LIMIT",
    "OMP_WAIT_",
    "ONEDNN_",
)


def usable_cores() -> list[int]:
    """Logical CPUs that this process may run on, in the order of `hios.machine.topology.in_order`."""
    return topology.in_order(topology.read())


def processor() -> str:
    """Model name of the processor."""
    for line in topology.system_text(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def governor(cores: Collection[int]) -> str | None:
    """What decides the clock rates of cores: Linux's frequency governors, each once; None if it does not say."""
    names = {topology.system_text(_CPUS / f"cpu{core}" / "cpufreq/scaling_governor") for core in cores}
    return ", ".join(sorted(filter(None, names))) or None


def quota(process: Path = Path("/proc/self")) -> float | None:
    """How many cores' time the control groups (cgroups) of a process leave it, those around them too; None if all.

    A group gets no more than those that it is nested in, up to the root of what is mounted, which a container is shown
    as the root of everything. Version 2 has one hierarchy of groups, version 1 one for processor time.
    """
    groups: dict[str, str] = {}
    for line in topology.system_text(process / "cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), group))
    quotas: list[float] = []
    for line in topology.system_text(process / "mountinfo").splitlines():
        mount, _, kind = line.partition(" - ")
        kind, *_, options = kind.split()
        controller = {"cgroup2": "", "cgroup": "cpu"}.get(kind)
        if controller not in groups or (controller and controller not in options.split(",")):
            continue
        root, point = mount.split()[3:5]
        inside = os.path.relpath(groups[controller], root)
        folder = Path(point) if inside.startswith("..") else Path(point, inside)
        while True:
            quotas += _quota_of(folder)
            if folder == Path(point):
                break
            folder = folder.parent
    return min(quotas, default=None)


def _quota_of(folder: Path) -> list[float]:
    """The quota of one control group in cores, if it has one: "max" or -1 is none."""
    two = topology.system_text(folder / "cpu.max").split()
    one = [topology.system_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    return [int(time) / int(period) for time, period in (two or one,) if time.isdigit() and period.isdigit()]


def busy_share(cores: Collection[int], seconds: float = 0.5) -> float:
    """The share of the next ``seconds`` that cores spend on other work, including stolen time; 0 if unknown."""
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


class OtherWork:
    """Measures how busy other processes keep some cores, from its creation until `share` is called.

    ``children`` are process IDs of this process's own workers that run already: what they have used does not count.
    """

    def __init__(self, cores: Collection[int], children: Collection[int] = ()) -> None:
        self._cores = cores
        self._before = self._now(children)

    def share(self, children: Collection[int] = ()) -> float:
        """Share of the cores' time used by others since its creation, including stolen time; 0 if unknown.

        The work of ``children``, workers of this process by now, does not count as that of others: those since the
        creation, and others that have been started since.
        """
        total, idle, own = (after - earlier for after, earlier in zip(self._now(children), self._before, strict=True))
        return 0.0 if total <= 0 else round(min(max(0.0, 1 - (idle + own) / total), 1.0), 3)

    def _now(self, children: Collection[int]) -> tuple[float, float, float]:
        """Ticks of the cores, of those idle ones, and of this process with its children."""
        if not _STATISTICS.exists():
            return 0.0, 0.0, 0.0
        used = os.times()
        # The process's own time is known to less than a tick, which counts where little time has passed.
        seconds = time.process_time() + used.children_user + used.children_system
        per_second = os.sysconf("SC_CLK_TCK")
        return *_times(self._cores), seconds * per_second + sum(map(_ticks_of, children))


def _ticks_of(pid: int) -> int:
    """Ticks that a process has used since its start; 0 if it has ended."""
    text = topology.system_text(Path(f"/proc/{pid}/stat"))
    # The name in parentheses may contain any characters; user and system time are the 12th and 13th field after it.
    return sum(map(int, text.rpartition(")")[2].split()[11:13]))


def private_bytes(pid: int, *, written: bool = False) -> int:
    """Memory that a process shares with no other, in bytes; 0 if the system does not report it.

    With ``written``, only what the process has written. The rest are pages of files, such as libraries, which count as
    soon as the last other process that has mapped them ends.
    """
    lines = topology.system_text(Path(f"/proc/{pid}/smaps_rollup")).splitlines()
    kind = "Private_Dirty" if written else "Private_"
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))


def variables(beginnings: tuple[str, ...] = _VARIABLES) -> dict[str, str]:
    """Environment variables by how they begin; those that affect torch's kernels, threads and memory by default."""
    return {name: os.environ[name] for name in sorted(os.environ) if name.startswith(beginnings)}
