"""A core, or a group of them, as the device of a rank."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from hios.frontends.tolerances import ReducedPrecision
from hios.platforms import reference
from hios.platforms.cpu import worker as cpu_worker
from hios.platforms.cpu.runners import operator_rows
from hios.platforms.program import Buffer, Row
from hios.workers.stream_threads import Streams
from hios.workers.worker import Worker


def device(local_rank: int) -> Core:
    """The cores that the rank is pinned to."""
    return Core()


def joined(ranks: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[list[int]]]:
    """The cores of all ranks, and how many each computes on."""
    cores = [rank["cores"] for rank in ranks]
    return {"cores": cores}, cores


class Core:
    """A core of the host, or a group of them: as many as torch uses threads."""

    place = torch.device("cpu")
    reduced: ReducedPrecision | None = None
    apart = False
    exactly = nullcontext
    _recording = True

    def describe(self) -> Mapping[str, Any]:
        """Nothing."""
        return {}

    def worker(self, rank: int, memory: Any) -> Worker:
        """Its groups are threads."""
        return Worker(rank, memory, Streams(torch.get_num_threads()))

    def load(self, worker: Worker, graph: str, weights: str, inputs: dict[str, Buffer], timeout_s: float) -> None:
        """Like a device of one node."""
        cpu_worker.load(worker, graph, weights, inputs, timeout_s)

    def load_reference(
        self, worker: Worker, program: str, inputs: list[Buffer], outputs: list[Buffer], trusted: bool
    ) -> None:
        """On the host."""
        reference.load(worker, program, inputs, outputs, trusted, reference.runtime(program))

    def begin(self, recording: bool = True) -> int:
        """Now."""
        self._recording = recording
        return time.perf_counter_ns()

    def finish(self, rows: Sequence[Any], deadline: float) -> tuple[int, list[Row]]:
        """All has finished."""
        return time.perf_counter_ns(), operator_rows(rows) if self._recording else []
