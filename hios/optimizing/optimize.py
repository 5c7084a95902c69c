"""From a model and example inputs to a module that runs it the fastest way that was measured."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hios.costs import Costs
from hios.errors import HiosError, UnsupportedError
from hios.machine import busy_share, usable_cores
from hios.optimizing.cache import Choices
from hios.optimizing.contest import Contest, beyond, wrong_outputs
from hios.optimizing.module import OptimizedModule, Runner, torch_threads, warn
from hios.optimizing.options import Options
from hios.optimizing.purity import require_pure
from hios.optimizing.report import BUSY, Report
from hios.optimizing.tracing import Traced, trace
from hios.optimizing.watching import Watch, has_hooks
from hios.optimizing.ways import Way, distinct, itself
from hios.problem import Problem
from hios.profiling.profile import profile
from hios.profiling.progress import on_terminals_only
from hios.profiling.settings import settings as profile_settings
from hios.runtime.engine import Engine
from hios.schedulers import find, schedule
from hios.sources import code_hash

#: Schedulers whose schedules take part in ``auto`` where there are several devices: good ones that take milliseconds.
_CANDIDATES = ("hios-lp", "heft")
#: The fewest measurements of every operator; those whose interval is wide get more as far as the budget lasts.
_REPEATS = 3
#: Runs of the model that show how long it takes, before anything else.
_TIMED = 3


def optimize(
    model: nn.Module,
    example_inputs: Any,
    example_keywords: Mapping[str, Any] | None = None,
    *,
    devices: int | None = None,
    algorithm: str = "auto",
    parameters: Mapping[str, Any] | None = None,
    platform: str = "cpu",
    units: str | None = None,
    cache: str | Path | bool | None = None,
    tolerance: float = 1e-4,
    least_ms: float = 2.0,
    budget_s: float = 10.0,
    timeout_s: float = 120.0,
) -> OptimizedModule:
    """A module that is called like the model and runs it the fastest way that was measured, for inference.

    The model is put into eval mode, exported, profiled and scheduled. Then the ways to run it take turns with the
    example inputs, whole calls with all that they cost the caller: the model itself, its operators one after another on
    one core and on all cores, and the schedules of several algorithms. The fastest, or the steadiest of those that the
    runs cannot tell from it, is kept if it is faster than the model itself by more than the measurement can tell; else
    the module just calls the model. ``report`` of the module says what was chosen and has the numbers. Measurements,
    schedule and choice are kept on disk for the next time.

    What torch.export, Relax or the kernel table cannot take runs as it is, with one ``HiosWarning`` that names the
    reason.

    Args:
        model: takes and gives tensors, in any nesting of tuples, lists and dictionaries, and other values that stay as
            they are in the example.
        example_inputs: a tuple or list of positional arguments, or a single one.
        example_keywords: keyword arguments.
        devices: cores to schedule for, each a worker process pinned to it; 4 if None, or as many as there are.
        algorithm: ``auto``, or the name of one whose schedule is taken whatever is measured (``hios algorithms``).
        parameters: of a named algorithm.
        platform: ``cpu``.
        units: scheduling units; as the model declares if None.
        cache: folder for measurements and choices; None for ``$HIOS_CACHE`` or the user's cache folder, False for none.
        tolerance: how far outputs may be from the model's, absolute plus relative, in units of their largest magnitude;
            numbers of 16 bits may differ by what their precision gives.
        least_ms: with ``auto``, a model that takes less time is left as it is, as waking workers costs too much for it.
        budget_s: about how long to profile, and how long the ways take turns.
        timeout_s: longest time of one call.

    Raises:
        HiosError: an option is not allowed, or a package is missing.
    """
    options = Options(
        devices, algorithm, parameters or {}, platform, units, cache, tolerance, least_ms, budget_s, timeout_s
    )
    if isinstance(model, OptimizedModule):
        model = model.original
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise HiosError(f"optimize: model: found a {type(model).__name__}; allowed: an nn.Module in Python")
    args = tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)
    model.eval()
    return accelerated(model, args, example_keywords or {}, options)


def accelerated(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options) -> OptimizedModule:
    """``optimize`` for a model in the mode that it is in."""
    cores = options.cores()
    name = type(model).__name__
    try:
        with on_terminals_only(), torch.random.fork_rng(devices=[]):
            return _Optimizer(model, args, kwargs, options, cores).optimized()
    except ModuleNotFoundError as error:
        raise HiosError(
            f"hios.optimize needs {error.name}, which is not installed: pip install 'hios[torch,tvm]'"
        ) from error
    except HiosError as error:
        warn(f"{name} is left as it is: {error}")
        return OptimizedModule(model, Report(name, "the model itself", str(error)))


@dataclass
class _Optimizer:
    """A model on its way."""

    model: nn.Module
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: Options
    cores: list[list[int]]

    def __post_init__(self) -> None:
        self.name = type(self.model).__name__
        self.threads = torch.get_num_threads()
        #: Cores of one device that has them all: those of the devices, or as many as torch uses.
        self.everything = usable_cores()[: max(len(self.cores), self.threads)]

    def optimized(self) -> OptimizedModule:
        """The module.

        Raises:
            HiosError: the model cannot be taken, or something failed.
        """
        if has_hooks(self.model):
            raise UnsupportedError("found hooks, which only the model itself calls; allowed: modules without")
        if torch.is_autocast_enabled("cpu"):
            raise UnsupportedError(
                "autocast is on, and would be part of what is optimised; allowed: to optimise outside"
            )
        require_pure(self.model, self.args, self.kwargs)  # from here on it is run as often as needed
        latency_ms = self._eager_ms()
        if self.options.algorithm == "auto" and latency_ms < self.options.least_ms:
            reason = (
                f"it takes {latency_ms:.2f} ms; below {self.options.least_ms:g} ms (least_ms) waking workers costs "
                "too much to look for more"
            )
            return OptimizedModule(self.model, Report(self.name, "the model itself", reason))
        traced = trace(self.model, self.args, self.kwargs, self.name, self.options.units)
        folder = self.options.folder()
        choices = Choices(None if folder is None else folder / "choices", self._key(traced))
        found = choices.get(self.name, traced.graph)
        if found is None:
            found = self._measured(traced, folder)
            choices.put(*found)
        return self._module(traced, *found)

    def _eager_ms(self) -> float:
        """The shortest of a few runs of the model."""
        took = []
        with torch.no_grad():
            for _ in range(_TIMED):
                began = time.perf_counter()
                self.model(*self.args, **self.kwargs)
                took.append((time.perf_counter() - began) * 1e3)
        return min(took)

    def _key(self, traced: Traced) -> dict[str, Any]:
        """All that a choice rests on."""
        algorithms = _CANDIDATES if self.options.algorithm == "auto" else (self.options.algorithm,)
        modules = [find(algorithm).run.__module__ for algorithm in algorithms]
        return {
            "graph": traced.graph.fingerprint,
            "settings": profile_settings(self.cores),
            "cores": [self.cores, self.everything],
            "threads": self.threads,
            "algorithms": [self.options.algorithm, *algorithms],
            "parameters": dict(self.options.parameters),
            "tolerance": self.options.tolerance,
            "code": code_hash(["hios.profiling.profile", "hios.optimizing.contest", *modules]),
        }

    def _measured(self, traced: Traced, folder: Path | None) -> tuple[Report, Way]:
        """Profile, schedule, and have the ways take turns."""
        threads = sorted({self.threads, 1, len(self.everything)} - {self.threads})
        scheduled = self._scheduled(traced, self._costs(traced, folder))
        if self.options.algorithm != "auto":
            threads = []
        ways = distinct([itself(self.threads), *map(itself, threads), *scheduled], traced.graph)
        forced = "" if self.options.algorithm == "auto" else scheduled[0].label
        if (busy := busy_share(self.everything)) > BUSY and not forced:
            warn(
                f"{self.name} is optimised while other work keeps the cores {busy:.0%} busy: what is chosen may not be "
                "the fastest; do it again with another cache folder when they are idle"
            )
        with self._engine_of(traced, ways) as call:
            contest = Contest(ways, call, self._itself(traced), self.options.tolerance, self.options.budget_s, forced)
            contest.measure()
        way, candidates, reason = contest.chosen()
        return Report(self.name, way.label, reason, candidates, contest.measured_at, busy), way

    def _costs(self, traced: Traced, folder: Path | None) -> Costs:
        with tempfile.TemporaryDirectory(prefix="hios-") as name:
            graph, costs = Path(name) / "graph.json", Path(name) / "costs.json"
            traced.graph.write(graph)
            return Costs.from_json(
                profile(
                    graph,
                    costs,
                    devices=len(self.cores),
                    repeats=_REPEATS,
                    stages_of=(),
                    budget_s=self.options.budget_s,
                    cache=folder and folder / "measurements",
                )
            )

    def _scheduled(self, traced: Traced, costs: Costs) -> list[Way]:
        """Ways by schedules: those of the algorithm asked for, or of all that take part."""
        problem, devices = Problem(traced.graph, costs), len(self.cores)
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

    def _tensors(self, traced: Traced) -> list[Tensor]:
        return traced.inputs.required(self.args, self.kwargs)

    def _itself(self, traced: Traced) -> list[Tensor]:
        with torch.no_grad():
            return traced.outputs.flat(self.model(*self.args, **self.kwargs))

    @contextmanager
    def _engine_of(self, traced: Traced, ways: Sequence[Way]) -> Iterator[Any]:
        """A function that runs the model by any of the ways, while workers for all of them are there."""
        tasks = {way.label: task for way in ways if (task := way.task(traced.graph, len(self.cores)))}
        wide = [self.everything] if any(way.wide for way in ways) else []
        tensors = self._tensors(traced)
        with Engine(traced.graph, traced.weights, tasks, [*self.cores, *wide], self.options.timeout_s) as engine:

            def call(way: Way) -> list[Tensor]:
                if way.label in tasks:
                    return engine.run(way.label, tensors)
                with torch_threads(way.threads):
                    return self._itself(traced)

            yield call

    def _module(self, traced: Traced, report: Report, way: Way) -> OptimizedModule:
        alone = way.alone(traced.graph, self.cores, self.everything)
        if alone is None:
            return OptimizedModule(self.model, report, threads=0 if way.threads == self.threads else way.threads)
        watch, (task, cores) = Watch(self.model), alone
        engine = Engine(traced.graph, traced.weights, {way.label: task}, cores, self.options.timeout_s)
        try:
            outputs = engine.run(way.label, self._tensors(traced))
            off = beyond(outputs, self._itself(traced), self.options.tolerance)
            if off is not None:
                raise wrong_outputs(way.label, off, self.options.tolerance)
        except BaseException:
            engine.close()
            raise
        run = functools.partial(engine.run, way.label)
        return OptimizedModule(self.model, report, Runner(traced.inputs, traced.outputs, watch, run, engine.close))
