"""Executing on cores: a worker for each device."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from hios.core.graph import Graph
from hios.core.schedule import Placement
from hios.files.base import Platform
from hios.files.json_cache import cache_folder
from hios.frontends.models import RUNTIMES
from hios.frontends.tolerances import ReducedPrecision
from hios.platforms import reference
from hios.platforms.competitor import Competitor
from hios.platforms.cpu import core_probe, segment_runtimes, thread_team
from hios.platforms.cpu import worker as cpu_worker
from hios.platforms.cpu.devices import all_cores, cores_of
from hios.platforms.program import ArenaPlan, is_wide
from hios.platforms.reference import Reference
from hios.workers.pool import WorkerPool, peak_bytes

#: Part of `hios.platforms.protocol`.
require_runtime = reference.require_runtime
#: Precision of runtimes that would choose one themselves (`hios.frontends.openvino.PRECISION`).
_PRECISIONS = {"openvino": "f32"}


def most_threads(description: Platform) -> int:
    """As many threads as there are cores."""
    return len(all_cores(cores_of(description)))


def workers(
    graph: Graph,
    plan: ArenaPlan,
    competitors: Mapping[str, Competitor],
    description: Platform,
    timeout_s: float,
) -> CpuWorkers:
    """A worker for each device, and one that has the cores of all."""
    return CpuWorkers(graph, plan, competitors, cores_of(description), timeout_s)


def references(description: Platform, runtime: str, baselines: Collection[str]) -> list[Reference]:
    """The model itself on the cores of a device, and on those of all; workers come after those of the schedules.

    It has a thread on each of its cores.

    An ONNX file runs in ONNX Runtime only, whose threads also run operators concurrently (ORT_PARALLEL).
    """
    cores: list[list[int]] = cores_of(description)
    everything = all_cores(cores)
    several = len(everything) > len(cores[0])
    first = len(cores) + several  # devices, and the one of all cores
    kinds = [kind for kind in RUNTIMES if kind == runtime or (kind in baselines and runtime == "eager")]
    made: list[Reference] = []
    for kind in kinds:
        ways = [(list(cores[0]), False)]
        if several:
            ways += [(everything, False)]
            ways += [(everything, True)] if kind == "onnxruntime" and kind in baselines else []
        for own, parallel in ways:
            threads = f"{len(own)} thread{'s' if len(own) > 1 else ''}"
            name = f"{RUNTIMES[kind]}, {'parallel, ' if parallel else ''}{threads}"
            options = {"parallel": True} if parallel else {}
            precision = _PRECISIONS.get(kind)
            made.append(Reference(name, first + len(made), own, len(own), kind, options=options, precision=precision))
    return made


class CpuWorkers:
    """A worker for each device, and one that has the cores of all."""

    reduced: ReducedPrecision | None = None
    facts: Mapping[str, Any] = MappingProxyType({})
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
        self._wait_s = timeout_s * cpu_worker.WAIT_SHARE
        self._epoch = 0
        self._rows: list[Placement] = []
        everything = all_cores(cores)
        self.names, self.cores = [f"device {number}" for number in range(len(cores))], list(cores)
        if len(everything) > len(cores[0]):
            self.names.append(f"one device of {len(everything)} cores")
            self.cores.append(everything)
        wide = any(is_wide(competitor.plan) for competitor in competitors.values())
        self.environment: Mapping[int, Mapping[str, str]] = (
            dict.fromkeys(range(len(cores)), thread_team.environment()) if wide else {}
        )

    def join(self, pool: WorkerPool) -> None:
        """Use the workers of a pool."""
        self._pool = pool
        pool.describe = partial(thread_team.text, self._graph)

    def load(self, graph: str, weights: str) -> None:
        """Load files, and bind every competitor to them."""
        files = {"graph": graph, "weights": weights}
        arguments: dict[str, Any] = {**files, "inputs": self._arena.inputs, "timeout_s": self._wait_s}
        workers = sorted({worker for competitor in self._competitors.values() for worker in competitor.parts})
        self._pool.call_each(cpu_worker.load, dict.fromkeys(workers, arguments))
        for name, competitor in self._competitors.items():
            known = dict(enumerate(self.cores)) if is_wide(competitor.plan) else {}
            cut = competitor.segments is not None
            programs = {
                worker: {"name": name, "program": part, "cores": known, "segments": cut}
                for worker, part in competitor.parts.items()
            }
            self._pool.call_each(cpu_worker.prepare, programs)
            if cut:
                self.run(name)  # weights are packed in the first run
                self._pool.call_each(segment_runtimes.record, {worker: {"name": name} for worker in programs})
                self.run(name)
                given: dict[str, Any] = {"name": name, "weights": weights, "folder": cache_folder() / "segments"}
                given["copies"] = competitor.copies
                chosen = self._pool.call_each(
                    segment_runtimes.choose, dict.fromkeys(programs, given), segment_runtimes.TIMEOUT_S
                )
                competitor.segments = tuple(row for own in chosen.values() for row in own)
        if any(competitor.segments is not None for competitor in self._competitors.values()):
            self._pool.call_each(segment_runtimes.release, {worker: {} for worker in workers})

    def check(self, name: str) -> None:
        """Run once."""
        self.run(name)

    run_alone = check

    def run(self, name: str) -> float:
        """Run once; returns milliseconds, for copies the harmonic mean."""
        self._epoch += 1
        competitor = self._competitors[name]
        parts = competitor.parts
        replies = self._pool.call_each(
            cpu_worker.run, {worker: {"name": name, "epoch": self._epoch} for worker in parts}
        )
        turns = {part.device: replies[worker] for worker, part in parts.items()}
        latency, self._rows = cpu_worker.joined(turns, competitor.copies, competitor.wide(self._graph))
        return latency

    def probe(self, device: int) -> tuple[float, float]:
        """Milliseconds of the probe in the worker of a device."""
        return self._pool.call(device, core_probe.time_probe)

    def take_rows(self, name: str) -> None:
        """Keep the rows of the last run."""
        self._competitors[name].timelines.append(self._rows)

    def peak_memory_bytes(self, name: str) -> int | None:
        """Peak private memory of a competitor's workers."""
        return peak_bytes(self._pool, list(self._competitors[name].parts), lambda: self.run(name))

    def finish(self) -> None:
        """Nothing, as every run records its rows."""
