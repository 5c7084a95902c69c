"""A GPU as the device of a rank."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hios.core.graph import Graph
from hios.frontends.tolerances import TF32
from hios.kernels import CompiledOperator
from hios.platforms import reference
from hios.platforms.cpu import worker as cpu_worker
from hios.platforms.cuda import cuda_reference, devices, gpu_settings
from hios.platforms.cuda.compiled_network import Network
from hios.platforms.cuda.precision import exactly, uses_tf32
from hios.platforms.program import Buffer, Row
from hios.platforms.workloads import load_weights
from hios.workers.stream_threads import Streams
from hios.workers.worker import Worker

#: What a rank states about its GPU, and what all ranks share.
_OWN, _ALIKE = ("gpus", "gpu_indices", "compute_capability", "memory_gb"), ("driver", "cuda", "cudnn")


def device(local_rank: int) -> DistributedGpu:
    """The GPU of a rank; ranks share GPUs if the host has fewer.

    Raises:
        PlatformError: there is no GPU.
    """
    gpus = devices.gpu_indices(local_rank + 1, virtual=True)
    if gpus[local_rank] < local_rank:
        gpu_settings.warn_if_exclusive(gpus[local_rank])
    return DistributedGpu(gpus[local_rank])


def joined(ranks: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[list[int]]]:
    """The GPUs of all ranks; those used are told apart by UUID, as a launcher may show each rank its own as GPU 0."""
    described = {key: [rank[key][0] for rank in ranks] for key in _OWN}
    uuids = [rank["uuid"] for rank in ranks]
    used = [[uuids.index(uuid)] for uuid in uuids]
    return {**described, **{key: ranks[0][key] for key in _ALIKE}, "tf32": any(rank["tf32"] for rank in ranks)}, used


class DistributedGpu:
    """A GPU, on whose streams operators are launched one by one.

    Messages between ranks cannot be part of a CUDA graph here, as hosts take part in them. It becomes the current GPU
    of this process.
    """

    apart = True
    exactly = staticmethod(exactly)

    def __init__(self, index: int) -> None:
        torch.cuda.set_device(index)
        torch.backends.cudnn.benchmark = True
        self.reduced = TF32 if uses_tf32([torch.cuda.get_device_capability(index)[0]]) else None
        self.place = torch.device("cuda", index)
        self._begin = torch.cuda.Event(enable_timing=True)
        self._began_ns = 0
        #: Events of a run, which the next one reuses: making one takes as long as launching a short operator.
        self._events: list[torch.cuda.Event] = []
        self._recorded = 0
        self._recording = True

    def describe(self) -> Mapping[str, Any]:
        """The GPU part of the description by platform cuda."""
        described = devices.describe(self.place.index + 1)
        return {
            **{key: [getattr(described, key)[-1]] for key in _OWN},
            **{key: getattr(described, key) for key in _ALIKE},
            "tf32": self.reduced is not None,
            "uuid": devices.uuids([self.place.index])[0],
        }

    def worker(self, rank: int, memory: Any) -> Worker:
        """Its groups are streams, its clock is events."""
        worker = Worker(rank, memory, GpuStreams())
        worker.clock = self._now
        return worker

    def load(self, worker: Worker, graph: str, weights: str, inputs: dict[str, Buffer], timeout_s: float) -> None:
        """Copy all weights to the GPU."""
        known = Graph.read(graph)
        network = Network(known, load_weights(weights, known), [self.place])
        operators = [
            CompiledOperator(name, network.reads[name], tuple(network.makes[name]), network.function(0, (name,))[0])
            for name in known.index
        ]
        cpu_worker.bind(worker, known, operators, lambda names: network.function(0, names)[0], inputs, timeout_s)

    def load_reference(
        self, worker: Worker, program: str, inputs: list[Buffer], outputs: list[Buffer], trusted: bool
    ) -> None:
        """Load the model on this GPU; an ONNX file on the host."""
        kind = reference.runtime(program)
        if kind == "eager":
            cuda_reference.load_network(worker, program, inputs, outputs, trusted, kind, self.place.index)
        else:
            reference.load(worker, program, inputs, outputs, trusted, kind)

    def begin(self, recording: bool = True) -> int:
        """The current time, after earlier work has finished; events between operators are recorded if requested."""
        self._recording = recording
        torch.cuda.synchronize()
        self._begin.record()
        self._recorded = 0
        self._began_ns = time.perf_counter_ns()
        return self._began_ns

    def finish(self, rows: Sequence[Any], deadline: float) -> tuple[int, list[Row]]:
        """Poll until everything has finished, as the GPU would wait forever for a dead rank."""
        end = self._event()
        while not end.query():
            if time.monotonic() > deadline:
                raise TimeoutError
            os.sched_yield()
        finished = time.perf_counter_ns()
        kept = rows if self._recording else ()
        return finished, [(*row[:3], self._at(row[3]), self._at(row[4])) for row in kept]

    def _now(self) -> torch.cuda.Event | None:
        return self._event() if self._recording else None

    def _event(self) -> torch.cuda.Event:
        if self._recorded == len(self._events):
            self._events.append(torch.cuda.Event(enable_timing=True))
        event = self._events[self._recorded]
        self._recorded += 1
        event.record()
        return event

    def _at(self, event: torch.cuda.Event) -> int:
        return self._began_ns + round(self._begin.elapsed_time(event) * 1e6)


class GpuStreams(Streams):
    """Streams of a GPU that run functions concurrently; the calling thread launches them in turn."""

    def __init__(self) -> None:
        super().__init__()
        self._streams: list[torch.cuda.Stream] = []

    def run(self, functions: Sequence[Callable[[], None]]) -> None:
        """Launch every function on its own stream; the current stream continues when all have finished."""
        current = torch.cuda.current_stream()
        while len(self._streams) < len(functions):
            self._streams.append(torch.cuda.Stream())
        forked = current.record_event()
        for stream, function in zip(self._streams, functions, strict=False):
            stream.wait_event(forked)
            with torch.cuda.stream(stream):
                function()
        for stream in self._streams[: len(functions)]:
            current.wait_stream(stream)
