"""CPU topology: which logical CPUs share a core, a cache, a NUMA node or a socket, and groups of them.

`read` queries Linux; everything else is a pure function of its result.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_SYSTEM = Path("/sys")
#: Share of the largest capacity above which cores count as equally fast, as some clock slightly higher than others.
_FAST = 0.75
#: Variables by which GNU's OpenMP binds the thread that loads it, as ``import torch`` does, to the first of its places.
_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")


@dataclass(frozen=True, slots=True)
class LogicalCpu:
    """A logical CPU, which Linux schedules threads on, by its number there, and where it is.

    Core and cache are the lowest numbers of the logical CPUs of its physical core, and of those that share its last
    level of cache; ``node`` is the NUMA node. On hybrid processors, fast cores have a larger capacity.
    """

    number: int
    core: int
    cache: int = 0
    node: int = 0
    socket: int = 0
    capacity: int = 1


Topology = Sequence[LogicalCpu]
#: A physical core: its logical CPUs that may be used.
_Core = tuple[LogicalCpu, ...]


def read(usable: Collection[int] | None = None, system: Path = _SYSTEM) -> list[LogicalCpu]:
    """The usable logical CPUs; whatever sysfs, mounted at ``system``, does not state counts as shared by all.

    If their numbers are None, they are those that this process may run on: online CPUs within its cpuset and affinity
    mask.
    """
    numbers = sorted(usable_cpus() if usable is None else usable)
    nodes = _nodes(system / "devices/system/node")
    efficient = _numbers(system_text(system / "devices/cpu_atom/cpus"))
    cpus = []
    for number in numbers:
        folder = system / f"devices/system/cpu/cpu{number}"
        siblings = _numbers(system_text(folder / "topology/thread_siblings_list"))
        capacity = system_text(folder / "cpu_capacity")  # Arm; on hybrid processors of Intel there are two kinds of PMU
        cpus.append(
            LogicalCpu(
                number,
                core=min(siblings, default=number),
                cache=_last_level(folder / "cache"),
                node=nodes.get(number, 0),
                socket=max(0, _whole(system_text(folder / "topology/physical_package_id"), 0)),
                capacity=_whole(capacity, 0 if number in efficient else 1),
            )
        )
    return cpus


def usable_cpus() -> set[int]:
    """Numbers of the logical CPUs that this process may run on, whatever OpenMP has bound its main thread to."""
    numbers = os.sched_getaffinity(0)
    if not any(name in os.environ for name in _BINDING):
        return numbers
    mapped = (line.split(maxsplit=5) for line in system_text(Path("/proc/self/maps")).splitlines() if "libgomp" in line)
    for path in {words[-1] for words in mapped}:  # which may have spaces
        with contextlib.suppress(OSError):  # it was deleted since
            places = _places(ctypes.CDLL(path))
            if places[:1] == [numbers]:
                return set().union(*places)
    return numbers


def _places(openmp: ctypes.CDLL) -> list[set[int]]:
    """The logical CPUs of each place of OpenMP."""
    places = []
    for place in range(openmp.omp_get_num_places()):
        own = (ctypes.c_int * openmp.omp_get_place_num_procs(place))()
        openmp.omp_get_place_proc_ids(place, own)
        places.append(set(own))
    return places


def in_order(topology: Topology) -> list[int]:
    """Numbers of all logical CPUs: one of every physical core first, then their siblings.

    Fast cores come first, and neighbors stay together: those of a socket, of a node, of a cache.
    """
    cores = _cores(topology)
    most = max(map(len, cores), default=0)
    return [core[thread].number for thread in range(most) for core in cores if thread < len(core)]


def groups(topology: Topology, devices: int, size: int) -> list[list[int]]:
    """Groups of logical CPUs, each a device of ``size`` CPUs.

    As long as there are enough physical cores, a device gets one logical CPU of each of its own cores. Siblings are
    used only if cores run out; a device then gets whole physical cores if possible, so that no two devices share one. A
    group stays within a last-level cache if enough groups fit, else within a NUMA node, else within a socket, and
    consists of equally fast cores if possible. The first groups are neighbors, as devices exchange values, and get the
    fast cores of hybrid processors.

    Raises:
        ValueError: there are fewer logical CPUs than ``devices * size``.
    """
    if devices * size > len(topology):
        raise ValueError(f"{devices} x {size} logical CPUs of {len(topology)}")
    cores = _cores(topology)
    if devices * size <= len(cores):
        return _carved([core[:1] for core in cores], devices, size)
    threads = max(map(len, cores))
    whole = [core for core in cores if len(core) == threads]
    each = -(-size // threads)
    if devices * each <= len(whole):
        return [own[:size] for own in _carved(whole, devices, each)]
    order = in_order(topology)
    return [order[device * size : (device + 1) * size] for device in range(devices)]


def shared_groups(topology: Topology, devices: int, size: int) -> list[list[int]]:
    """Like `groups`; if there are too few logical CPUs, devices take them in turn."""
    if devices * size <= len(topology):
        return groups(topology, devices, size)
    turns = itertools.cycle(in_order(topology))
    return [list(itertools.islice(turns, size)) for _ in range(devices)]


def partitions(cpus: int) -> list[tuple[int, int]]:
    """Ways to divide a machine: numbers of devices and CPUs of each, 1 x n, 2 x n/2, 4 x n/4, ..., n x 1.

    Sizes are halved and rounded down; of each size there are as many devices as fit.
    """
    return [(cpus // size, size) for size in (cpus >> power for power in range(cpus.bit_length()))]


def divisions(topology: Topology, most: int) -> list[list[list[int]]]:
    """Groups of logical CPUs for each way to divide the physical cores among several devices, those of most CPUs first.

    These are the `partitions` that have 2 to ``most`` devices; where there is none, one group of one CPU.
    """
    ways = [way for way in partitions(len({cpu.core for cpu in topology})) if 1 < way[0] <= most]
    return [groups(topology, *way) for way in ways] or [groups(topology, 1, 1)]


def shape(topology: Topology, group: Iterable[int]) -> tuple[int, int, int]:
    """How many physical cores, last-level caches and NUMA nodes a group of logical CPUs spans."""
    members = [cpu for cpu in topology if cpu.number in set(group)]
    return len({cpu.core for cpu in members}), len({cpu.cache for cpu in members}), len({cpu.node for cpu in members})


def _cores(topology: Topology) -> list[_Core]:
    """Physical cores, fast ones first, then by socket, node and cache."""
    fast = _FAST * max((cpu.capacity for cpu in topology), default=0)
    members: dict[int, list[LogicalCpu]] = defaultdict(list)
    for cpu in sorted(topology, key=lambda cpu: cpu.number):
        members[cpu.core].append(replace(cpu, capacity=int(cpu.capacity >= fast)))
    return sorted(map(tuple, members.values()), key=lambda core: (*_domain(core[0]), core[0].core))


def _domain(cpu: LogicalCpu) -> tuple[int, ...]:
    """The position of a core, from the largest domain to the smallest."""
    return -cpu.capacity, cpu.socket, cpu.node, cpu.cache


def _carved(cores: Sequence[_Core], devices: int, size: int) -> list[list[int]]:
    """Groups of physical cores of a given size, those within the smallest domains first."""
    carved: list[Sequence[_Core]] = []
    left = list(cores)
    for depth in range(len(_domain(cores[0][0])), -1, -1):
        rest: list[_Core] = []
        for _, domain in itertools.groupby(left, key=lambda core: _domain(core[0])[:depth]):
            own = list(domain)
            whole = len(own) - len(own) % size
            carved += [own[first : first + size] for first in range(0, whole, size)]
            rest += own[whole:]
        left = rest
    return [[cpu.number for core in group for cpu in core] for group in carved[:devices]]


def _nodes(folder: Path) -> dict[int, int]:
    """NUMA node of every logical CPU."""
    return {
        cpu: int(node.name.removeprefix("node"))
        for node in folder.glob("node[0-9]*")
        for cpu in _numbers(system_text(node / "cpulist"))
    }


def _last_level(folder: Path) -> int:
    """Lowest number of the logical CPUs that share the last level of cache."""
    levels = {_whole(system_text(cache / "level"), 0): cache for cache in folder.glob("index[0-9]*")}
    return min(_numbers(system_text(levels[max(levels)] / "shared_cpu_list")), default=0) if levels else 0


def _numbers(text: str) -> set[int]:
    """Numbers of a list as Linux writes it, such as ``0-3,8``."""
    numbers: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _whole(text: str, default: int) -> int:
    return int(text) if text.lstrip("-").isdigit() else default


def system_text(path: Path) -> str:
    """The text of a system file; empty if it is missing or unreadable."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
