"""Executing on GPUs: one process drives all of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from hios.core.graph import Graph
from hios.core.schedule import Placement, Plan, StagedPlan
from hios.errors import PlatformError, warn
from hios.files.base import Platform
from hios.frontends.models import RUNTIMES
from hios.frontends.tolerances import TF32, ReducedPrecision
from hios.machine.description import usable_cores
from hios.machine.terminal import bar
from hios.platforms.competitor import Competitor
from hios.platforms.cuda import cuda_reference, gpu_probe, gpu_settings, launch, segments, worker
from hios.platforms.program import ArenaPlan
from hios.platforms.reference import Reference, require_compiler
from hios.workers.pool import WorkerPool

#: Number of the worker that holds the GPUs.
_WORKER = 0


def most_threads(description: Platform) -> int:
    """One, as one thread launches an operator."""
    return 1


def workers(
    graph: Graph,
    plan: ArenaPlan,
    competitors: Mapping[str, Competitor],
    description: Platform,
    timeout_s: float,
) -> CudaWorkers:
    """One worker for all GPUs."""
    return CudaWorkers(graph, plan, competitors, list(description.gpu_indices or ()))


def require_runtime(name: str) -> None:
    """Check for a C++ compiler and triton for torch.compile, and for the package of TensorRT.

    Raises:
        PlatformError: something is missing.
    """
    if name.startswith("compile"):
        require_compiler(f"baseline {name}")
        if importlib.util.find_spec("triton") is None:
            raise PlatformError(
                f"baseline {name}: torch.compile needs triton for GPUs, which is not installed; install it for this "
                "torch, or leave the baseline out"
            )
    if name == "tensorrt" and importlib.util.find_spec("torch_tensorrt") is None:
        raise PlatformError(
            "baseline tensorrt: needs torch_tensorrt, which is not installed; install it for this torch, or leave the "
            "baseline out"
        )


def references(description: Platform, runtime: str, baselines: Collection[str]) -> list[Reference]:
    """The model itself on the first GPU, each runtime in a worker of its own.

    An ONNX file runs in ONNX Runtime on cores.
    """
    cores = usable_cores()
    if runtime != "eager":
        return [Reference(f"{RUNTIMES[runtime]}, {len(cores)} threads", 1, cores, len(cores), runtime)]
    kinds = [kind for kind in RUNTIMES if kind == runtime or kind in baselines]
    gpu_settings.warn_if_exclusive(0)
    return [
        Reference(RUNTIMES[kind], 1 + number, cores, 1, kind, cuda_reference.load_network, {"gpu": 0})
        for number, kind in enumerate(kinds)
    ]


class CudaWorkers:
    """One worker for all GPUs.

    ``reduced`` is TF32 where timed runs use it; known when the worker is loaded.
    """

    probe_version = gpu_probe.VERSION

    def __init__(
        self, graph: Graph, arena: ArenaPlan, competitors: Mapping[str, Competitor], gpus: Sequence[int]
    ) -> None:
        self._graph, self._arena, self._competitors, self._gpus = graph, arena, competitors, list(gpus)
        self.names, self.cores = ["platform cuda"], [usable_cores()]
        self.environment: Mapping[int, Mapping[str, str]] = {}
        self.reduced: ReducedPrecision | None = None
        self.facts: Mapping[str, Any] = {}

    def join(self, pool: WorkerPool) -> None:
        """Use the worker of a pool."""
        self._pool = pool
        pool.describe = partial(launch.text, self._graph, list(self._competitors))

    def load(self, graph: str, weights: str) -> None:
        """Load files, and capture every competitor."""
        inputs, outputs = list(self._arena.inputs.values()), self._arena.outputs
        given: dict[str, Any] = {"graph": graph, "weights": weights, "inputs": inputs, "outputs": outputs}
        tf32: bool = self._pool.call(_WORKER, worker.load, **given, gpus=self._gpus)
        self.reduced, self.facts = TF32 if tf32 else None, {"tf32": tf32}
        with bar(len(self._competitors), f"{self._graph.name}: capturing CUDA graphs", "competitors") as progress:
            for name, competitor in self._competitors.items():
                competitor.no_graph = self._pool.call(_WORKER, worker.prepare, name=name, plans=plans(competitor))
                if competitor.segments is not None:
                    made = self._pool.call_each(worker.use_segments, {_WORKER: {"name": name}}, segments.TIMEOUT_S)
                    competitor.segments, competitor.no_graph = tuple(made[_WORKER][0]), made[_WORKER][1]
                competitor.launch = "streams" if competitor.no_graph else "graph"
                progress.update()

    def check(self, name: str) -> None:
        """Run once, with outputs in full float32."""
        self._pool.call(_WORKER, worker.run_exactly, name=name)

    def run_alone(self, name: str) -> None:
        """Run once, with each launch after the end of the one before."""
        self._pool.call(_WORKER, worker.run_alone, name=name)

    def run(self, name: str) -> float:
        """Run once; returns milliseconds. Copies count as finished when the last one is."""
        return float(self._pool.call(_WORKER, worker.run, name=name)) / 1e6

    def probe(self, device: int) -> tuple[float, float]:
        """Milliseconds of the probe on the GPU of a device."""
        return self._pool.call(_WORKER, gpu_probe.time_probe, gpu=self._gpus[device])

    def take_rows(self, name: str) -> None:
        """Nothing: rows are recorded after the measurement, in a separate run."""

    def peak_memory_bytes(self, name: str) -> int | None:
        """Peak of torch's allocations for a competitor, summed over all GPUs."""
        return self._pool.call(_WORKER, worker.peak_memory_bytes, name=name)

    def finish(self) -> None:
        """Record one run of each competitor by operator."""
        for name, competitor in self._competitors.items():
            if not competitor.copies:
                rows, why = self._pool.call(_WORKER, worker.rows, name=name)
                competitor.timelines = [[Placement(*row) for row in rows]]
                if why:
                    warn(f"{name}: times of operators are of a run on streams: with events it is no CUDA graph ({why})")


def plans(competitor: Competitor) -> list[Plan]:
    """What runs concurrently: one plan, or a copy on each device."""
    plan = competitor.plan
    if not competitor.copies:
        return [plan]
    return [StagedPlan((*[()] * number, *plan.devices)) for number in range(len(competitor.programs))]
