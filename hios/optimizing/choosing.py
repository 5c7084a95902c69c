"""The way to run a model that is taken: what was chosen and kept before, or what a contest finds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hios.costs import Costs
from hios.machine import BUSY, busy_share, usable_cores
from hios.optimizing.cache import Choices
from hios.optimizing.contest import Contest
from hios.optimizing.facts import eager_facts
from hios.optimizing.module import torch_threads, warn
from hios.optimizing.options import Options
from hios.optimizing.report import Report
from hios.optimizing.tracing import Traced
from hios.optimizing.ways import Way, distinct, itself
from hios.platforms.cpu.engine import Engine
from hios.platforms.cpu.environment import settings as profile_settings
from hios.problem import Problem
from hios.profiling.profile import profile
from hios.schedulers import find, schedule
from hios.sources import code_hash

#: Schedulers whose schedules take part in ``auto`` where there are several devices: good ones that take milliseconds.
_CANDIDATES = ("hios-lp", "heft")
#: Measures operators, and the ways to run a model.
_CODE = (
    "hios.profiling.profile",
    "hios.platforms.cpu.measuring",
    "hios.platforms.cpu.engine",
    "hios.optimizing.contest",
)
#: The fewest measurements of every operator; those whose interval is wide get more as far as the budget lasts.
_REPEATS = 3


@dataclass
class Choosing:
    """A traced model whose ways to run are compared.

    Args:
        model: only computes, so that it may be run as often as needed.
        args: example inputs.
        kwargs: example inputs by keyword.
        options: what the user asks for.
        cores: of every device.
        traced: the model as a graph.
    """

    model: nn.Module
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: Options
    cores: list[list[int]]
    traced: Traced

    def __post_init__(self) -> None:
        self.name = type(self.model).__name__
        self.threads = torch.get_num_threads()
        #: Cores of one device that has them all: those of the devices, or as many as torch uses.
        self.everything = usable_cores()[: max(len(self.cores), self.threads)]
        self._folder = self.options.folder()
        self._choices = Choices(None if self._folder is None else self._folder / "choices", self._key())

    def kept(self) -> tuple[Report, Way] | None:
        """The choice of an earlier call; None if there is none."""
        return self._choices.get(self.name, self.traced.graph)

    def measured(self) -> tuple[Report, Way]:
        """Profile, schedule, and have the ways take turns; the choice is kept if nothing else kept the cores busy.

        Raises:
            HiosError: something failed, or the cache cannot be written.
        """
        found = self._contest()
        if found[0].busy_share <= BUSY:
            self._choices.put(*found)
        return found

    def tensors(self) -> list[Tensor]:
        """The example inputs' tensors."""
        return self.traced.inputs.required(self.args, self.kwargs)

    def itself(self) -> list[Tensor]:
        """What the model gives for the example inputs."""
        with torch.no_grad():
            return self.traced.outputs.flat(self.model(*self.args, **self.kwargs))

    def _key(self) -> dict[str, object]:
        """All that a choice rests on."""
        algorithms = _CANDIDATES if self.options.algorithm == "auto" else (self.options.algorithm,)
        modules = [find(algorithm).run.__module__ for algorithm in algorithms]
        return {
            "graph": self.traced.graph.fingerprint,
            "model": eager_facts(self.model, self.tensors()),
            "settings": profile_settings(self.cores),
            "cores": [self.cores, self.everything],
            "threads": self.threads,
            "algorithms": [self.options.algorithm, *algorithms],
            "parameters": dict(self.options.parameters),
            "tolerance": self.options.tolerance,
            "code": code_hash([*_CODE, *modules]),
        }

    def _contest(self) -> tuple[Report, Way]:
        threads = sorted({self.threads, 1, len(self.everything)} - {self.threads})
        scheduled = self._scheduled(self._costs())
        if self.options.algorithm != "auto":
            threads = []
        ways = distinct([itself(self.threads), *map(itself, threads), *scheduled], self.traced.graph)
        forced = "" if self.options.algorithm == "auto" else scheduled[0].label
        if (busy := busy_share(self.everything)) > BUSY and not forced:
            warn(
                f"{self.name} is optimised while other work keeps the cores {busy:.0%} busy: what is chosen may not be "
                "the fastest, and is not kept; do it again when they are idle"
            )
        with self._engine_of(ways) as call:
            contest = Contest(ways, call, self.itself(), self.options.tolerance, self.options.budget_s, forced)
            contest.measure()
        way, candidates, reason = contest.chosen()
        return Report(self.name, way.label, reason, candidates, contest.measured_at, busy), way

    def _costs(self) -> Costs:
        with tempfile.TemporaryDirectory(prefix="hios-") as name:
            graph, costs = Path(name) / "graph.json", Path(name) / "costs.json"
            self.traced.graph.write(graph)
            return Costs.of(
                profile(
                    graph,
                    costs,
                    devices=len(self.cores),
                    repeats=_REPEATS,
                    stages_of=(),
                    budget_s=self.options.budget_s,
                    cache=self._folder and self._folder / "measurements",
                    warn_of_drift=False,  # the contest measures anew what the costs only suggest
                )
            )

    def _scheduled(self, costs: Costs) -> list[Way]:
        """Ways by schedules: those of the algorithm asked for, or of all that take part."""
        problem, devices = Problem(self.traced.graph, costs), len(self.cores)
        if self.options.algorithm != "auto":
            return [self._by(problem, self.options.algorithm)]
        found = [self._by(problem, name) for name in _CANDIDATES] if devices > 1 else []
        alone = schedule(problem, "sequential", 1)
        found.append(Way("sequential, 1 core", schedule=alone))
        if len(self.everything) > 1:
            found.append(Way(f"sequential, {len(self.everything)} cores", schedule=alone, wide=True))
        return found

    def _by(self, problem: Problem, algorithm: str) -> Way:
        devices = len(self.cores) if find(algorithm).several_devices else 1
        found = schedule(problem, algorithm, devices, self.options.parameters)
        return Way(f"{algorithm}, {devices} device{'s' if devices > 1 else ''}", schedule=found)

    @contextmanager
    def _engine_of(self, ways: Sequence[Way]) -> Iterator[Any]:
        """A function that runs the model by any of the ways, while workers for all of them are there."""
        graph = self.traced.graph
        tasks = {way.label: task for way in ways if (task := way.task(graph, len(self.cores)))}
        wide = [self.everything] if any(way.wide for way in ways) else []
        tensors = self.tensors()
        with Engine(graph, self.traced.weights, tasks, [*self.cores, *wide], self.options.timeout_s) as engine:

            def call(way: Way) -> list[Tensor]:
                if way.label in tasks:
                    return engine.run(way.label, tensors)
                with torch_threads(way.threads):
                    return self.itself()

            yield call
