"""A GPU on which chains of operators are timed in CUDA graphs, as schedules run.

An operator or stage is repeated within a graph, each run with weights and inputs of its own. A CUDA graph takes some
microseconds to start, as long as several short operators run; so a chain of K runs is timed and one of 2K, and the
difference is the time of K runs. An untimed replay goes first and keeps the GPU busy while the timed ones are launched.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import torch

from hios.core.graph import Graph
from hios.errors import PlatformError, first_line
from hios.platforms.cuda.graph_pool import GraphPool
from hios.platforms.workloads import Merged, Workload

Copy = TypeVar("Copy", Workload, Merged)
#: Launches something on the current stream.
Run = Callable[[], None]


class Runnable(Protocol):
    """What launches kernels on the current stream, such as an operator."""

    def run(self) -> None:
        """Launch them."""


class ReplayChain:
    """CUDA graphs of ``count`` runs and of twice as many."""

    def __init__(self, gpu: TimedGpu, what: str, make: Callable[[int], Run], count: int) -> None:
        self.count = count
        self._make = make  # and its tensors: a graph does not keep alive those that it reads
        self.short = gpu.replayed(what, make(count))
        self.long = gpu.replayed(what, make(2 * count))


class TimedGpu:
    """A device: a GPU, or a share of a virtual one, with everything prepared for timing on it.

    The copies of one operator may take ``limit`` bytes.
    """

    def __init__(self, graph: Graph, index: int, limit: int) -> None:
        self.graph = graph
        self.device = torch.device("cuda", index)
        self.stream = torch.cuda.Stream(self.device)
        self.workloads: dict[str, list[Workload]] = {}
        self.merges: list[tuple[Sequence[str], list[Merged]]] = []
        #: Chains of operators, and of the stages or merges of the last call, beside their operators one after another.
        self.operators: dict[str, ReplayChain] = {}
        self.pairs: dict[Any, tuple[ReplayChain, ReplayChain]] = {}
        #: What could not be captured in a CUDA graph, and why.
        self.uncaptured: dict[str, str] = {}
        self._limit = limit
        self._generator = torch.Generator(self.device).manual_seed(0)
        self._cache_bytes: int = torch.cuda.get_device_properties(index).L2_cache_size
        self._pool = GraphPool(index)  # kept, as torch takes no pool again that was without graphs in between
        self._sides: list[torch.cuda.Stream] = []

    @contextmanager
    def current(self) -> Iterator[None]:
        """A context in which tensors are created on this device and kernels run on its stream."""
        with torch.cuda.stream(self.stream), self.device:
            yield

    def load(self, operator: str, needed: int, wanted: int = 1) -> list[Workload]:
        """Copies of an operator: as many as needed, and as many as wanted if memory allows.

        Raises:
            PlatformError: the GPU is out of memory.
        """
        known = self.graph.operators[self.graph.index[operator]]
        make = partial(Workload, self.graph, known, self._generator)
        return self._grown(f"operator {operator}", self.workloads.setdefault(operator, []), make, needed, wanted)

    def load_merge(self, number: int, wanted: int) -> list[Merged]:
        """Copies of a merge, as for operators."""
        operators, held = self.merges[number]
        make = partial(Merged, self.graph, operators, self._generator)
        return self._grown(f"a merge of operators {', '.join(operators)}", held, make, 1, wanted)

    def _grown(self, what: str, held: list[Copy], make: Callable[[], Copy], needed: int, wanted: int) -> list[Copy]:
        with self.current():
            try:
                while not held or len(held) < copies_of(wanted, needed, held[0].nbytes, self._limit):
                    held.append(make())
            except torch.OutOfMemoryError as error:
                raise PlatformError(f"{what}: {first_line(error)}") from error
        return held

    def replayed(self, what: str, run: Run) -> Run:
        """A CUDA graph of the launches of a function, to be replayed.

        The function runs once before, so that libraries choose their kernels and take their memory, which cannot be
        captured. What cannot be captured at all is launched anew each time, as the engine does with it, and noted in
        ``uncaptured``.

        Raises:
            PlatformError: it fails.
        """
        with self.current():
            try:
                run()
            except RuntimeError as error:
                raise PlatformError(f"{what}: {first_line(error)}") from error
            try:
                return self._captured(run).replay
            except torch.OutOfMemoryError as error:
                raise PlatformError(f"{what}: {first_line(error)}") from error
            except RuntimeError as error:
                # The end of a capture that failed raises again.
                self.uncaptured.setdefault(what, first_line(error.__context__ or error))
                return run

    def _captured(self, run: Run) -> torch.cuda.CUDAGraph:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")  # as of views
            with self._pool.capture(self.stream) as graph:
                run()
        return graph

    def chain(self, what: str, make: Callable[[int], Run], count: int = 0, nbytes: int = 0) -> ReplayChain:
        """A chain for the function that ``make`` returns for a number of runs; the number is found by a trial if 0.

        A run reads ``nbytes`` of weights and inputs of its own.
        """
        if not count:
            trial = ReplayChain(self, what, make, TRIAL)
            self.times_ms(trial)  # the first launch of a graph takes it to the GPU
            (each,) = self.times_ms(trial)
            count = runs_of_chain(each, nbytes, self._cache_bytes)
        return ReplayChain(self, what, make, count)

    def elapsed_ms(self, replays: Sequence[Run]) -> list[float]:
        """Milliseconds of consecutive replays."""
        marks = marks_of(len(replays) + 1)
        with self.current():
            replays[0]()
            marks[0].record()
            for replay, mark in zip(replays, marks[1:], strict=True):
                replay()
                mark.record()
        return between(marks)

    def times_ms(self, *chains: ReplayChain) -> list[float]:
        """Milliseconds of one run of each chain, timed right after each other."""
        replays_ms = self.elapsed_ms([replay for timed in chains for replay in (timed.short, timed.long)])
        return [
            time_of_run(short, long, timed.count)
            for timed, short, long in zip(chains, replays_ms[::2], replays_ms[1::2], strict=True)
        ]

    def run_beside(self, groups: Sequence[Sequence[Runnable]]) -> None:
        """Run the groups of a stage concurrently, each on its own stream."""
        while len(self._sides) < len(groups) - 1:
            self._sides.append(torch.cuda.Stream(self.device))
        sides = self._sides[: len(groups) - 1]
        for side in sides:
            side.wait_stream(self.stream)
        for stream, group in zip([self.stream, *sides], groups, strict=True):
            with torch.cuda.stream(stream):
                run_all(group)
        for side in sides:
            self.stream.wait_stream(side)


def run_all(workloads: Iterable[Runnable]) -> None:
    """Run operators one after another on the current stream."""
    for workload in workloads:
        workload.run()


def marks_of(count: int) -> list[torch.cuda.Event]:
    """Timed events."""
    return [torch.cuda.Event(enable_timing=True) for _ in range(count)]


def between(marks: Sequence[torch.cuda.Event]) -> list[float]:
    """Milliseconds between events, once the last has occurred."""
    marks[-1].synchronize()
    return [begin.elapsed_time(end) for begin, end in pairwise(marks)]


#: Milliseconds that the shorter chain should take at least: events tell times to about half a microsecond.
TARGET_MS = 0.2
#: Runs of the trial chain that determines the length, and the maximum length of the shorter chain.
TRIAL, MOST = 4, 512
#: Shortest time of a run, in milliseconds: a view launches nothing, and ratios need numbers above 0.
_LEAST_MS = 1e-6
#: Share of the free memory that copies of operators may take together.
_MEMORY = 0.5


def runs_of_chain(each_ms: float, nbytes: int = 0, cache_bytes: int = 0) -> int:
    """K, the length of the shorter chain, given the time of one run and the bytes of its weights and inputs.

    The longer chain reads more than twice what the cache holds: a replay finds nothing there of the one before it.
    """
    longest = MOST if each_ms * MOST <= TARGET_MS else max(1, math.ceil(TARGET_MS / each_ms))
    return max(longest, min(cache_bytes // nbytes + 1, MOST) if nbytes else 0)


def time_of_run(short_ms: float, long_ms: float, runs: int) -> float:
    """Milliseconds of one run, from the times of chains of ``runs`` and of twice as many."""
    return max((long_ms - short_ms) / runs, _LEAST_MS)


def copies_of(wanted: int, needed: int, bytes_each: int, limit: int) -> int:
    """How many copies of an operator a chain cycles through.

    There are as many as are needed, whatever memory they take, and as many as are wanted within the limit of bytes:
    with a copy for each run of the longest chain, weights and inputs are equally cold in all.
    """
    return max(needed, min(wanted, limit // max(bytes_each, 1)), 1)


def bytes_for_copies(free: int, devices: int, operators: int) -> int:
    """Bytes that the copies of one operator may take on one of the devices that share the free bytes of a GPU."""
    return int(_MEMORY * free) // max(devices * operators, 1)
