"""From a model and example inputs to a module that runs it the fastest way that was measured."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hios import defaults
from hios.errors import HiosError, UnsupportedError
from hios.optimizing.choosing import Choosing
from hios.optimizing.contest import outruns, wrong_outputs
from hios.optimizing.module import OptimizedModule, Runner, warn
from hios.optimizing.options import Options
from hios.optimizing.purity import require_pure
from hios.optimizing.report import Report
from hios.optimizing.tracing import trace
from hios.optimizing.watching import Watch, has_hooks
from hios.optimizing.ways import Way
from hios.platforms.cpu.engine import Engine
from hios.progress import on_terminals_only
from hios.tolerances import beyond

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
    tolerance: float = defaults.TOLERANCE,
    least_ms: float = 2.0,
    budget_s: float = defaults.OPTIMIZE_BUDGET_S,
    timeout_s: float = defaults.TIMEOUT_S,
) -> OptimizedModule:
    """A module that is called like the model and runs it the fastest way that was measured, for inference.

    The model is put into eval mode, exported, profiled and scheduled. Then the ways to run it take turns with the
    example inputs, whole calls with all that they cost the caller: the model itself, its operators one after another on
    one core and on all cores, and the schedules of several algorithms. The fastest, or the steadiest of those that the
    runs cannot tell from it, is kept if it is faster than the model itself by more than the measurement can tell; else
    the module just calls the model. ``report`` of the module says what was chosen and has the numbers. Measurements,
    schedule and choice are kept on disk for the next time.

    What torch.export, Relax or the kernel table cannot take runs as it is, with one ``HiosWarning`` that names the
    reason; so do models with hooks, models that change their state or their inputs, models whose outputs share memory,
    and all under autocast. What changes something is found by a run without values (`hios.optimizing.purity`), so that
    it runs exactly as often as its user runs it; what a model changes outside its modules, such as values of Python's,
    is not seen.

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
        choosing = Choosing(self.model, self.args, self.kwargs, self.options, self.cores, traced)
        if (kept := choosing.kept()) is not None:
            fast = self._module(choosing, *kept)
            if self.options.algorithm != "auto" or self._holds(fast, kept[1]):
                return fast
            fast.close()
        return self._module(choosing, *choosing.measured())

    def _eager_ms(self) -> float:
        """The shortest of a few runs of the model."""
        took = []
        with torch.no_grad():
            for _ in range(_TIMED):
                began = time.perf_counter()
                self.model(*self.args, **self.kwargs)
                took.append((time.perf_counter() - began) * 1e3)
        return min(took)

    def _holds(self, fast: OptimizedModule, way: Way) -> bool:
        """Whether a choice of earlier is still faster than the model by itself."""
        if fast.runner is None and not fast.threads:
            return True

        def run(module: nn.Module) -> Callable[[], Any]:
            return torch.no_grad()(lambda: module(*self.args, **self.kwargs))

        return outruns(run(fast), run(self.model), way.busy_cores or torch.get_num_threads() > 1)

    def _module(self, choosing: Choosing, report: Report, way: Way) -> OptimizedModule:
        traced = choosing.traced
        alone = way.alone(traced.graph, self.cores, choosing.everything)
        if alone is None:
            threads = 0 if way.threads == choosing.threads else way.threads
            return OptimizedModule(self.model, report, threads=threads)
        watch, (task, cores) = Watch(self.model), alone
        engine = Engine(traced.graph, traced.weights, {way.label: task}, cores, self.options.timeout_s)
        try:
            outputs = engine.run(way.label, choosing.tensors())
            off = beyond(outputs, choosing.itself(), self.options.tolerance)
            if off is not None:
                raise wrong_outputs(way.label, off, self.options.tolerance)
        except BaseException:
            engine.close()
            raise
        run = functools.partial(engine.run, way.label)
        return OptimizedModule(self.model, report, Runner(traced.inputs, traced.outputs, watch, run, engine.close))
