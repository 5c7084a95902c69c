"""Timing inside workers of the cpu platform. Every function here is called through the worker pool.

Measurements are made in rounds: each round runs everything once, in the order of the network. So weights are as cold
and caches as full of other operators' data as in an inference, and drift of the machine affects all alike. Inputs
are written right before they are read, as the preceding operator would do.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hios.core.graph import Graph
from hios.platforms.cpu.thread_team import ThreadTeam
from hios.platforms.timer import Quantity, Times
from hios.platforms.workloads import Merged, Workload
from hios.workers.process_settings import keep_memory
from hios.workers.worker import Worker


class _Fresh:
    """An operator or a merge whose inputs are written before it reads them."""

    inputs: list[Tensor]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._fresh = self.inputs
        self.inputs = [tensor.clone() for tensor in self._fresh]

    def refresh(self) -> None:
        """Write the inputs, as the operators before do."""
        for tensor, fresh in zip(self.inputs, self._fresh, strict=True):
            tensor.copy_(fresh)


class _FreshWorkload(_Fresh, Workload):
    """An operator."""


class _FreshMerge(_Fresh, Merged):
    """A merge."""


def load(worker: Worker, graph: str, operators: Mapping[str, int]) -> None:
    """Make operators ready to be timed.

    As many copies of each operator are needed as a stage runs concurrently, since real operators of equal signature do
    not share weights and inputs.
    """
    keep_memory()  # as the engine does
    known = Graph.read(graph)
    generator = torch.Generator().manual_seed(0)
    workloads: dict[str, list[_FreshWorkload]] = worker.state.setdefault("workloads", {})
    for name, count in operators.items():
        held = workloads.setdefault(name, [])
        while len(held) < count:
            held.append(_FreshWorkload(known, known.operators[known.index[name]], generator))


def load_merges(worker: Worker, graph: str, merges: Sequence[Sequence[str]]) -> None:
    """Make merges of operators ready to be timed, in place of those that were."""
    known = Graph.read(graph)
    generator = torch.Generator().manual_seed(0)
    worker.state["merges"] = [_FreshMerge(known, operators, generator) for operators in merges]


#: A function to time, and the workloads whose inputs are written before.
_Way = tuple[Callable[[], None], Sequence[_Fresh]]


def time_rounds(worker: Worker, quantities: Sequence[Quantity], rounds: int, warmup: int) -> list[Times]:
    """Milliseconds of what is loaded, which runs in this order, in every round after the warm-up."""
    ways = [_ways(worker, quantity) for quantity in quantities]
    samples: list[Times] = [[] for _ in ways]
    for number in range(warmup + rounds):
        for own, times in zip(ways, samples, strict=True):
            apart_first = [_timed(*way) for way in own]
            if number >= warmup:
                times.append(tuple(reversed(apart_first)))
    return samples


def _ways(worker: Worker, quantity: Quantity) -> list[_Way]:
    """How an operator runs; a stage or merge has two ways: its operators one after another, and together.

    Groups of a stage run on streams of the device.
    """
    if isinstance(quantity, int):
        merged: _FreshMerge = worker.state["merges"][quantity]
        return [(merged.run_apart, [merged]), (merged.run_together, [merged])]
    workloads: dict[str, list[_FreshWorkload]] = worker.state["workloads"]
    if isinstance(quantity, str):
        alone = workloads[quantity][:1]
        return [(partial(_run_group, alone), alone)]
    unused = {name: iter(held) for name, held in workloads.items()}
    groups = [[next(unused[operator]) for operator in group] for group in quantity]
    members = [workload for group in groups for workload in group]
    functions = [partial(_run_group, group) for group in groups]
    return [(partial(_run_group, members), members), (partial(worker.streams.run, functions), members)]


def time_inferences(worker: Worker, operators: Sequence[str], begin_ns: int, end_ns: int) -> list[float]:
    """Milliseconds of all operators of a network together, of every time they run between two moments.

    The operators run repeatedly from the call until ``end_ns``, so that devices called with the same moments run
    concurrently throughout. If no repetition lies between the two moments, because other programs took the core, the
    first one that begins between them counts. An operator listed again runs another copy; moments are by
    ``time.perf_counter_ns``.
    """
    unused = {name: iter(held) for name, held in worker.state["workloads"].items()}
    network: list[_FreshWorkload] = [next(unused[name]) for name in operators]
    samples: list[float] = []
    while (start := time.perf_counter_ns()) < end_ns or not samples:
        elapsed = sum(_timed(workload.run, [workload]) for workload in network)
        if start >= begin_ns and (time.perf_counter_ns() <= end_ns or not samples):
            samples.append(elapsed)
    return samples


def _timed(run: Callable[[], None], workloads: Sequence[_Fresh]) -> float:
    """Milliseconds of a function, after the inputs of its operators have been written."""
    for workload in workloads:
        workload.refresh()
    began = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - began) / 1e6


def _run_group(group: Sequence[_FreshWorkload]) -> None:
    for workload in group:
        workload.run()


#: Flags of the arena used by ``send`` and ``receive``: sent, received.
SENT, RECEIVED = 1, 2


def send(worker: Worker, sizes: Sequence[int], rounds: int, epoch: int) -> dict[int, list[int]]:
    """Send buffers repeatedly; returns the start time of each transfer (nanoseconds) by size.

    Both sides count transfers from ``epoch`` on; calls on one arena use different epochs.
    """
    arena = worker.arena
    began: dict[int, list[int]] = {size: [] for size in sizes}
    own = {size: torch.ones(size, dtype=torch.uint8) for size in sizes}
    shared = {size: arena.tensor(0, (size,), torch.uint8) for size in sizes}
    for _ in range(rounds):
        for size in sizes:
            own[size].add_(1)  # freshly written, like the output of an operator
            epoch += 1
            began[size].append(time.perf_counter_ns())
            shared[size].copy_(own[size])
            arena.write(SENT, epoch)
            arena.wait(RECEIVED, epoch, 10.0, "a hand-over to be received")
    return began


def receive(worker: Worker, sizes: Sequence[int], rounds: int, epoch: int) -> dict[int, list[int]]:
    """The receiving side of ``send``: the arrival time of each transfer (nanoseconds) by size."""
    arena = worker.arena
    seen: dict[int, list[int]] = {size: [] for size in sizes}
    for _ in range(rounds):
        for size in sizes:
            epoch += 1
            arena.wait(SENT, epoch, 10.0, "a hand-over")
            seen[size].append(time.perf_counter_ns())
            arena.write(RECEIVED, epoch)
    return seen


def hand_over(worker: Worker, part: str, sizes: Sequence[int], rounds: int, epoch: int) -> dict[int, list[int]]:
    """``send`` or ``receive``, so that one pool call starts both sides."""
    return {"send": send, "receive": receive}[part](worker, sizes, rounds, epoch)


def time_copies(worker: Worker, sizes: Sequence[int], rounds: int) -> dict[int, list[float]]:
    """Milliseconds to copy a buffer into shared memory, by size: a transfer without a second device."""
    samples: dict[int, list[float]] = {}
    for size in sizes:
        own, shared = torch.ones(size, dtype=torch.uint8), worker.arena.tensor(0, (size,), torch.uint8)
        samples[size] = []
        for _ in range(rounds):
            own.add_(1)
            began = time.perf_counter_ns()
            shared.copy_(own)
            samples[size].append((time.perf_counter_ns() - began) / 1e6)
    return samples


#: Times that each small benchmark of overheads does its work, and how often each is repeated.
_TIMES, _BENCHMARKS = 100, 30


def overheads(worker: Worker) -> tuple[float, float, float]:
    """Milliseconds of a launch, a synchronization between streams and a further group of a stage, without the work.

    A launch is what the engine does beside each operator, a synchronization that a thread wakes another one, and a
    group is started on a thread and waited for. They take turns; each counts with its median.
    """
    rows: list[Any] = []
    gates = threading.Lock(), threading.Lock()

    def launches() -> None:
        for _ in range(_TIMES):
            start = worker.clock()
            worker.mark(0)
            rows.append(("", 0, None, start, worker.clock()))
        rows.clear()

    def alternate(own: threading.Lock, other: threading.Lock) -> None:
        for _ in range(_TIMES):
            own.acquire()
            other.release()

    def synchronizations() -> None:
        worker.streams.run([partial(alternate, *gates), partial(alternate, *reversed(gates))])

    def groups() -> None:
        for _ in range(_TIMES):
            worker.streams.run([_nothing, _nothing])

    gates[1].acquire()  # the first thread begins
    samples: list[list[float]] = [[], [], []]
    for _ in range(_BENCHMARKS):
        for own, benchmark in zip(samples, (launches, synchronizations, groups), strict=True):
            own.append(_timed(benchmark, ()))
    launch, sync, group = (statistics.median(own) / _TIMES for own in samples)
    return launch, sync / 2, group


def _nothing() -> None:
    """A group without operators."""


#: Flags of the arena: the first device is done; from ``FREE`` on, one for every other device: its cores are free.
DONE, FREE = 3, 4

#: Lets operators use the cores of all devices, or of the first alone.
_Take = Callable[[bool], None]


def time_wide(
    worker: Worker,
    cores: Mapping[int, Sequence[int]],
    quantities: Sequence[Quantity],
    rounds: int,
    warmup: int,
    epoch: int,
    limit_s: float,
) -> list[Times]:
    """Milliseconds of loaded operators or merges on several devices and on the first of them, in every round.

    On the first one alone, the operators of a merge run one after another. The worker of the first device runs
    everything; the others step aside as they do in a schedule, all the time, and return nothing. ``epoch`` is a number
    that no earlier call used, ``limit_s`` the longest time that the others wait for the first.
    """
    with _several_devices(worker, cores, epoch, limit_s) as take:
        if take is None:
            return []
        ways = [_ways(worker, quantity) for quantity in quantities]
        samples: list[Times] = [[] for _ in ways]
        for number in range(warmup + rounds):
            take(True)
            wide = [_timed(*own[-1]) for own in ways]
            take(False)
            narrow = [_timed(*own[0]) for own in ways]
            if number >= warmup:
                for times, *pair in zip(samples, wide, narrow, strict=True):
                    times.append(tuple(pair))
    return samples


@contextmanager
def _several_devices(
    worker: Worker, cores: Mapping[int, Sequence[int]], epoch: int, limit_s: float
) -> Iterator[_Take | None]:
    """A function for the first worker to use all devices, once the others have stepped aside; None in the others.

    The others leave when the first one is done.
    """
    arena = worker.arena
    if worker.number != 0:
        arena.write(FREE + worker.number, epoch)
        yield None
        arena.wait(DONE, epoch, limit_s, "the first device to have timed operators", yielding=True)
        return
    for device in range(1, len(cores)):
        arena.wait(FREE + device, epoch, limit_s, f"device {device} to step aside")
    team, everything = ThreadTeam.of(worker, cores[0]), tuple(core for own in cores.values() for core in own)

    def take(all_devices: bool) -> None:
        if all_devices:
            team.take(everything)
        else:
            team.release()

    try:
        yield take
    finally:
        team.release()
        arena.write(DONE, epoch)
