"""Streams, events, copies and CUDA graphs of torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

import torch
from torch import Tensor

from hios.errors import first_line
from hios.platforms.cuda.compiled_network import as_list, copied
from hios.platforms.cuda.graph_pool import GraphPool
from hios.platforms.cuda.plan import Lane
from hios.platforms.cuda.precision import exactly

_T = TypeVar("_T")


class CudaBackend:
    """Launches programs on the GPUs of this process.

    A stream is the same in all programs, so that memory freed by one program is reused by the next. torch has 32
    streams for each GPU; beyond that, lanes share streams, which only costs concurrency. Devices that share a GPU have
    streams of their own.
    """

    def __init__(self, gpus: Sequence[int]) -> None:
        self._gpus = list(gpus)
        self._stream = functools.cache(lambda lane: torch.cuda.Stream(gpus[lane.device]))
        #: The stream of a GPU for copies to a device.
        self._leaving_stream = functools.cache(lambda gpu, device: torch.cuda.Stream(gpu))
        self._pool = functools.cache(lambda device: GraphPool(gpus[device]))

    def run(self, lane: Lane, function: Callable[..., Any], arguments: list[Any], outputs: int) -> list[Any]:
        """Launch a function of tensors on a stream; returns its outputs."""
        with torch.cuda.stream(self._stream(lane)):
            return as_list(function(*arguments), outputs)

    def copy(self, lane: Lane, value: Tensor) -> Tensor:
        """Launch a copy of a tensor to the device of a stream, and return the copy.

        Between GPUs ``copy_`` runs on the current stream of the source, with a barrier before and after it between
        that and the current stream of the destination. So both are streams for this one link, and delay nothing but
        later copies on it.
        """
        arriving = self._stream(lane)
        with ExitStack() as stack:
            if value.device != arriving.device:
                leaving = self._leaving_stream(value.device.index, lane.device)
                leaving.wait_stream(arriving)  # without peer access the value is packed first
                stack.enter_context(torch.cuda.stream(leaving))
            stack.enter_context(torch.cuda.stream(arriving))
            return copied(value, arriving.device)

    def record(self, lane: Lane, event: torch.cuda.Event | None = None, *, timed: bool = False) -> torch.cuda.Event:
        """An event after everything launched on a stream so far; a given event is reused."""
        stream = self._stream(lane)
        if not timed:
            event = event or torch.cuda.Event()
            event.record(stream)
            return event
        # External events become nodes of a captured graph, so that their times can be read. torch checks the current
        # stream for a capture.
        event = event or torch.cuda.Event(enable_timing=True, external=True)
        with torch.cuda.stream(stream):
            event.record(stream)
        return event

    def wait(self, lane: Lane, event: torch.cuda.Event) -> None:
        """Let everything launched on a stream from now on wait for an event."""
        self._stream(lane).wait_event(event)

    def forget(self, lane: Lane, values: list[Any]) -> None:
        """Nothing: the allocator reuses memory once it is unreferenced."""

    def elapsed_ms(self, event: torch.cuda.Event, later: torch.cuda.Event) -> float:
        """Milliseconds between two timed events of one GPU."""
        return float(event.elapsed_time(later))

    def capture(self, lanes: tuple[Lane, ...], launch: Callable[[], _T]) -> tuple[Callable[[], None], _T]:
        """Capture what a function launches on streams in one CUDA graph, across GPUs.

        All streams fork from the first one and join it at the end, as a capture requires. Memory comes from one pool
        per device, which its graphs share: they run one at a time, and only the outputs outlive a run, whose memory is
        kept as long as they are referenced. Independent copies run at once on separate devices, which may share a GPU.
        If a graph has several devices on one GPU, it uses the pool of the first.
        """
        origin = self._stream(lanes[0])
        others = [self._stream(lane) for lane in lanes[1:]]
        pools: dict[int, GraphPool] = {}
        for lane in lanes:
            gpu = self._gpus[lane.device]
            if gpu not in pools:
                pools[gpu] = self._pool(lane.device)
        first, *more = pools
        for gpu in pools:
            torch.cuda.synchronize(gpu)
        with ExitStack() as stack:
            graph = stack.enter_context(pools[first].capture(origin))
            for gpu in more:  # torch lets the pool of the first serve only one graph at a time
                stack.enter_context(torch.cuda.use_mem_pool(pools[gpu].memory, gpu))
            memory = [pool.memory for pool in pools.values()]
            forked = origin.record_event()
            for stream in others:
                stream.wait_event(forked)
            launched = launch()
            for stream in others:
                origin.wait_event(stream.record_event())

        return _Captured(graph, origin, memory), launched

    def exactly(self) -> AbstractContextManager[None]:
        """A context of full float32 precision for launches."""
        return exactly()

    def synchronize(self, device: int) -> None:
        """Wait until the GPU of a device has finished."""
        torch.cuda.synchronize(self._gpus[device])

    def why(self, error: Exception) -> str:
        """The cause of an error, in one line."""
        if isinstance(error, torch.OutOfMemoryError):
            return out_of_memory(error)
        return first_line(error)


class _Captured:
    """A CUDA graph, launched on the stream on which it was captured, which becomes the current one.

    It stays that: a context that restores the one before would take some 5 microseconds of each run.
    """

    def __init__(self, graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pools: list[torch.cuda.MemPool]) -> None:
        self._graph, self._stream, self._pools = graph, stream, pools

    def __call__(self) -> None:
        torch.cuda.set_stream(self._stream)
        self._graph.replay()

    def __del__(self) -> None:
        self._graph.reset()  # before its pools: torch aborts the process if a pool is freed before its graphs


def out_of_memory(error: torch.OutOfMemoryError) -> str:
    """The message for a GPU that ran out of memory; torch names the GPU and the requested size."""
    return f"out of memory: a smaller batch needs less, and so does each of several devices ({first_line(error)})"
