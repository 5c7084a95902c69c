"""Groups of cores on machines of many kinds, as Linux numbers their logical CPUs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hios.machine.topology import LogicalCpu, groups, in_order, partitions, read, shape
from tests.scripts import python

#: Prints the cores before torch is imported, those of the main thread afterwards, and those that may be used.
_BOUND = """
import json, os
before = os.sched_getaffinity(0)
import torch
from hios.machine.topology import usable_cpus
print(json.dumps([sorted(own) for own in (before, os.sched_getaffinity(0), usable_cpus())]))
"""
#: Two Xeon Gold 6248 with hyper-threading: 2 x 20 cores, even numbers on socket 0, siblings 40 behind.
TWO_SOCKETS = [LogicalCpu(cpu, cpu % 40, cpu % 2, cpu % 2, cpu % 2) for cpu in range(80)]
#: An EPYC 7302 with NPS1: 16 cores in 8 core complexes of two, each with an L3 of its own, siblings 16 behind.
SEVERAL_CACHES = [LogicalCpu(cpu, cpu % 16, cpu % 16 // 2 * 2) for cpu in range(32)]
#: An EPYC 7742 with NPS4 and without SMT: 64 cores, an L3 for every four, a NUMA node for every sixteen.
SEVERAL_NODES = [LogicalCpu(cpu, cpu, cpu // 4 * 4, cpu // 16) for cpu in range(64)]
#: A Core i9-12900K: 8 fast cores with two threads each, neighbors, then 8 slow ones; one L3.
HYBRID = [
    *(LogicalCpu(cpu, cpu // 2 * 2, capacity=1) for cpu in range(16)),
    *(LogicalCpu(cpu, cpu, capacity=0) for cpu in range(16, 24)),
]
#: An RK3588: four Cortex-A55, then four Cortex-A76 of which two clock a little higher.
BIG_LITTLE = [LogicalCpu(cpu, cpu, capacity=(414, 414, 414, 414, 1001, 1001, 1024, 1024)[cpu]) for cpu in range(8)]
#: An Ampere Altra: 80 cores, whose system-level cache Linux does not list, so that the last level is their own.
PRIVATE_CACHES = [LogicalCpu(cpu, cpu, cpu) for cpu in range(80)]
MACHINES = {
    "two sockets": TWO_SOCKETS,
    "several caches": SEVERAL_CACHES,
    "several nodes": SEVERAL_NODES,
    "hybrid": HYBRID,
    "big little": BIG_LITTLE,
    "private caches": PRIVATE_CACHES,
}


def _without(machine: list[LogicalCpu], *numbers: int) -> list[LogicalCpu]:
    return [cpu for cpu in machine if cpu.number not in numbers]


def test_order_is_socket_by_socket_and_siblings_last() -> None:
    """One of every core of socket 0, of socket 1, then the siblings in the same order."""
    order = in_order(TWO_SOCKETS)
    assert order[:20] == list(range(0, 40, 2))
    assert order[20:40] == list(range(1, 40, 2))
    assert order[40:60] == list(range(40, 80, 2))


#: What is asked for, and the groups, by what they show.
GROUPS: dict[str, list[tuple[list[LogicalCpu], int, int, list[list[int]]]]] = {
    "two devices of 16 cores are one a socket; two of 8 are neighbors on the first": [
        (TWO_SOCKETS, 2, 16, [list(range(0, 32, 2)), list(range(1, 32, 2))]),
        (TWO_SOCKETS, 2, 8, [list(range(0, 16, 2)), list(range(16, 32, 2))]),
    ],
    "where physical cores run out, devices get whole ones, so that they share none": [
        (
            TWO_SOCKETS,
            4,
            20,
            [[cpu for core in range(at, at + 20, 2) for cpu in (core, core + 40)] for at in (0, 20, 1, 21)],
        ),
        (HYBRID, 8, 2, [*([cpu, cpu + 2] for cpu in range(0, 16, 4)), *([cpu, cpu + 1] for cpu in range(16, 24, 2))]),
        (HYBRID[:16], 8, 2, [[cpu, cpu + 1] for cpu in range(0, 16, 2)]),
    ],
    "three CPUs are a core and one thread of another, whose other thread then stays unused": [
        ([LogicalCpu(cpu, cpu % 4) for cpu in range(8)], 2, 3, [[0, 4, 1], [2, 6, 3]]),
    ],
    "more devices than physical cores take the siblings once every core has a device": [
        (SEVERAL_CACHES, 18, 1, [[cpu] for cpu in range(18)]),
    ],
    "groups of two share an L3 cache of two cores; groups of three fit into none, and take neighboring cores": [
        (SEVERAL_CACHES, 3, 2, [[0, 1], [2, 3], [4, 5]]),
        (SEVERAL_CACHES, 2, 3, [[0, 1, 2], [3, 4, 5]]),
        (SEVERAL_NODES, 6, 3, [[first, first + 1, first + 2] for first in range(0, 24, 4)]),
    ],
    "sixteen groups of three lie in a cache each; the seventeenth is made of what they left, on one node": [
        (SEVERAL_NODES, 17, 3, [*([first, first + 1, first + 2] for first in range(0, 64, 4)), [3, 7, 11]]),
    ],
    "fast cores first: one of ten needs two slow ones; the third of three is not two fast ones with a slow one": [
        (HYBRID, 2, 4, [[0, 2, 4, 6], [8, 10, 12, 14]]),
        (HYBRID, 1, 10, [[0, 2, 4, 6, 8, 10, 12, 14, 16, 17]]),
        (HYBRID, 3, 3, [[0, 2, 4], [6, 8, 10], [16, 17, 18]]),
        (BIG_LITTLE, 1, 4, [[4, 5, 6, 7]]),
    ],
    "where every core has its last level of cache for itself, neighbors form a group": [
        (PRIVATE_CACHES, 2, 4, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    ],
    "a core that is offline, or outside the cpuset, is in no group; its sibling stands for it if there is one": [
        (_without(SEVERAL_CACHES, 0, 3, 19), 2, 2, [[16, 1], [4, 5]]),
        (_without(SEVERAL_NODES, 1), 2, 4, [[4, 5, 6, 7], [8, 9, 10, 11]]),
    ],
}


@pytest.mark.parametrize("requests", GROUPS.values(), ids=GROUPS)
def test_groups(requests: list[tuple[list[LogicalCpu], int, int, list[list[int]]]]) -> None:
    """Groups of cores are those that share most, as the name of the case says."""
    for topology, devices, size, expected in requests:
        assert groups(topology, devices, size) == expected


def test_groups_stay_on_a_node() -> None:
    """Three groups of twelve are one a node, though the second could begin on the first."""
    assert [shape(SEVERAL_NODES, group) for group in groups(SEVERAL_NODES, 3, 12)] == [(12, 3, 1)] * 3


@pytest.mark.parametrize("topology", MACHINES.values(), ids=MACHINES)
def test_more_cpus_than_there_are_is_refused(topology: list[LogicalCpu]) -> None:
    """Every logical CPU can be used, and not one more."""
    assert sorted(groups(topology, 1, len(topology))[0]) == [cpu.number for cpu in topology]
    with pytest.raises(ValueError, match=f"of {len(topology)}"):
        groups(topology, 1, len(topology) + 1)


@given(st.sampled_from(sorted(MACHINES)), st.integers(1, 80), st.integers(1, 80), st.data())
def test_groups_are_what_was_asked_for(machine: str, devices: int, size: int, data: st.DataObject) -> None:
    """Any part of a machine divides into groups that share no CPU, and no core while there are enough."""
    topology = MACHINES[machine]
    missing = data.draw(st.sets(st.sampled_from([cpu.number for cpu in topology]), max_size=len(topology) - 1))
    part = _without(topology, *missing)
    if devices * size > len(part):
        devices, size = 1, len(part)
    core_groups = groups(part, devices, size)
    used = [cpu for group in core_groups for cpu in group]
    assert [len(group) for group in core_groups] == [size] * devices
    assert len(set(used)) == len(used)
    assert set(used) <= {cpu.number for cpu in part}
    core = {cpu.number: cpu.core for cpu in part}
    if devices * size <= len(set(core.values())):
        assert len({core[cpu] for cpu in used}) == len(used)
    threads = Counter(core.values())
    most = max(threads.values())
    if devices * -(-size // most) <= sum(own == most for own in threads.values()):
        assert sum(len({core[cpu] for cpu in group}) for group in core_groups) == len({core[cpu] for cpu in used})


def test_partitions_divide_the_machine() -> None:
    """One device of all cores first, one a core last."""
    assert partitions(1) == [(1, 1)]
    assert partitions(2) == [(1, 2), (2, 1)]
    assert partitions(16) == [(1, 16), (2, 8), (4, 4), (8, 2), (16, 1)]
    assert partitions(20) == [(1, 20), (2, 10), (4, 5), (10, 2), (20, 1)]


def _write(system: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = system / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")


def test_the_system_is_read(tmp_path: Path) -> None:
    """Sockets, nodes, siblings and the last level of cache come from sysfs; CPU 3 is offline and has no topology."""
    for cpu in (0, 1, 2):
        folder = f"devices/system/cpu/cpu{cpu}"
        files = {
            f"{folder}/topology/thread_siblings_list": "0,2" if cpu != 1 else "1",
            f"{folder}/topology/physical_package_id": str(cpu % 2),
            f"{folder}/cache/index0/level": "1",
            f"{folder}/cache/index0/shared_cpu_list": str(cpu),
            f"{folder}/cache/index3/level": "3",
            f"{folder}/cache/index3/shared_cpu_list": "0,2" if cpu != 1 else "1,3",
        }
        _write(tmp_path, files)
    _write(tmp_path, {"devices/system/node/node0/cpulist": "0,2", "devices/system/node/node1/cpulist": "1,3"})
    assert read([0, 1, 2], tmp_path) == [LogicalCpu(0, 0), LogicalCpu(1, 1, 1, 1, 1), LogicalCpu(2, 0)]


#: Machines that real kernels described (`tests.machine.boot`): their CPUs as emulated, and groups by devices and sizes.
KERNELS: dict[str, tuple[list[LogicalCpu], dict[tuple[int, int], list[list[int]]]]] = {
    "one_socket": (
        [LogicalCpu(cpu, cpu // 2 * 2) for cpu in range(4)],
        {(2, 1): [[0], [2]], (2, 2): [[0, 1], [2, 3]]},
    ),
    "two_sockets": (
        [LogicalCpu(cpu, cpu // 2 * 2, cpu // 6 * 6, cpu // 6, cpu // 6) for cpu in range(12)],
        {(2, 2): [[0, 2], [6, 8]], (2, 3): [[0, 2, 4], [6, 8, 10]], (3, 2): [[0, 2], [6, 8], [4, 10]]},
    ),
    "four_sockets": (
        [LogicalCpu(cpu, cpu, cpu // 2 * 2, cpu // 2, cpu // 2) for cpu in range(8)],
        {(4, 2): [[0, 1], [2, 3], [4, 5], [6, 7]], (3, 1): [[0], [1], [2]], (2, 3): [[0, 1, 2], [3, 4, 5]]},
    ),
    "nodes_of_a_socket": (
        [LogicalCpu(cpu, cpu // 2 * 2, cpu // 4 * 4, cpu // 8) for cpu in range(16)],
        {(2, 2): [[0, 2], [4, 6]], (2, 3): [[0, 2, 4], [8, 10, 12]], (2, 4): [[0, 2, 4, 6], [8, 10, 12, 14]]},
    ),
    "memory_node": (
        [LogicalCpu(cpu, cpu, cpu // 2 * 2, 0, cpu // 2) for cpu in range(4)],
        {(2, 2): [[0, 1], [2, 3]]},
    ),
    "offline": (
        [LogicalCpu(0, 0), LogicalCpu(2, 2), LogicalCpu(3, 2), LogicalCpu(6, 6, 6, 0, 1), LogicalCpu(7, 6, 6, 0, 1)],
        {(3, 1): [[0], [2], [6]], (2, 2): [[2, 3], [6, 7]]},
    ),
    "limited": (
        [LogicalCpu(cpu, cpu // 2 * 2, cpu // 4 * 4, 0, cpu // 4) for cpu in range(2, 6)],
        {(2, 1): [[2], [4]], (2, 2): [[2, 3], [4, 5]]},
    ),
    "big_little": (
        [LogicalCpu(cpu, cpu, cpu, capacity=446 if cpu < 3 else 1024) for cpu in range(6)],
        {(1, 3): [[3, 4, 5]], (2, 2): [[3, 4], [0, 1]], (4, 1): [[3], [4], [5], [0]]},
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_machines_of_real_kernels(name: str, tmp_path: Path) -> None:
    """Sockets, nodes, caches, threads and kinds of cores are those that were emulated, whatever is off or forbidden."""
    text = (Path(__file__).parent / "kernels" / f"{name}.txt").read_text(encoding="utf-8")
    _, affinity, *folders = text.splitlines()
    for folder, *files in map(str.split, folders):
        _write(tmp_path, {f"{folder}/{file}": content for file, _, content in (file.partition("=") for file in files)})
    mask = int(affinity.rpartition(" ")[2], 16)
    machine, expected = KERNELS[name]
    found = read([cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1], tmp_path)
    assert found == machine
    assert {request: groups(found, *request) for request in expected} == expected


@pytest.mark.parametrize("given", [{"OMP_PROC_BIND": "true"}, {"GOMP_CPU_AFFINITY": "0-1"}])
def test_openmp_binds_the_main_thread(given: dict[str, Any]) -> None:
    """Where ``import torch`` leaves the main thread one core, the others may be used as before."""
    before, bound, usable = json.loads(python("-c", _BOUND, **given).stdout)
    assert usable == before
    if len(before) > 1 and {0, 1} <= set(before) and torch.backends.openmp.is_available():
        assert len(bound) == 1


def test_kinds_of_cores_are_read(tmp_path: Path) -> None:
    """Slow cores are those that Linux counts with the PMU of the efficient ones, or that state a smaller capacity."""
    _write(tmp_path, {"devices/cpu_atom/cpus": "2-3"})
    assert [cpu.capacity for cpu in read(range(4), tmp_path)] == [1, 1, 0, 0]
    _write(tmp_path, {f"devices/system/cpu/cpu{cpu}/cpu_capacity": str(100 + cpu) for cpu in range(4)})
    assert [cpu.capacity for cpu in read(range(4), tmp_path)] == [100, 101, 102, 103]


def test_a_system_that_says_nothing_has_equal_cores(tmp_path: Path) -> None:
    """Without sysfs every CPU is a core, and all share everything."""
    assert groups(read([4, 5, 6, 7], tmp_path), 2, 2) == [[4, 5], [6, 7]]
