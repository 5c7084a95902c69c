"""Candidate schedules for a race, for each division of the machine that is predicted to be fast.

The fastest way to divide the cores of this machine into devices for a network.

The divisions are one device of all n cores, 2 devices of n/2, 4 of n/4, ..., n of one core. Each is predicted first,
from costs measured on such devices; those whose prediction is near the best then run in turns, and are measured.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
from torch import Tensor

from hios.core.costs import Costs, CostsFile
from hios.core.feedback import fed_back
from hios.core.graph import Graph
from hios.core.problem import Problem
from hios.core.schedule import Placement, Schedule
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
from hios.optimizing.candidates import SCHEDULE, Candidate, scheduled
from hios.optimizing.options import Options
from hios.optimizing.race import timed
from hios.optimizing.report import Budget, WayReport
from hios.platforms.cpu.devices import SETTLE_S, device_cores
from hios.platforms.cpu.engine import Engine, Task
from hios.profiling.cache import now
from hios.profiling.profile import profile
from hios.runtime.rounds import measured
from hios.schedulers import find, schedule

#: Algorithms whose schedules take part in ``auto`` on several devices: good ones that take milliseconds.
SCHEDULERS = ("hios-lp", "heft")
#: Minimum measurements of every operator; those with wide intervals get more as the budget allows.
_REPEATS = 3
#: Schedules predicted to take up to this many times the best prediction are measured, as predictions may be off by 15 %
#: (docs/speed.md) in either direction.
PROMISING = 1.3
#: Share of the remaining time that measuring operators may take, and its maximum in seconds.
_PROFILE_SHARE, _PROFILE_S = 0.3, 10.0

#: Cores of every device.
_Division = Sequence[list[int]]


@dataclass
class ScheduleProposals:
    """Proposes schedules of a graph.

    Divisions hold the cores of every device, for each way to divide the machine that is considered; a device that has
    all cores has those of ``everything``. ``keep_s`` seconds of the budget are reserved for later steps.
    """

    graph: Graph
    options: Options
    divisions: Sequence[_Division]
    everything: list[int]
    budget: Budget
    keep_s: float
    #: Rows of the report for divisions that take no part.
    absent: list[WayReport] = field(default_factory=list, init=False)
    #: Costs by the number of devices and the cores of each.
    _costs: dict[tuple[int, int], CostsFile] = field(default_factory=dict, init=False)

    def candidates(self) -> list[Candidate]:
        """All candidate schedules, of the divisions whose best prediction is near the overall best.

        Raises:
            HiosError: operators could not be measured, or a schedule could not be made.
        """
        auto = self.options.algorithm == "auto"
        algorithms = SCHEDULERS if auto else (self.options.algorithm,)
        if not auto and not find(self.options.algorithm).several_devices:
            return [self._by(self._problem([self.everything[:1]], 1), self.options.algorithm, [self.everything[:1]])]
        problems = self._problems()
        proposed = [
            [self._by(problem, name, division) for name in algorithms]
            for division, problem in problems
            if len(division) > 1 or not auto
        ]
        candidates = self._promising(proposed)
        if auto:
            alone = replace(schedule(problems[0][1], "sequential", 1), cores_per_device=1)
            candidates.append(scheduled("sequential, 1 core", alone))
            if len(self.everything) > 1:
                candidates.append(scheduled(f"sequential, {len(self.everything)} cores", alone, wide=True))
        return candidates

    def _problems(self) -> list[tuple[_Division, Problem]]:
        """Divisions with their scheduling problems, from costs measured on their devices within the budget."""
        first, *others = self.divisions
        most = widest(self.graph) if others else 0  # with more devices some would be idle
        wanted = [first, *(division for division in others if len(division) <= most)]
        problems: list[tuple[_Division, Problem]] = []
        for number, division in enumerate(wanted):
            if number and (why := self.budget.too_short_for("costs", keep_s=self.keep_s)):
                label = f"schedules, {_text(division)}"
                self.absent.append(WayReport(label, SCHEDULE, "not started", why))
                continue
            problems.append((division, self._problem(division, len(wanted) - number)))
        return problems

    def _problem(self, division: _Division, left: int) -> Problem:
        """The problem from costs measured on the devices of a division; the remaining time is for so many."""
        left_s = max(self.budget.left_s - self.keep_s, 0.0) / left
        cache = self.options.folder()
        with self.budget.step("costs", f"measuring operators on {_text(division)}"):
            measured = profile(
                self.graph,
                devices=len(division),
                cores_per_device=len(division[0]) if len(division[0]) > 1 else None,
                repeats=_REPEATS,
                stages_of=(),
                budget_s=max(min(_PROFILE_SHARE * left_s, _PROFILE_S), 0.1),
                cache=cache and cache / "measurements",
                warn_of_drift=False,  # the race measures what the costs only predict
            )
        self._costs[len(division), len(division[0])] = measured
        return Problem(self.graph, Costs.of(measured))

    def again(self, candidate: Candidate, runs: Sequence[Sequence[Placement]], label: str) -> Candidate:
        """The schedule of a candidate's algorithm by the costs that runs of the candidate measured."""
        own = candidate.schedule
        assert own is not None  # noqa: S101 - they are schedules
        costs = fed_back(self._costs[own.devices, own.cores_per_device or 1], self.graph, runs)
        plan = schedule(Problem(self.graph, Costs.of(costs)), own.algorithm, own.devices, own.parameters)
        return scheduled(label, replace(plan, cores_per_device=own.cores_per_device))

    def _by(self, problem: Problem, algorithm: str, division: _Division) -> Candidate:
        devices = len(division)
        plan = schedule(problem, algorithm, devices, self.options.parameters)
        return scheduled(f"{algorithm}, {_text(division)}", replace(plan, cores_per_device=len(division[0])))

    def _promising(self, proposed: Sequence[Sequence[Candidate]]) -> list[Candidate]:
        """Candidates of the divisions whose best prediction is near the best of all."""
        predicted = [min(entry.schedule.latency_ms for entry in own if entry.schedule) for own in proposed]
        kept: list[Candidate] = []
        for own, latency_ms in zip(proposed, predicted, strict=True):
            if latency_ms <= PROMISING * min(predicted):
                kept += own
            else:
                why = f"predicted to take {latency_ms / min(predicted):.1f} times as long as the fastest schedule"
                self.absent += [WayReport(entry.label, SCHEDULE, "not started", why) for entry in own]
        return kept


