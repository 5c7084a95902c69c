"""Dividing the cores of this machine into devices for a network: which number of devices is fastest.

The divisions are one device of all n cores, 2 devices of n/2, 4 of n/4, ..., n of one core. Each is predicted first,
from costs measured on such devices; those whose prediction is near the best then run in turns, and are measured.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import msgspec
from torch import Tensor

from hios.core.costs import Costs
from hios.core.graph import Graph
from hios.core.problem import Problem
from hios.core.schedule import Schedule
from hios.errors import PlatformError
from hios.files.versions import versions
from hios.formats.partition import Partition, PartitionFile
from hios.formats.settings import PartitionSettings
from hios.frontends.example_inputs import example_inputs
from hios.frontends.tolerances import compared
from hios.machine import topology as cpu_topology
from hios.machine.description import busy_share, processor
from hios.machine.statistics import best
from hios.machine.terminal import bar
from hios.optimizing.race import timed
from hios.optimizing.schedules import PROMISING, widest
from hios.platforms.cpu.devices import SETTLE_S, device_cores
from hios.platforms.cpu.engine import Engine, Task
from hios.profiling.cache import now
from hios.profiling.profile import profile
from hios.runtime.rounds import measured
from hios.schedulers import schedule


def partition(graph: Graph, weights: Mapping[str, Tensor], settings: PartitionSettings) -> PartitionFile:
    """Choose how to divide the cores; returns the contents of partition.json.

    Partitions with more devices than operators that can ever run concurrently are left out: some would be idle.

    Raises:
        HiosError: more cores than there are, an unknown algorithm, a bad graph, or a worker that failed.
    """
    topology = cpu_topology.read()
    cores = len({cpu.core for cpu in topology}) if settings.cores is None else settings.cores
    device_cores(1, cores, virtual=settings.virtual)  # refused where there are fewer
    busy = busy_share([cpu.number for cpu in topology])
    most = widest(graph)
    ways = [way for way in cpu_topology.partitions(cores) if way[0] <= most]
    schedules = [_predicted(graph, devices, size, settings) for devices, size in ways]
    least = min(made.latency_ms for made in schedules)
    promising = [place for place, made in enumerate(schedules) if place == 0 or made.latency_ms <= PROMISING * least]
    runs = _measured(graph, weights, {place: (schedules[place], ways[place]) for place in promising}, settings)
    chosen = best({str(place): own for place, own in runs.items()})
    partitions = tuple(
        Partition(
            devices=devices,
            cores_per_device=size,
            algorithm=made.algorithm,
            predicted_ms=made.latency_ms,
            latency_ms=measured(runs[place]) if place in runs else None,
        )
        for place, ((devices, size), made) in enumerate(zip(ways, schedules, strict=True))
    )
    devices, size = ways[int(chosen)]
    return PartitionFile(
        graph=graph.name,
        graph_fingerprint=graph.fingerprint,
        cores=cores,
        partitions=partitions,
        devices=devices,
        cores_per_device=size,
        reason=_reason(partitions, int(chosen)),
        processor=processor(),
        busy_share=busy,
        virtual=True if cores > len(topology) else None,
        measured_at=now(),
        versions=versions(),
    )


def _predicted(graph: Graph, devices: int, size: int, settings: PartitionSettings) -> Schedule:
    """The schedule for one partition, from costs measured on its devices."""
    algorithm = settings.algorithm if devices > 1 else "sequential"
    costs = profile(
        graph,
        devices=devices,
        cores_per_device=size,
        repeats=settings.repeats,
        stages_of=[algorithm],
        budget_s=settings.budget_s,
        cache=settings.cache,
        virtual=settings.virtual,
    )
    parameters: Mapping[str, Any] = settings.parameters if devices > 1 else {}
    return schedule(Problem(graph, Costs.of(costs)), algorithm, devices, parameters)


def _measured(
    graph: Graph,
    weights: Mapping[str, Tensor],
    ways: Mapping[int, tuple[Schedule, tuple[int, int]]],
    settings: PartitionSettings,
) -> dict[int, list[float]]:
    """Milliseconds of all runs of the promising partitions, run in turns in random order.

    Raises:
        PlatformError: outputs differ from those of one device.
    """
    inputs = example_inputs(graph.inputs, settings.seed)
    runs: dict[int, list[float]] = {place: [] for place in ways}
    with ExitStack() as stack:
        engines = {
            place: stack.enter_context(
                Engine(
                    graph,
                    weights,
                    {"way": Task(made.plan(graph))},
                    device_cores(*way, virtual=settings.virtual),
                    settings.timeout_s,
                )
            )
            for place, (made, way) in ways.items()
        }
        expected = engines[0].run("way", inputs)
        for place, number in _turns(list(ways), settings):
            outputs, elapsed_ms = timed(partial(engines[place].run, "way", inputs))
            time.sleep(SETTLE_S)
            _require_equal(outputs, expected, ways[place][1], settings.tolerance)
            if number >= settings.warmup:
                runs[place].append(elapsed_ms)
    return runs


def _turns(places: list[int], settings: PartitionSettings) -> Iterator[tuple[int, int]]:
    """Which partition runs next, with the number of the round."""
    shuffle, rounds = random.Random(settings.seed).shuffle, settings.warmup + settings.runs
    with bar(rounds, f"{len(places)} partitions take turns", "rounds") as progress:
        for number in range(rounds):
            shuffle(places)
            for place in places:
                yield place, number
            progress.update()


def _require_equal(
    outputs: Sequence[Tensor], expected: Sequence[Tensor], way: tuple[int, int], tolerance: float
) -> None:
    for number, (output, right) in enumerate(zip(outputs, expected, strict=True)):
        off, within = compared(output, right, tolerance)
        if not within:
            raise PlatformError(
                f"{way[0]} device(s) of {way[1]} core(s): output {number} differs from that of one device by "
                f"{off:.3g}; allowed: {tolerance:g} absolute plus relative; allow it with --tolerance"
            )


def _reason(partitions: Sequence[Partition], chosen: int) -> str:
    """Why a partition was chosen, in words."""
    known = [entry for entry in partitions if entry.latency_ms is not None]
    latency = msgspec.structs.asdict(partitions[chosen])["latency_ms"]
    return (
        f"the fastest of the {len(known)} measured, or among those tied with it the one with the smallest 80th "
        f"percentile: {latency.median:.4g} ms; {len(partitions) - len(known)} of {len(partitions)} were ruled out by "
        f"predictions above {PROMISING:g} times the best"
    )
