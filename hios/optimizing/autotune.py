"""Choosing how to run a model: a cached choice, or the winner of a race between all candidates."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError
from torch import Tensor

from hios.errors import HiosError
from hios.files.folder_cache import FolderCache
from hios.files.versions import versions
from hios.frontends.models import RUNTIMES
from hios.frontends.tolerances import allows_rounding, explained_share, meaningless
from hios.machine.description import BUSY, OtherWork, busy_share
from hios.machine.statistics import speedup_interval, spread
from hios.optimizing import choice_cache, runtimes
from hios.optimizing.candidates import EAGER, SCHEDULE, Candidate
from hios.optimizing.choice_cache import ChoiceCache, model_key, state_digest
from hios.optimizing.module import warn
from hios.optimizing.other_inputs import Difference, InputsComparison, Rounding, are_flags
from hios.optimizing.preparation import Preparation, Subject
from hios.optimizing.race import FEWEST_ROUNDS, Race
from hios.optimizing.report import Budget, Report, WayReport
from hios.optimizing.schedules import SCHEDULERS
from hios.optimizing.tracing import export, extract
from hios.platforms.code_hash import code_hash, package_hash
from hios.platforms.cpu.engine import Engine
from hios.platforms.cpu.environment import surroundings
from hios.profiling.cache import now
from hios.schedulers import find

#: Software whose version changes what is fastest.
_PACKAGES = ("torch", "apache-tvm", "onnx", "onnxruntime", "onnxscript", "openvino", "numpy")
#: Share of the budget reserved for the race, the minimum reserved in seconds, and the number of ways in the final
#: rounds.
_RACE_SHARE, _LEAST_SHARE, _FINALISTS = 0.5, 0.15, 3
_LATER = "the final choice, in later calls, once the cores are idle"
#: Seconds that an early race may take, and calls of the model that it may take in any case.
_EARLY_S, _EARLY_CALLS = 3.0, 30
#: Cores of which conversions beside an early race take half, so that threads of the model would wait for each other.
_FEW_CORES = 2
#: How many operators a row of the report names.
_MOST_NAMED = 4


class Tuned(NamedTuple):
    """The choice: its report, the way, what runs it, and what shuts down its workers or runtime.

    If the choice is to be made again, it comes with everything that raced (closing it shuts all of it down) and the
    race. ``is_new`` says that it was not compared with the model yet, as the weights have changed since.
    """

    report: Report
    candidate: Candidate
    run: runtimes.Run
    close: Callable[[], None] = lambda: None
    preparation: Preparation | None = None
    race: Race | None = None
    is_new: bool = False


class Autotune:
    """The choice for one model: the cached one, or the winner of a race between all candidates."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.options = subject, subject.options
        self._key = self._choice_key()
        self._folder = folder = self.options.folder()
        self.choices = ChoiceCache(None if folder is None else folder / "choices", self._key)
        self._store = FolderCache(None if folder is None else folder / "models")

    @functools.cached_property
    def _state(self) -> str:
        """Hash of the weights; empty if they cannot be hashed, such as sparse tensors, and then nothing is cached."""
        try:
            return state_digest(self.subject.model)
        except (RuntimeError, TypeError):
            return ""

    def _choice_key(self) -> dict[str, object]:
        """Everything that a choice depends on."""
        subject = self.subject
        algorithms = SCHEDULERS if self.options.algorithm == "auto" else (self.options.algorithm,)
        modules = [find(algorithm).run.__module__ for algorithm in algorithms]
        others = [module for module in modules if module.partition(".")[0] != "hios"]
        known = versions()
        return {
            "model": model_key(subject.model, subject.tensors),
            "class": subject.name,
            "inputs": subject.inputs.described,
            "flags": [are_flags(value) for value in subject.tensors],
            "settings": [surroundings(own) for own in subject.divisions],
            "cores": [subject.divisions, subject.everything],
            "threads": subject.threads,
            "units": self.options.units,
            "ways": list(self.options.ways),
            "algorithms": [self.options.algorithm, *algorithms],
            "parameters": dict(self.options.parameters),
            "tolerance": self.options.tolerance,
            "strict": self.options.strict,
            "packages": {name: known.get(name) for name in _PACKAGES},
            "code": [package_hash(), code_hash(others) if others else ""],
        }

    def restored(self, report: Report, candidate: Candidate) -> Tuned:
        """The cached choice, loaded from the cache, or prepared again if the weights have changed.

        Raises:
            HiosError: it cannot be prepared any more.
        """
        if candidate.kind == EAGER:
            return Tuned(report, candidate, lambda tensors: [])
        folder = self._store.find(self._key, self._state) if self._state else None
        if folder is not None:
            try:
                return self._loaded(report, candidate, folder)
            except HiosError:
                pass  # damaged: prepared again below
        if not self.options.wait:
            raise HiosError("what was prepared for it is damaged")
        with self._store.workspace() as workspace:
            exported = export(self.subject.model, self.subject.args, self.subject.kwargs, self.subject.outputs)
            if candidate.kind == SCHEDULE:
                choice_cache.write_graph(workspace, *extract(exported, self.subject.name, self.options.units))
            else:
                path = runtimes.file(candidate.converted_for, workspace, candidate.threads)
                runtimes.convert(candidate.converted_for, exported.program, path, candidate.threads)
            tuned = self._loaded(report, candidate, workspace)
            if self._state:
                self._store.keep(self._key, self._state, workspace)
        return tuned._replace(is_new=True)

    def _loaded(self, report: Report, candidate: Candidate, folder: Path) -> Tuned:
        if candidate.kind != SCHEDULE:
            path = runtimes.file(candidate.converted_for, folder, candidate.threads)
            strides = [value.stride() for value in self.subject.tensors]
            return Tuned(report, candidate, runtimes.load(candidate.kind, path, candidate.threads, strides))
        graph, weights = choice_cache.read_graph(folder)
        task, cores = candidate.alone(graph, self.subject.divisions, self.subject.everything)
        choosing = self.options.choosing(self.subject.tensors, self.options.budget_s / 2)
        engine = Engine(graph, weights, {candidate.label: task}, cores, self.options.timeout_s, choosing)
        engine.keep_only(candidate.label)  # without what was compared with its segments
        return Tuned(report, candidate, functools.partial(engine.run, candidate.label), engine.close)

    def raced(self, budget: Budget, expected: list[Tensor], threads: int) -> Tuned:
        """Prepare the candidates, race them and choose one; cached unless other processes kept the cores busy.

        Outputs of candidates have to equal the expected ones, those of the model itself with the number of threads that
        suits the machine at the moment.

        Raises:
            HiosError: a way that was asked for by name cannot be taken, or the cache cannot be written.
        """
        least_s = max(FEWEST_ROUNDS * _FINALISTS * budget.call_s, _LEAST_SHARE * budget.seconds)
        with self._store.workspace() as workspace:
            preparation = Preparation(self.subject, budget, workspace, least_s, most_s=_RACE_SHARE * budget.seconds)
            rounding = functools.partial(self._rounding, preparation)
            few = len(self.subject.everything) <= _FEW_CORES

            def model(tensors: list[Tensor]) -> list[Tensor]:
                return self.subject.run_model(1 if few and preparation.concurrent else threads, tensors)

            comparison = self.comparison(self.options.tolerance, model, rounding, preparation.divides)
            race = functools.partial(self._race, preparation, expected, comparison)

            before: Race | None = None

            def early(coming: Sequence[str]) -> None:
                nonlocal before
                more = len(preparation.quick) > (1 if before is None else len(before.candidates))
                if (told := self.options.told) and coming and more:
                    tuned = race(before, coming)
                    before = tuned.race
                    if tuned.candidate.kind != EAGER:
                        self._keep(tuned, preparation, workspace)
                        told(tuned.report)

            preparation.early = early
            try:
                preparation.prepare()
                tuned = race(before)
                if tuned.report.pending and self.options.is_auto:
                    return tuned
                if not tuned.report.provisional or not self.options.wait:
                    self._keep(tuned, preparation, workspace)
                return self._alone(tuned, preparation)
            except BaseException:
                preparation.close()
                raise

    def _race(
        self,
        preparation: Preparation,
        expected: list[Tensor],
        comparison: InputsComparison,
        before: Race | None,
        coming: Sequence[str] = (),
    ) -> Tuned:
        """Race what is ready; shortly and as on a busy machine while other ways are still to come.

        Where there is time for few rounds, those of the race before count too.
        """
        subject, ready, budget = self.subject, preparation.ready, preparation.budget
        busy, deadline = 0.0 if coming else busy_share(subject.everything), budget.deadline
        if coming:
            deadline = min(deadline, time.monotonic() + max(_EARLY_S, _EARLY_CALLS * budget.call_s))
        if busy > BUSY and self.options.is_auto and self.options.wait:
            warn(
                f"{subject.name} is optimized while other work keeps the cores {busy:.0%} busy: what is chosen may "
                "not be the fastest, and is not kept; the choice is made again, in the course of later calls, once "
                "they are idle"
            )
        others = OtherWork(subject.everything, preparation.process_ids)

        def elsewhere(candidate: Candidate) -> Difference | None:
            began = time.monotonic()
            differs = _elsewhere(comparison, preparation, candidate)
            if coming:  # comparing takes none of the little time for rounds
                race.deadline = min(budget.deadline, race.deadline + time.monotonic() - began)
            return differs

        race = Race(
            preparation.quick if coming else [entry.candidate for entry in ready.values()],
            lambda candidate: ready[candidate.label].run(subject.tensors),
            expected,
            self.options.tolerance,
            deadline,
            [label for label, entry in ready.items() if self.options.asks_for(entry.candidate.kind)],
            (busy > BUSY or len(coming) > 0) and self.options.is_auto,
            budget.show,
            functools.cache(functools.partial(self._rounding, preparation, subject.tensors, expected)),
            elsewhere,
            len(coming) > 0,
            before,
        )
        race.measure()
        busy = max(busy, others.share(preparation.process_ids))
        if (busy > BUSY or coming) and self.options.is_auto:
            candidate = race.provisional()
            meanwhile = "other ways were being prepared" if coming else "other work kept the cores busy"
            reason = f"chosen while {meanwhile}, so nothing is claimed of how fast it is"
        else:
            candidate, reason = race.chosen()
        report = Report(
            subject.name,
            candidate.label,
            reason,
            rows(race, preparation, comparison.with_special),
            race.measured_at,
            busy,
            seconds=round(budget.spent_s, 1),
            rounding=race.explained,
            limits=comparison.limits,
            pending=_in_words(coming) or (_LATER if busy > BUSY and self.options.is_auto and self.options.wait else ""),
        )
        return Tuned(report, candidate, ready[candidate.label].run, preparation.close, preparation, race)

    def comparison(
        self,
        tolerance: float,
        model: runtimes.Run,
        rounding: Rounding = lambda *_: 0.0,
        divides: Callable[[], bool] = lambda: True,
    ) -> InputsComparison:
        """What compares ways with the model, run by a function, on other inputs than the example."""
        sizes = {size for value in self.subject.model.state_dict().values() for size in getattr(value, "shape", ())}
        return InputsComparison(self.subject.tensors, model, tolerance, rounding, self.options.strict, sizes, divides)

    def _rounding(self, preparation: Preparation, tensors: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
        """The largest difference from the model's outputs that rounding to float32 explains; 0 if it is not known.

        Infinite for inputs other than the example's from which the outputs are rounded so much that they mean nothing.
        """
        exported = preparation.exported
        if exported is None or not allows_rounding(self.options.tolerance):
            return 0.0
        from hios.frontends.extraction_check import rounding_errors  # loads much, which a start from the cache lacks

        errors = rounding_errors(exported.program, tensors)
        if not errors or len(errors) != len(expected):
            return 0.0
        if tensors is not self.subject.tensors and meaningless(errors, expected):
            return math.inf
        return explained_share(errors, expected)

    def settled(self, tuned: Tuned, race: Race, busy: float) -> Tuned:
        """The result of a race during later calls, cached for the next start; the winner then runs alone.

        It replaces a provisional choice; ``busy`` is the share of the cores' time that other work took meanwhile.
        """
        preparation = tuned.preparation
        assert preparation is not None  # noqa: S101 - the provisional choice has it
        candidate, reason = race.chosen()
        report = replace(
            tuned.report,
            chosen=candidate.label,
            reason=reason,
            ways=raced_again(tuned.report.ways, race),
            measured_at=now(),
            busy_share=busy,
            pending="",
        )
        self.choices.put(report, candidate)
        run = preparation.ready[candidate.label].run
        return self._alone(Tuned(report, candidate, run, preparation.close, preparation), preparation)

    def _keep(self, tuned: Tuned, preparation: Preparation, workspace: Path) -> None:
        """Write the choice and, if there is room for it, what runs it."""
        self.choices.put(tuned.report, tuned.candidate)
        if tuned.candidate.kind == EAGER or self._folder is None or not self._state:
            return
        with contextlib.suppress(OSError, SafetensorError):  # no room, where files are copied: prepared again later
            if tuned.candidate.kind == SCHEDULE and preparation.traced is not None:
                choice_cache.write_graph(workspace, *preparation.traced)
            with self._store.workspace() as kept:
                choice_cache.link(workspace, tuned.candidate, kept)
                self._store.keep(self._key, self._state, kept)

    def adopt(self, report: Report, candidate: Candidate, other: Autotune) -> None:
        """Keep a choice that another process has put into a folder of its own."""
        if candidate.kind != EAGER and (made := other._store.find(other._key, other._state)) is not None:
            self._store.keep(self._key, other._state, made)
        self.choices.put(report, candidate)

    def _alone(self, tuned: Tuned, preparation: Preparation) -> Tuned:
        """Without the workers of the other candidates."""
        engine = preparation.engine if tuned.candidate.kind == SCHEDULE else None
        if engine is not None:
            engine.keep_only(tuned.candidate.label)
            preparation.engine = None
        preparation.close()
        chosen = Tuned(tuned.report, tuned.candidate, tuned.run)
        return chosen if engine is None else chosen._replace(close=engine.close)


def _elsewhere(comparison: InputsComparison, preparation: Preparation, candidate: Candidate) -> Difference | None:
    """How a candidate differs from the model for other inputs; the model itself does not."""
    way = candidate.compared_as
    if candidate.kind == EAGER or way in comparison.right:
        return None
    answers = bool(preparation.known_of(candidate, "outside"))
    return comparison.difference(way, preparation.ready[candidate.label].run, answers=answers)


def _in_words(kinds: Sequence[str]) -> str:
    return ", ".join({**RUNTIMES, SCHEDULE: "schedules"}[kind] for kind in kinds)


def rows(race: Race, preparation: Preparation, with_special: Mapping[str, Difference | None]) -> tuple[WayReport, ...]:
    """A row per candidate after the race, those that finished it first; and what they do with NaN and infinities."""
    reported = race.reported()
    base = reported.get(race.candidates[0].label, race.today_ms)
    made: list[WayReport] = []
    for label, entry in preparation.ready.items():
        if entry.candidate not in race.candidates:
            continue
        row = WayReport(
            label,
            entry.candidate.kind,
            memory_mb=entry.memory_mb,
            prepare_s=round(entry.prepare_s, 2),
            ready_s=round(entry.ready_s, 2),
        )
        if label in reported:
            row = _measured(row, reported[label], base)
        elif label in race.left:
            why = f"left the race as clearly slower after {len(race.left[label])} rounds"
            row = _measured(replace(row, outcome="slower", why=why), race.left[label], race.today_ms)
        elif label in race.wrong:
            why = f"its outputs differ by {race.wrong[label]}"
            row = replace(row, outcome="different", why=why)
        elif label in race.failed:
            row = replace(row, outcome="refused", why=race.failed[label])
        elif label not in race.latencies and (warm_ms := race.warm_ms.get(label)) is not None:
            why = "left the race while warming up, as clearly slower"
            row = _measured(replace(row, outcome="slower", why=why), [warm_ms])
        elif (together := race.together(label))[0]:
            row = _measured(row, *together)
        elif label in race.warm_ms:
            why = "the budget (budget_s) was spent before ways took turns: its shortest call while warming up"
            row = replace(_measured(replace(row, why=why), [race.warm_ms[label]]), runs=0)
        else:
            why = "the budget (budget_s) was spent before it could be compared"
            row = replace(row, outcome="not started", why=why)
        if (way := entry.candidate.compared_as) in with_special:
            row = replace(row, special=_special(with_special[way], preparation.known_of(entry.candidate, "special")))
        # Beside other work nothing is claimed of how fast a way is.
        made.append(replace(row, speedup=None, low=0.0, high=None) if race.busy else row)
    made.sort(key=lambda way: way.outcome != "raced")
    return (*made, *preparation.absent)


def _special(differs: Difference | None, operators: Sequence[str]) -> str:
    """How outputs differ for NaN and infinities, and for which operators that is known, in words; empty if neither."""
    more = ", ..." if len(operators) > _MOST_NAMED else ""
    known = f"known of {', '.join(operators[:_MOST_NAMED])}{more}" if operators else ""
    return "; ".join(text for text in (differs and f"by {differs}", known) if text)


def raced_again(ways: tuple[WayReport, ...], race: Race) -> tuple[WayReport, ...]:
    """The rows of an earlier report with the numbers of a later race."""
    reported = race.reported()
    base = reported[race.candidates[0].label]
    again: list[WayReport] = []
    for way in ways:
        if way.label in reported:
            again.append(_measured(replace(way, outcome="raced", why=""), reported[way.label], base))
        elif way.label in race.failed:
            again.append(WayReport(way.label, way.kind, "refused", race.failed[way.label], prepare_s=way.prepare_s))
        elif way.outcome in {"raced", "slower"}:
            why = "left the race as clearly slower"
            again.append(replace(way, outcome="slower", why=why, speedup=None, low=0.0, high=None))
        else:
            again.append(way)
    return tuple(sorted(again, key=lambda way: way.outcome != "raced"))


def _measured(about: WayReport, times: list[float], base: Sequence[float] = ()) -> WayReport:
    """A row with times, and with the speedup over those of the model in the same rounds, if they are known."""
    median, p20, p80 = spread(times)
    row = replace(about, median_ms=median, p20_ms=p20, p80_ms=p80, runs=len(times), speedup=None, low=0.0, high=None)
    if not base:
        return row
    row = replace(row, speedup=spread(base)[0] / median)
    rounds = min(len(base), len(times))
    if (bounds := speedup_interval(base[:rounds], times[:rounds])) is not None:
        row = replace(row, low=bounds[0], high=bounds[1])
    return row