def widest(graph: Graph) -> int:
    """The size of the largest level of the graph: this many operators can run at once."""
    depth: dict[int, int] = {}
    problem = Problem(graph, Costs(dict.fromkeys(graph.index, 0.0), {(e.source, e.target): 0.0 for e in graph.edges}))
    for operator in problem.order:
        depth[operator] = 1 + max((depth[before] for before, _ in problem.predecessors[operator]), default=0)
    depths = list(depth.values())
    return max(map(depths.count, set(depths)))


def tasks(
    graph: Graph, candidates: Sequence[Candidate], divisions: Sequence[_Division], everything: list[int]
) -> tuple[dict[str, Task], list[list[int]]]:
    """The tasks of an engine that races schedules, by label, and the cores of its workers.

    Devices with the same cores are one worker. Divisions and all cores are those of `Candidate.cores`.
    """
    workers: list[list[int]] = []
    made: dict[str, Task] = {}
    for candidate in candidates:
        assert candidate.schedule is not None  # noqa: S101 - they are schedules
        numbers = []
        for cores in candidate.cores([list(map(list, own)) for own in divisions], everything):
            if cores not in workers:
                workers.append(cores)
            numbers.append(workers.index(cores))
        made[candidate.label] = Task(candidate.schedule.plan(graph), tuple(numbers))
    return made, workers


def _text(division: _Division) -> str:
    """Such as "2 devices" or "2 devices of 4 cores"."""
    devices, size = len(division), len(division[0])
    return f"{devices} device{'s' if devices > 1 else ''}" + (f" of {size} cores" if size > 1 else "")


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
