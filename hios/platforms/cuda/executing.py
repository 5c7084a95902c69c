"""The process that holds all GPUs, as a session sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hios.graph import Graph
from hios.machine import usable_cores
from hios.platforms.competitor import Competitor
from hios.platforms.cuda import gpu_probe, marks, running
from hios.platforms.cuda.program import Row
from hios.platforms.device_program import ArenaPlan
from hios.progress import bar
from hios.schedule import Placement, Plan, StagedPlan
from hios.workers.pool import WorkerPool

#: Number of the worker that holds the GPUs.
_WORKER = 0


class CudaWorkers:
    """One worker for all GPUs.

    Args:
        graph: what is run.
        arena: where inputs and outputs lie.
        competitors: by name.
        gpus: of every device.

    Attributes:
        names: of the worker, for messages.
        cores: of the worker.
        tf32: whether timed runs are less precise than float32; known when it is loaded.
    """

    probe_version = gpu_probe.VERSION

    def __init__(
        self, graph: Graph, arena: ArenaPlan, competitors: Mapping[str, Competitor], gpus: Sequence[int]
    ) -> None:
        self._graph, self._arena, self._competitors, self._gpus = graph, arena, competitors, list(gpus)
        self.names, self.cores = ["platform cuda"], [usable_cores()]
        self.tf32 = False

    def join(self, pool: WorkerPool) -> None:
        """Use the worker of a pool."""
        self._pool = pool
        pool.describe = partial(marks.text, self._graph, list(self._competitors))

    def load(self, graph: str, weights: str) -> None:
        """Load files, and capture every competitor."""
        inputs, outputs = list(self._arena.inputs.values()), self._arena.outputs
        given: dict[str, Any] = {"graph": graph, "weights": weights, "inputs": inputs, "outputs": outputs}
        self.tf32 = self._pool.call(_WORKER, running.load, **given, gpus=self._gpus)
        with bar(len(self._competitors), f"{self._graph.name}: capturing CUDA graphs", "competitors") as progress:
            for name, competitor in self._competitors.items():
                competitor.no_graph = self._pool.call(_WORKER, running.prepare, name=name, plans=plans(competitor))
                competitor.launch = "streams" if competitor.no_graph else "graph"
                progress.update()

    def check(self, name: str) -> None:
        """Run once, with outputs in full float32."""
        self._pool.call(_WORKER, running.run_exactly, name=name)

    def run(self, name: str) -> float:
        """Run once; returns milliseconds. Copies count as finished when the last one is."""
        return float(self._pool.call(_WORKER, running.run, name=name)) / 1e6

    def probe(self, device: int) -> tuple[float, float]:
        """Milliseconds of the probe on the GPU of a device."""
        found: tuple[float, float] = self._pool.call(_WORKER, gpu_probe.time_probe, gpu=self._gpus[device])
        return found

    def take_rows(self, name: str) -> None:
        """Nothing: what a run was made of is asked for after the measurement."""

    def finish(self) -> None:
        """Look at one run of each competitor operator by operator."""
        for name, competitor in self._competitors.items():
            if not competitor.copies:
                competitor.timelines = [[_placement(row) for row in self._pool.call(_WORKER, running.rows, name=name)]]


def plans(competitor: Competitor) -> list[Plan]:
    """What runs at the same time: one plan, or a copy on each device."""
    plan = competitor.plan
    if not competitor.copies:
        return [plan]
    return [StagedPlan((*[()] * number, *plan.devices)) for number in range(len(competitor.programs))]


def _placement(row: Row) -> Placement:
    operator, number, stream, stage, start_ms, finish_ms = row
    return Placement(operator, number, stream, stage, start_ms, finish_ms)
