"""The workers of a session: what they load, run and measure, whatever the platform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from hios.graph import Graph
from hios.platforms.competitor import Competitor
from hios.platforms.cpu import core_probe, markers, running
from hios.platforms.cpu.platform import all_cores
from hios.platforms.device_program import ArenaPlan
from hios.schedule import Placement
from hios.workers.pool import WorkerPool


class Workers(Protocol):
    """Workers of a platform that run the competitors of a session; they come first in the pool.

    Attributes:
        names: of the workers, for messages.
        cores: of every worker.
        tf32: whether timed runs are less precise than float32; known when they are loaded.
        probe_version: tells what the probe of the platform does from what others do.
    """

    names: list[str]
    cores: list[list[int]]
    tf32: bool
    probe_version: str

    def join(self, pool: WorkerPool) -> None:
        """Use the workers of a pool."""

    def load(self, graph: str, weights: str) -> None:
        """Load files, and make every competitor ready. Inputs are in their buffers."""

    def check(self, name: str) -> None:
        """Run a competitor once, with outputs of full precision."""

    def run(self, name: str) -> float:
        """Run a competitor once; returns milliseconds. Of copies it is the harmonic mean, if each is timed."""

    def probe(self, device: int) -> tuple[float, float]:
        """Milliseconds of the probe's convolutions and of its copies on a device (`ProbeSchedule`)."""

    def take_rows(self, name: str) -> None:
        """Keep the rows of a competitor's last run, where every run has them."""

    def finish(self) -> None:
        """After all runs: find out what they did not tell."""


class CpuWorkers:
    """A worker a device, and one that has the cores of all.

    Args:
        graph: what is run.
        arena: where values lie.
        competitors: by name.
        cores: of every device.
        timeout_s: longest time of one run.
    """

    tf32 = False
    probe_version = core_probe.VERSION

    def __init__(
        self,
        graph: Graph,
        arena: ArenaPlan,
        competitors: Mapping[str, Competitor],
        cores: Sequence[list[int]],
        timeout_s: float,
    ) -> None:
        self._graph, self._arena, self._competitors = graph, arena, competitors
        self._wait_s = timeout_s * running.WAIT_SHARE
        self._epoch = 0
        self._rows: list[Placement] = []
        everything = all_cores(cores)
        self.names, self.cores = [f"device {number}" for number in range(len(cores))], list(cores)
        if len(everything) > 1:
            self.names.append(f"one device of {len(everything)} cores")
            self.cores.append(everything)

    def join(self, pool: WorkerPool) -> None:
        """Use the workers of a pool."""
        self._pool = pool
        pool.describe = partial(markers.text, self._graph)

    def load(self, graph: str, weights: str) -> None:
        """Load files, and bind every competitor to them."""
        files = {"graph": graph, "weights": weights}
        arguments: dict[str, Any] = {**files, "inputs": self._arena.inputs, "timeout_s": self._wait_s}
        workers = sorted({worker for competitor in self._competitors.values() for worker in competitor.parts})
        self._pool.call_each(running.load, dict.fromkeys(workers, arguments))
        for name, competitor in self._competitors.items():
            programs = {worker: {"name": name, "program": part} for worker, part in competitor.parts.items()}
            self._pool.call_each(running.prepare, programs)

    def check(self, name: str) -> None:
        """Run once."""
        self.run(name)

    def run(self, name: str) -> float:
        """Run once; returns milliseconds, of copies their harmonic mean."""
        self._epoch += 1
        competitor = self._competitors[name]
        parts = competitor.parts
        found = self._pool.call_each(running.run, {worker: {"name": name, "epoch": self._epoch} for worker in parts})
        began = next(iter(found.values()))[0]
        taken = [(finish - began) / 1e6 for _, finish, _ in found.values()]
        rows = [
            Placement(operator, parts[worker].device, stream, stage, (start - began) / 1e6, (end - began) / 1e6)
            for worker, (_, _, own) in found.items()
            for operator, stream, stage, start, end in own
        ]
        self._rows = sorted(rows, key=lambda row: (row.start_ms, row.device))
        return len(taken) / sum(1 / part for part in taken) if competitor.copies else max(taken)

    def probe(self, device: int) -> tuple[float, float]:
        """Milliseconds of the probe in the worker of a device."""
        found: tuple[float, float] = self._pool.call(device, core_probe.time_probe)
        return found

    def take_rows(self, name: str) -> None:
        """Keep the rows of the last run."""
        self._competitors[name].timelines.append(self._rows)

    def finish(self) -> None:
        """Nothing: every run told."""
