"""The host of every rank and the cores that it runs on."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from hios import cpu_topology
from hios.errors import PlatformError

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class RankPlace:
    """The host of a rank, and the cores that the launcher lets it run on.

    ``boot`` is the ID of the running kernel; ranks with the same one share clock and cores.
    """

    host: str
    boot: str
    cores: tuple[int, ...]

    @classmethod
    def here(cls) -> RankPlace:
        """The host and cores of this process."""
        host = socket.gethostname()
        boot = _BOOT.read_text(encoding="utf-8").strip() if _BOOT.exists() else host
        return cls(host, boot, tuple(sorted(os.sched_getaffinity(0))))


def pin(places: Sequence[RankPlace], rank: int, size: int = 1) -> list[int]:
    """Pin this rank to ``size`` cores of its own, unless the launcher has done so; the cores that it may run on now.

    Ranks share cores if there are too few.

    Raises:
        PlatformError: the launcher gave this rank fewer cores.
    """
    here = [number for number, place in enumerate(places) if place.boot == places[rank].boot]
    apart = all(not set(places[one].cores) & set(places[other].cores) for one, other in combinations(here, 2))
    if apart and len(here) > 1:
        given = list(places[rank].cores)
        if len(given) < size:
            raise PlatformError(
                f"rank {rank}: --cores-per-device: found {size}; allowed: at most {len(given)}, the cores that the "
                "launcher gave it"
            )
        return given
    own = cpu_topology.shared_groups(cpu_topology.read(), len(here), size)[here.index(rank)]
    os.sched_setaffinity(0, own)
    return own


def local_rank(places: Sequence[RankPlace], rank: int) -> int:
    """The index of a rank on its host, from 0."""
    return sum(place.boot == places[rank].boot for place in places[:rank])


def shared(places: Sequence[RankPlace], cores: Sequence[Sequence[int]]) -> bool:
    """Whether ranks share cores (after pinning) or GPUs: devices are then virtual, and times mean little."""
    taken = [(place.boot, core) for place, own in zip(places, cores, strict=True) for core in own]
    return len(set(taken)) < len(taken)
