"""Measuring on cores: a worker process for each device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hios.core.costs import CostOverheads
from hios.core.graph import Graph
from hios.files.base import Platform
from hios.platforms.cpu import core_probe, thread_team, timing
from hios.platforms.cpu.devices import cores_of
from hios.platforms.cpu.environment import cache_bytes, settings
from hios.platforms.timer import TIMEOUT_S, DeviceTimer, Quantity, Times, whose_turn
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool

#: Warm-up transfers of every size, in each call.
_WARMUP = 3
#: Inferences that devices run at once between two checks of the clock, and seconds before them.
_INFERENCES, _LEAD_S = 3, 0.005
#: Minimum seconds that virtual devices run at once, so that those sharing a core alternate often.
_VIRTUAL_S = 0.1


def environment(description: Platform) -> Mapping[str, object]:
    """Processor, clocks and software."""
    return settings(cores_of(description))


def timer(graph: Graph, path: str, description: Platform, widths: Sequence[int] = ()) -> DeviceTimer:
    """A worker for each device."""
    return CpuTimer(graph, path, description, widths)


class CpuTimer(DeviceTimer):
    """Devices that are cores."""

    probe_version, probe_flops, probe_bytes = core_probe.VERSION, core_probe.FLOPS, core_probe.NBYTES

    def __init__(self, graph: Graph, path: str, platform: Platform, widths: Sequence[int] = ()) -> None:
        self._path = path
        self._cores: list[list[int]] = cores_of(platform)
        self._virtual: bool = bool(platform.virtual)
        self._epoch = 0
        largest = max((edge.bytes or 0 for edge in graph.edges), default=0)
        arena = Arena(timing.FREE + len(self._cores), max(largest, 64), shares_cores=self._virtual)
        more = dict.fromkeys(range(len(self._cores)), thread_team.environment()) if widths else {}
        pool = WorkerPool(self._cores, arena, TIMEOUT_S, environment=more)
        super().__init__(pool, len(self._cores), cache_bytes(self._cores[0][0]) or None)

    def ends(self, devices: int) -> Mapping[str, object]:
        """The cores of the devices, and whether any are virtual: virtual devices wait for each other differently."""
        shared = {"virtual": True} if self._virtual else {}
        return {"cores": [list(own) for own in self._cores[:devices]], **shared}

    def probe(self, device: int) -> tuple[float, float]:
        """Milliseconds of the probe in the worker of a device."""
        return self.pool.call(device, core_probe.time_probe)

    def load(self, operators: Mapping[str, int]) -> None:
        """Prepare copies of operators in every worker."""
        self._everywhere(timing.load, operators=dict(operators))

    def load_merges(self, merges: Sequence[Sequence[str]]) -> None:
        """Prepare merges in every worker."""
        self._everywhere(timing.load_merges, merges=merges)

    def time(self, device: int, quantities: Sequence[Quantity], rounds: int, warmup: int) -> list[Times]:
        """Milliseconds in the worker of a device; groups of a stage are its threads."""
        given = {"quantities": quantities, "rounds": rounds, "warmup": warmup}
        return self.pool.call(device, timing.time_rounds, **given)

    def time_wide(self, width: int, quantities: Sequence[Quantity], rounds: int, warmup: int) -> list[Times]:
        """Milliseconds in the first worker, whose threads are on the cores of all ``width`` devices.

        The others step aside in it meanwhile.
        """
        self._epoch += 1
        cores = dict(enumerate(self._cores[:width]))
        turn = {"epoch": self._epoch, "limit_s": self.pool.timeout_s}
        given = {"cores": cores, "quantities": quantities, "rounds": rounds, "warmup": warmup, **turn}
        return self.pool.call_each(timing.time_wide, dict.fromkeys(range(width), given))[0]

    def time_transfers(self, sizes: Sequence[int], rounds: int, turn: int) -> dict[int, list[float]]:
        """Milliseconds from one worker to the other through the arena; of one device, of copies into the arena."""
        if self.devices == 1:
            return self.pool.call(0, timing.time_copies, sizes=sizes, rounds=rounds)
        sender = turn % 2
        both = {"sizes": sizes, "rounds": rounds + _WARMUP, "epoch": self._epoch}
        self._epoch += len(sizes) * (rounds + _WARMUP)
        times = self.pool.call_each(
            timing.hand_over, {sender: {"part": "send", **both}, 1 - sender: {"part": "receive", **both}}
        )
        began, seen = times[sender], times[1 - sender]
        return {
            size: [(end - begin) / 1e6 for begin, end in zip(began[size], seen[size], strict=True)][_WARMUP:]
            for size in sizes
        }

    def corun(self, turn: int, devices: int, network: Sequence[str], alone_ms: float) -> float:
        """Inferences on all devices at once over inferences on one of them, taken right after each other.

        Virtual devices take turns of some milliseconds on a core, so only the mean shows the share of each.
        """
        device = whose_turn(turn, [tuple(own) for own in self._cores[:devices]])
        alone = self.at_once({device: network}, alone_ms)[device]
        return self.at_once(dict.fromkeys(range(devices), network), alone_ms)[device] / alone

    def at_once(self, networks: Mapping[int, Sequence[str]], alone_ms: float) -> dict[int, float]:
        """Milliseconds that every device takes for its loaded operators, while all of these devices run theirs.

        Each runs its operators repeatedly, so that the others never run alone; of several times the median counts, on
        virtual devices the mean. ``networks`` are loaded operators of every device that takes part, in order; an
        operator listed again runs another copy. ``alone_ms`` is approximately what the longest of them takes alone.
        """
        average = statistics.fmean if self._virtual else statistics.median
        return {device: average(own) for device, own in self._inferences(networks, alone_ms).items()}

    def _inferences(self, networks: Mapping[int, Sequence[str]], alone_ms: float) -> dict[int, list[float]]:
        """Milliseconds of inferences on devices that run at once, after one on each to warm up."""
        begin = time.perf_counter_ns() + round(_LEAD_S * 1e9 + alone_ms * 1e6)
        lasting_s = _INFERENCES * alone_ms / 1000 + _LEAD_S
        if self._virtual:
            lasting_s = max(lasting_s, _VIRTUAL_S)
        span = {"begin_ns": begin, "end_ns": begin + round(lasting_s * 1e9)}
        arguments = {device: {"operators": network, **span} for device, network in networks.items()}
        return self.pool.call_each(timing.time_inferences, arguments)

    def overheads(self) -> CostOverheads:
        """Measured in the worker of the first device."""
        return CostOverheads(*self.pool.call(0, timing.overheads))

    def _everywhere(self, function: Any, **arguments: Any) -> None:
        given = {"graph": self._path, **arguments}
        self.pool.call_each(function, dict.fromkeys(range(self.devices), given))
