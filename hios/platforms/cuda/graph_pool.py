"""CUDA graphs whose memory comes from one pool, also after a capture has failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

#: Graphs of failed captures with their pools. The allocator still refers to them, and torch aborts the process when a
#: pool is freed that it believes to be recording (pytorch/pytorch#180395), so they are kept until the process ends.
_abandoned: list[tuple[Any, Any]] = []


class GraphPool:
    """The memory pool of the CUDA graphs that are captured on a GPU, one at a time.

    Up to torch 2.12, a capture that an error invalidates leaves its pool recording, and every later capture from it
    fails too. So that recording is ended, and later captures get a new pool.
    """

    def __init__(self, gpu: int) -> None:
        self._gpu = gpu
        self.memory = self._new()

    @contextmanager
    def capture(self, stream: torch.cuda.Stream) -> Iterator[torch.cuda.CUDAGraph]:
        """A context whose launches are captured in a graph; other threads of the process do not count.

        The graph is replayed as long as the pool's ``memory`` at the time is kept.
        """
        graph, memory = torch.cuda.CUDAGraph(), self.memory
        pool: Any = memory.id
        try:
            with (
                torch.cuda.stream(stream),  # also left if the end of the capture raises
                torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"),
            ):
                yield graph
        except BaseException:
            _abandoned.append((graph, memory))
            if torch.__version__ < "2.13":
                # Torch has ended the recording if the capture is valid, as where memory ran out, and then raises here.
                with suppress(RuntimeError):
                    torch._C._cuda_endAllocateToPool(self._gpu, pool)
            self.memory = self._new()
            raise

    def _new(self) -> torch.cuda.MemPool:
        with torch.cuda.device(self._gpu):  # a pool keeps its memory on the GPU that is current here
            return torch.cuda.MemPool()


def cause(error: Exception) -> Exception:
    """The original error of a failed capture, as ending the capture fails too and says less."""
    while error.__cause__ is None and isinstance(error.__context__, Exception):
        error = error.__context__
    return error


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or its cause, is a GPU running out of memory."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False
