"""From a model and example inputs to a module that runs it in the fastest way measured."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hios.errors import ExampleInputsError, HiosError, HiosWarning, UnsupportedError, first_line, missing_extra
from hios.files import option_defaults
from hios.machine.description import BUSY, OtherWork
from hios.machine.terminal import on_terminals_only
from hios.optimizing.autotune import Autotune, Tuned
from hios.optimizing.background import Background, Found, received, report
from hios.optimizing.candidates import EAGER, Candidate, itself
from hios.optimizing.choice_cache import is_in_files, set_torch, torch_settings
from hios.optimizing.module import Guards, OptimizedModule, TracedRunner, has_hooks, warn
from hios.optimizing.options import Options
from hios.optimizing.other_inputs import difference, outside
from hios.optimizing.preparation import Subject
from hios.optimizing.race import OnlineRace, outruns, timed
from hios.optimizing.report import Budget, Report
from hios.optimizing.runtimes import Run

#: Held by who optimizes: what torch.export changes while it traces is the same for all threads.
_ONE_AT_A_TIME = threading.RLock()


def _after_fork() -> None:
    """The thread that may hold the lock is not in this process."""
    global _ONE_AT_A_TIME
    _ONE_AT_A_TIME = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
#: Number of initial runs that show how long the model takes.
_TIMED = 3
#: A candidate slower than the fastest by more than this factor on a busy machine is not tried in the user's own calls.
_ABLE = 3.0
#: Milliseconds after which fewer initial runs are made.
_TIMED_MS = 500.0


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
    tolerance: float = option_defaults.TOLERANCE,
    least_ms: float = option_defaults.OPTIMIZE_LEAST_MS,
    budget_s: float = option_defaults.OPTIMIZE_BUDGET_S,
    timeout_s: float = option_defaults.TIMEOUT_S,
    way: str | Sequence[str] = "auto",
    strict: bool = False,
    wait: bool = True,
) -> OptimizedModule:
    """Find the fastest way to run a model for inference; returns a module that is called like the model.

    The model is put into eval mode, and all ways to run it are prepared as far as the budget goes: the model itself
    with one thread and with all; the whole model in OpenVINO, ONNX Runtime and torch.compile, if they are installed;
    its operators one after another on one core and on all; and the schedules of several algorithms. They take turns on
    the example inputs, in whole calls with everything that they cost the caller, and those that are clearly slower
    leave early. The fastest way with equal outputs, on the example and on inputs made from it
    (`hios.optimizing.other_inputs`), is kept if it is faster than the model itself with 95 % confidence;
    among ways that are statistically tied with the fastest, it is the one with the smallest 80th percentile. Otherwise
    the module just calls the model. Its ``report`` has a row for every way; for those that were left out, with the
    reason. The choice, the measurements and what runs the model are kept on disk, so that the next start takes seconds.

    While other processes keep the cores busy, no choice is final: the module takes the fastest way that is faster than
    the model beside them, but nothing is cached, the report claims no speedup, and the race is repeated in later calls,
    once the cores are idle.

    A model that torch.export, Relax or the kernel table cannot handle runs as it is, with one ``HiosWarning`` that
    names the reason; so does a model with hooks, a model that changes its state or its inputs, a model whose outputs
    overlap in memory, and any model under autocast. Changes are detected by a run without values
    (`hios.optimizing.purity`), so such a model runs exactly as often as its user calls it. Outside the model's modules,
    tensors that it keeps are noticed, and other changes, such as of Python variables, are not.

    Args:
        model: its inputs and outputs are tensors, in any nesting of tuples, lists and dictionaries, and other values
            that are the same in every call.
        example_inputs: a tuple or list of positional arguments, or a single one.
        example_keywords: keyword arguments.
        devices: cores to schedule for, each a worker process pinned to it; if None, the physical cores are divided
            among 2, 4 and 8 devices, if there are that many, and the divisions that are predicted to be fast take part.
        algorithm: ``auto``, or the name of an algorithm whose schedule is used regardless of the measurements.
        parameters: of a named algorithm.
        platform: ``cpu``.
        units: scheduling units; as the model declares if None.
        cache: folder for measurements and choices; None for ``$HIOS_CACHE`` or the user's cache folder, False for none.
        tolerance: how far outputs may be from the model's, absolute plus relative, in units of their largest magnitude;
            a model that amplifies rounding, such as T5, allows 4 times the error of its own outputs in float32,
            unless the tolerance is below the default;
            16-bit numbers may differ by their precision.
        least_ms: with ``auto``, a model that takes less time is left as it is, as waking workers costs too much for it.
        budget_s: seconds that everything together should take, except for ways that are named in ``way``. What is not
            expected to fit is not started, or is stopped where it can be, and the report says so; what is quick to
            prepare comes first. Steps within this process cannot be stopped; how long each takes for a model of this
            size is known from earlier calls.
        timeout_s: longest time of one call.
        way: ``auto`` for the fastest; ``eager``, ``schedule``, ``openvino``, ``onnxruntime`` or ``compile`` to use that
            way regardless of the measurements; several of them for the fastest of these and the model as it is.
        strict: whether outputs have to equal the model's for inputs with NaN and infinities too; otherwise the report
            says what each way does with them.
        wait: whether to return once the choice is made; otherwise the module runs the model itself for now, while
            another process, of lower priority, looks for the fastest way, which later calls take. The model has
            to be one that can be pickled, of a class that can be imported.

    Raises:
        HiosError: an option is not allowed, a package is missing, or the model cannot run on the example inputs.

    Notes:
        `docs/how-it-decides.md` explains the choice, what is measured and what it costs.

    Examples:
        >>> import torch, hios
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
        >>> inputs = torch.ones(1, 8)
        >>> fast = hios.optimize(model, inputs, cache=False)
        >>> torch.allclose(fast(inputs), model(inputs))
        True

        Such a small model is left as it is, and the report says so:

        >>> fast.report.chosen
        'the model itself'
    """
    options = Options(
        devices,
        algorithm,
        parameters or {},
        platform,
        units,
        cache,
        tolerance,
        least_ms,
        budget_s,
        timeout_s,
        way,
        strict,
        wait,
    )
    if isinstance(model, OptimizedModule):
        model = model.original
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise HiosError(f"optimize: model: found a {type(model).__name__}; allowed: an nn.Module in Python")
    if example_keywords is not None and not isinstance(example_keywords, Mapping):
        raise HiosError(
            f"optimize: example_keywords: found a {type(example_keywords).__name__}; allowed: a dictionary of inputs "
            "by name; inputs by position go into one tuple, as in hios.optimize(model, (a, b))"
        )
    args = tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)
    try:
        model.eval()
    except NotImplementedError as error:
        return _left_as_it_is(model, f"{first_line(error)}; allowed: models that torch.export has not made")
    with _ONE_AT_A_TIME:
        return (accelerated if wait else _at_once)(model, args, example_keywords or {}, options)


def _at_once(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options) -> OptimizedModule:
    """``optimize`` without waiting."""
    try:
        own = _Optimizer(Subject(model, args, kwargs, options, options.divisions()))
        return own.cached() or _improving(own)
    except ExampleInputsError:
        raise
    except HiosError as error:
        return _left_as_it_is(model, str(error))


def _improving(own: _Optimizer) -> OptimizedModule:
    """The model itself, until another process has found the fastest way; a `HiosError` if that cannot be looked for."""
    model, name, options = own.subject.model, own.subject.name, own.options
    cache = options.folder()
    background = Background(cache)
    private = replace(options, cache=background.folder)
    fast = OptimizedModule(
        model, Report(name, "the model itself", "for now", pending="the fastest way, for which a process looks")
    )
    try:
        # Copies, as the user may write other numbers into the example's tensors meanwhile.
        args, kwargs = own.subject.inputs.rebuilt([tensor.detach().clone() for tensor in own.subject.tensors])
        subject, guards = replace(own.subject, args=args, kwargs=kwargs, options=private), Guards(model)
        optimizer = _Optimizer(subject)

        def failed(why: str) -> None:
            if fast.runner is None:
                fast.settle(_left_as_it_is(model, why))
            else:  # it runs in the best way found before
                fast.report = replace(fast.report, pending="")
                warn(f"no faster way is looked for: {why}")

        def found(what: Found) -> None:
            torch.set_num_threads(subject.threads)  # of this thread
            for text in what.warnings:
                warn(text)
            early, kept = what.report.pending, optimizer.autotune.choices.get()
            if early and (kept is None or kept[0].pending != early):
                return  # the next choice is being written
            final, changed = optimizer.taken_while(guards, kept)
            if final is not None:
                final.report = replace(final.report, cached=False)
                fast.settle(final)
                if cache is not None and kept is not None and not (early or final.report.provisional):
                    own.autotune.adopt(*kept, optimizer.autotune)
            elif changed and not early:
                fast.runner = None
                failed(f"{changed} while it was optimized; call hios.optimize again")
            elif not early:
                fast.settle(OptimizedModule(model, _not_taken(what.report)))

        request = (model, subject.args, subject.kwargs, private, subject.threads, torch_settings())
        background.start(request, found, failed)
    except HiosError:
        background.discard()
        raise
    fast.background = background
    weakref.finalize(fast, background.end).atexit = False  # at the end of the process it ends by itself
    return fast


def _not_taken(found: Report) -> Report:
    """The report of a search whose choice is not taken in this process."""
    if found.chosen == "the model itself":
        return found
    reason = f"{found.chosen} was chosen ({found.reason}), but is not faster here, or its outputs differ"
    return replace(found, chosen="the model itself", reason=reason)


def work(folder: str) -> None:
    """What the other process does."""
    model, args, kwargs, options, threads, settings = received(Path(folder))
    set_torch(settings)
    options = replace(options, told=lambda early: report(Path(folder), Found(early, [])))
    torch.set_num_threads(threads)
    with warnings.catch_warnings(record=True, action="always", category=HiosWarning) as caught:
        try:
            fast = accelerated(model, args, kwargs, options)
        except HiosError as error:
            sys.exit(str(error))
        finally:
            told = [str(own.message) for own in caught if issubclass(own.category, HiosWarning)]
    fast.close()
    report(Path(folder), Found(fast.report, told))


def accelerated(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options) -> OptimizedModule:
    """``optimize`` for a model in its current mode."""
    divisions = options.divisions()
    name = type(model).__name__
    try:
        if has_hooks(model):
            raise UnsupportedError("found hooks, which only the model itself calls; allowed: modules without")
        if torch.is_autocast_enabled("cpu"):
            raise UnsupportedError(
                "autocast is on, and would be part of what is optimized; allowed: to optimize outside"
            )
        modules = sum(1 for _ in model.modules())
        megabytes = sum(value.numel() * value.element_size() for value in model.parameters()) / 1e6
        with (
            on_terminals_only(),
            torch.random.fork_rng(devices=[]),
            Budget(options.budget_s, name, modules, options.folder(), megabytes) as budget,
        ):
            budget.show("looking for an earlier choice")
            return _Optimizer(Subject(model, args, kwargs, options, divisions), budget).optimized()
    except ModuleNotFoundError as error:
        if (explained := missing_extra("hios.optimize", error)) is None:
            raise
        raise explained from error
    except ExampleInputsError:
        raise
    except HiosError as error:
        return _left_as_it_is(model, str(error))


def _left_as_it_is(model: nn.Module, why: str) -> OptimizedModule:
    name = type(model).__name__
    warn(f"{name} is left as it is: {why}")
    return OptimizedModule(model, Report(name, "the model itself", why))


class _Optimizer:
    """Finds the fastest way to run one model."""

    def __init__(self, subject: Subject, budget: Budget | None = None) -> None:
        self.subject, self.options, self.budget = subject, subject.options, budget
        self.autotune = Autotune(subject)
        self.others = OtherWork(subject.everything)

    def optimized(self) -> OptimizedModule:
        """The optimized module; a `HiosError` if the model cannot be taken, or something failed."""
        kept = self.autotune.choices.get()
        # Once a model is known to have no side effects, it may run as often as needed; a cached choice implies it
        # was checked.
        known = kept is not None and self._is_known(kept[1])
        if not known:
            self._require_pure()
        if kept is not None and (fast := self.taken(*kept)) is not None:
            return fast
        if known:
            self._require_pure()
        return self._raced()

    def cached(self) -> OptimizedModule | None:
        """The cached choice, if it can be taken without preparing anything; otherwise None.

        Raises:
            ExampleInputsError: the model cannot run on the example.
        """
        kept = self.autotune.choices.get()
        if kept is None or not self._is_known(kept[1]):
            return None
        if has_hooks(self.subject.model) or torch.is_autocast_enabled("cpu"):
            return None
        try:
            with torch.random.fork_rng(devices=[]):
                return self.taken(*kept)
        except ExampleInputsError:
            raise
        except HiosError:  # what runs it is not there, or for other weights
            return None

    def _is_known(self, candidate: Candidate) -> bool:
        """Whether a cached choice implies that the model has no side effects."""
        return candidate == itself(self.subject.threads) or is_in_files(self.subject.model)

    def _require_pure(self) -> None:
        from hios.optimizing.purity import require_pure  # imports sympy, which a start from the cache does without

        require_pure(self.subject.model, self.subject.args, self.subject.kwargs)

    def taken(self, report: Report, candidate: Candidate) -> OptimizedModule | None:
        """The cached choice, if it takes the example and is still right and faster than the model; otherwise None."""
        if candidate == itself(self.subject.threads):
            return OptimizedModule(self.subject.model, report)
        if outside(self.subject.tensors, report.limits):
            return None
        expected = self.subject.run_once()
        tuned = self.autotune.restored(report, candidate)
        try:
            right = candidate.kind == EAGER or self._is_right(tuned, expected)
            fast = self._module(tuned)
            if right and (not self.options.is_auto or self._holds(fast, candidate)):
                return fast
        except BaseException:
            tuned.close()
            raise
        tuned.close()
        return None

    def taken_while(self, guards: Guards, kept: tuple[Report, Candidate] | None) -> tuple[OptimizedModule | None, str]:
        """The cached choice, unless guards from before see a change, which is told; those of the result are younger."""
        changed = guards.changed()
        final: OptimizedModule | None = None
        if kept is not None and not changed:
            try:
                final = self.taken(*kept)
            except HiosError:
                if not kept[0].pending:
                    raise
                return None, ""  # what runs the next choice replaces it
        if (changed := changed or guards.changed()) and final is not None:
            final.close()
        return (None if changed else final), changed

    def _is_right(self, tuned: Tuned, expected: list[Tensor]) -> bool:
        """Whether outputs equal the model's for the example, and for other inputs if the weights have changed."""
        outputs, tolerance = tuned.run(self.subject.tensors), max(self.options.tolerance, tuned.report.rounding)
        if difference(outputs, expected, tolerance) is not None:
            return False
        model = functools.partial(self.subject.run_model, self.subject.threads)
        elsewhere = self.autotune.comparison(tolerance, model)
        try:
            return not tuned.is_new or elsewhere.difference("", tuned.run) is None
        except HiosError:  # it fails on other inputs
            return False

    def _raced(self) -> OptimizedModule:
        """The winner of a race; the model itself if it is too fast for a race to pay off."""
        began = time.perf_counter()
        expected = self.subject.run_once()
        latency_ms = self._eager_ms((time.perf_counter() - began) * 1e3)
        threads = self.subject.threads
        if threads > 1 and self.others.share() > BUSY:
            # Threads that wait for each other and for cores may take ten times as long as one.
            alone_ms = timed(functools.partial(self.subject.run_model, 1, self.subject.tensors))[1]
            latency_ms, threads = min((latency_ms, threads), (alone_ms, 1))
        if self.options.is_auto and latency_ms < self.options.least_ms:
            alone = " with one thread, as other work keeps the cores busy" if threads < self.subject.threads else ""
            reason = (
                f"it takes {latency_ms:.2f} ms{alone}; below {self.options.least_ms:g} ms (least_ms) waking workers "
                "costs too much to look for more"
            )
            return OptimizedModule(self.subject.model, Report(self.subject.name, "the model itself", reason))
        assert self.budget is not None  # noqa: S101 - without one, only cached choices are taken
        self.budget.call_s = latency_ms / 1e3
        return self._module(self.autotune.raced(self.budget, expected, threads))

    def _eager_ms(self, first_ms: float) -> float:
        """The shortest of a few runs of the model, including the one already made."""
        took = [first_ms]
        with torch.no_grad():
            while len(took) <= _TIMED and sum(took) < _TIMED_MS:
                began = time.perf_counter()
                self.subject.model(*self.subject.args, **self.subject.kwargs)
                took.append((time.perf_counter() - began) * 1e3)
        return min(took)

    def _holds(self, fast: OptimizedModule, candidate: Candidate) -> bool:
        """Whether a cached choice is still faster than the model itself."""

        def run(module: nn.Module) -> Callable[[], Any]:
            return torch.no_grad()(lambda: module(*self.subject.args, **self.subject.kwargs))

        return outruns(run(fast), run(self.subject.model), candidate.busy_cores or torch.get_num_threads() > 1)

    def _module(self, tuned: Tuned) -> OptimizedModule:
        subject = self.subject
        if tuned.race is None and tuned.candidate.kind == EAGER:
            threads = 0 if tuned.candidate.threads == subject.threads else tuned.candidate.threads
            return OptimizedModule(subject.model, tuned.report, threads=threads)
        run = tuned.run if tuned.race is None else self._in_turns(tuned, lambda final: fast.settle(final))
        runner = TracedRunner(
            subject.inputs, subject.outputs, Guards(subject.model), run, tuned.close, tuned.report.limits
        )
        fast = OptimizedModule(subject.model, tuned.report, runner)
        return fast

    def _in_turns(self, tuned: Tuned, settle: Callable[[OptimizedModule], None]) -> Run:
        """Runs calls by candidates in turns until the choice is repeated, as other processes kept the cores busy."""
        preparation, race = tuned.preparation, tuned.race
        assert preparation is not None  # noqa: S101 - what is chosen for the time being has both
        assert race is not None  # noqa: S101
        return OnlineRace(
            race.able(_ABLE),
            {label: entry.run for label, entry in preparation.ready.items()},
            tuned.candidate.label,
            self.subject.everything,
            preparation.process_ids,
            lambda race, busy: settle(self._module(self.autotune.settled(tuned, race, busy))),
        ).run
