"""What ``hios.optimize`` tells its user: the report of its choice, and while it works, its steps and the time left.

The report has a row of measured numbers per candidate. `Budget` is the time limit: it says which steps still fit.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from hios.errors import ArtifactError
from hios.files.artifacts import write_whole
from hios.files.text_tables import aligned
from hios.machine.description import BUSY, usable_cores
from hios.machine.terminal import bar

#: What became of a candidate: it finished the race, dropped out as clearly slower, has outputs that differ from the
#: model's, could not be prepared or run, or was not prepared at all.
RaceOutcome = Literal["raced", "slower", "different", "refused", "not started"]


@dataclass(frozen=True, slots=True)
class WayReport:
    """One candidate: whole calls, including all overhead for the caller.

    Attributes:
        label: what ran.
        kind: ``eager``, ``schedule``, ``compile``, ``onnxruntime`` or ``openvino``.
        outcome: one of ``RaceOutcome``.
        why: why it did not race to the end, in words; empty if it did.
        median_ms: median latency, milliseconds; None where nothing was measured.
        p20_ms: 20th percentile.
        p80_ms: 80th percentile.
        runs: number of runs behind these percentiles.
        speedup: median of the model itself over this median, in the same rounds.
        low: lower end of its 95 % interval (`statistics.speedup_interval`); 0 with too few runs for an interval.
        high: upper end; None with too few runs for an interval.
        memory_mb: memory in addition to that of the model, in MB (10^6 bytes), without what importing torch takes,
            which worker processes share; None where it was not measured.
        prepare_s: seconds that preparing it took; None if it was not prepared.
        ready_s: seconds from the beginning until it was ready, after others; None if it was not prepared.
        special: how its outputs differ from the model's for inputs with NaN or infinities, in words; empty if they are
            equal, None if it is not known.
    """

    label: str
    kind: str
    outcome: RaceOutcome = "raced"
    why: str = ""
    median_ms: float | None = None
    p20_ms: float | None = None
    p80_ms: float | None = None
    runs: int = 0
    speedup: float | None = None
    low: float = 0.0
    high: float | None = None
    memory_mb: float | None = None
    prepare_s: float | None = None
    ready_s: float | None = None
    special: str | None = None

    @property
    def equal(self) -> bool | None:
        """Whether its outputs match the model's within the tolerance; None if unknown."""
        return {"raced": True, "slower": True, "different": False}.get(self.outcome)

    def cells(self) -> list[str]:
        """The cells of its row in the printed table."""
        times = [self.median_ms, self.p20_ms, self.p80_ms]
        median, p20, p80 = ("" if value is None else f"{value:.2f}" for value in times)
        speedup = "" if self.speedup is None else f"{self.speedup:.2f}"
        if self.high is not None:
            speedup += f" ({self.low:.2f} to {self.high:.2f})"
        return [
            self.label,
            median,
            f"{p20} to {p80}" if p20 else "",
            speedup,
            "" if self.memory_mb is None else f"{self.memory_mb:.0f}",
            "" if self.prepare_s is None else f"{self.prepare_s:.1f}",
            {True: "yes", False: "no", None: ""}[self.equal],
            self.why,
        ]


_HEADING = ["", "median ms", "p20 to p80", "speedup (95 %)", "memory MB", "prepared in s", "equal", ""]


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """The result of ``hios.optimize``; prints as a table of all candidates.

    Attributes:
        model: class of the model.
        chosen: label of the way that the module runs.
        reason: why, in words.
        ways: all candidates that were considered; empty if nothing was measured.
        measured_at: when, UTC; empty if nothing was measured.
        busy_share: share of the cores' time that other work took while the ways raced.
        cached: whether the numbers are those of an earlier call.
        seconds: how long it took to choose.
        rounding: how far outputs were allowed to be from the model's, in units of their largest magnitude, because
            rounding to float32 explains so much; 0 if all were within the tolerance.
        limits: of every input, the least and the largest whole number that the chosen way gets, as the model refuses
            others, such as indices outside of a table; calls with these run the model itself.
        pending: what is still to come, in words; empty if the choice stays.
    """

    model: str
    chosen: str
    reason: str
    ways: tuple[WayReport, ...] = ()
    measured_at: str = ""
    busy_share: float = 0.0
    cached: bool = False
    seconds: float = 0.0
    rounding: float = 0.0
    limits: tuple[tuple[int, int] | None, ...] = ()
    pending: str = ""

    @property
    def candidates(self) -> tuple[WayReport, ...]:
        """The candidates that finished the race."""
        return tuple(way for way in self.ways if way.outcome == "raced")

    @property
    def steps(self) -> tuple[WayReport, ...]:
        """The ways that are faster than all that were ready before, the model itself first."""
        equal = [way for way in self.ways if way.equal and way.median_ms is not None]
        known = [(way.ready_s, way.median_ms or 0.0, way) for way in equal if way.ready_s is not None]
        known.sort(key=lambda own: own[0])
        fastest = itertools.accumulate((ms for _, ms, _ in known), min, initial=math.inf)
        return tuple(way for (_, ms, way), before in zip(known, fastest, strict=False) if ms < before)

    def gained_s(self, share: float = 0.8) -> float | None:
        """Seconds until a way was ready that has this share of the final gain in time; None if nothing was gained.

        The gain is over the model itself, with the number of threads with which it is the fastest; where the model
        itself was chosen, with whichever number of threads, no way has gained anything.
        """
        known = [(way, way.median_ms) for way in self.ways if way.median_ms is not None]
        final_ms = next((ms for way, ms in known if way.label == self.chosen), math.inf)
        itself_ms = min((ms for way, ms in known if way.kind == "eager"), default=0.0)
        enough_ms = final_ms + (1 - share) * (itself_ms - final_ms)
        return next((way.ready_s for way in self.steps if (way.median_ms or 0.0) <= enough_ms < itself_ms), None)

    @property
    def provisional(self) -> bool:
        """Whether other processes kept the cores busy, so that the choice is repeated once they are idle."""
        return self.busy_share > BUSY

    def __repr__(self) -> str:
        lines = [f"{self.model} runs as {self.chosen}: {self.reason}"]
        if not self.ways:
            return f"{lines[0]}; still to come: {self.pending}" if self.pending else lines[0]
        rows = [_HEADING, *(way.cells() for way in self.ways)]
        lines += [f"  {line}" for line in aligned(rows, "<>>>>>><")]
        runs = max((way.runs for way in self.candidates), default=0)
        taken = "kept from an earlier call, measured" if self.cached else "measured"
        busy = f"; other work kept the cores {self.busy_share:.0%} busy" if self.provisional else ""
        turns = f"in {runs} runs each, taking turns" if runs else "while warming up"
        lines.append(f"  {taken} {self.measured_at} {turns}{busy}; {self.seconds:.0f} s in all")
        if (gained_s := self.gained_s()) is not None:
            ready = ", ".join(f"{way.label} after {way.ready_s:.1f} s" for way in self.steps)
            lines.append(f"  ready: {ready}; 80 % of the gain after {gained_s:.1f} s")
        if self.pending:
            lines.append(f"  still to come: {self.pending}")
        lines += self._special()
        if self.rounding:
            lines.append(
                f"  outputs may differ by {self.rounding:.2g} of their size: 4 times what rounding to float32 changes "
                "in the model's own"
            )
        for place, own in enumerate(self.limits):
            if own is not None:
                lines.append(f"  input {place}: whole numbers from {own[0]} to {own[1]}; others run the model itself")
        return "\n".join(lines)

    def _special(self) -> Iterator[str]:
        """What ways do with NaN and infinities, a line for those that do as the model does, and for the others."""
        equal = [way.label for way in self.ways if way.special == ""]
        other = [f"{way.label} ({way.special})" for way in self.ways if way.special]
        if equal:
            yield f"  NaN and infinities give the model's outputs in {', '.join(equal)}"
        if other:
            yield f"  NaN and infinities give other outputs, which strict=True refuses, in {', '.join(other)}"


#: First estimates of the time of each step, for a machine on which it never ran: seconds, seconds per operator, seconds
#: per MB (10^6 bytes) of parameters, and calls of the model. Measured times on the machine replace them.
_GUESSES = {
    "export": (1.5, 0.015, 0.001, 3.0),
    "openvino": (2.0, 0.01, 0.005, 5.0),
    "onnxruntime": (6.0, 0.03, 0.01, 5.0),
    "compile": (15.0, 0.08, 0.01, 5.0),
    "load": (0.2, 0.001, 0.003, 3.0),
    "extract": (4.0, 0.03, 0.005, 3.0),
    "costs": (3.0, 0.01, 0.0, 12.0),
    "engine": (3.0, 0.003, 0.005, 5.0),
}
#: Steps whose time depends on the operators of the graph.
_ON_THE_GRAPH = ("extract", "costs", "engine")
#: Steps that are begun if this share of their first estimate, or the shortest of their times, fits: they are quick, or
#: can be stopped.
_TRIED, _AT_BEST = ("export", "openvino", "onnxruntime", "compile"), 0.5
#: How many times as long as usual a step may take, and how many of its times are remembered.
_MARGIN, _REMEMBERED = 1.25, 5
#: How many times as long as expected everything is taken to last because other steps did: one may be an outlier.
_MOST_PACE = 3.0
#: Seconds between two updates of the progress bar.
_REDRAWN_S = 0.5


class Budget:
    """Counts down from its creation, with a progress bar; a context manager.

    Predicted times of steps depend on the size of the model: how many operators it has, or modules until they are
    counted, and megabytes of parameters. How long steps took for their size is saved in the folder, if any.
    """

    def __init__(self, seconds: float, name: str, operators: int, folder: Path | None, megabytes: float = 0.0) -> None:
        self.began = time.monotonic()
        self.seconds = seconds
        #: Operators of the model, and of its graph, in which a layer such as an LSTM is many.
        self.operators, self.graph_operators = operators, operators
        self._name, self._megabytes = name, megabytes
        self._file = None if folder is None else folder / "step-times.json"
        #: How many times as long as first estimated a step took, the last few times, by step.
        self._ratios = _read(self._file)
        #: Seconds of a call of the model, which some steps make.
        self.call_s = 0.0
        self._over = threading.Event()
        self._cores = max(len(usable_cores()), 1)
        #: Seconds that the steps of this run took, and that they were expected to take.
        self._taken, self._expected = 0.0, 0.0

    def __enter__(self) -> Self:
        self._bar: Any = bar(round(self.seconds, 1), f"{self._name}: beginning", "s")
        self._ticker = threading.Thread(target=self._tick, name="hios progress", daemon=True)
        if not self._bar.disable:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._ticker.is_alive():
            self._ticker.join()
        self._bar.close()

    def _tick(self) -> None:
        while not self._over.wait(_REDRAWN_S):
            self._redraw()

    def _redraw(self) -> None:
        self._bar.n = min(round(self.spent_s, 1), self._bar.total)
        self._bar.refresh()

    @property
    def deadline(self) -> float:
        """The end of the budget, by ``time.monotonic``."""
        return self.began + self.seconds

    @property
    def spent_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    @property
    def left_s(self) -> float:
        """Seconds left; negative if the budget is overdrawn."""
        return self.deadline - time.monotonic()

    def show(self, what: str) -> None:
        """Show what is being done."""
        self._bar.set_description_str(f"{self._name}: {what}", refresh=False)
        self._redraw()

    def predicted_s(self, step: str, concurrent: int = 0) -> float:
        """Seconds that a step is expected to take.

        The prediction uses how long the step took here before, for models of other sizes too, and how much longer than
        expected the steps of this run took. ``concurrent`` is how many other processes prepare something at the same
        time; they share the cores.
        """
        pace = max(1.0, self._taken / self._expected) if self._expected else 1.0
        return min(pace, _MOST_PACE) * self._usual_s(step, concurrent)

    def _usual_s(self, step: str, concurrent: int) -> float:
        ratios = self._ratios.get(step)
        return self._guess_s(step, concurrent) * (_MARGIN * statistics.median(ratios) if ratios else 1.0)

    def _guess_s(self, step: str, concurrent: int) -> float:
        fixed, each, per_megabyte, calls = _GUESSES[step]
        operators = self.graph_operators if step in _ON_THE_GRAPH else self.operators
        alone_s = fixed + each * operators + per_megabyte * self._megabytes + calls * self.call_s
        return alone_s * max(1.0, (1 + concurrent) / self._cores)

    def _least_s(self, step: str, concurrent: int) -> float:
        """Seconds that a step takes if all goes well."""
        return self._guess_s(step, concurrent) * min([_AT_BEST, *self._ratios.get(step, ())])

    def too_short_for(self, *steps: str, keep_s: float = 0.0, concurrent: int = 0) -> str:
        """Why steps are not started, in words; empty if there is time for all of them, with ``keep_s`` left after.

        Steps that only their earlier times keep out lose the oldest of these: what is not started is not measured
        either, and a busy hour would keep it out for ever.
        """
        seconds = {step: self._least_s if step in _TRIED else self.predicted_s for step in steps}
        needed, left = sum(of(step, concurrent) for step, of in seconds.items()), self.left_s - keep_s
        if needed <= left:
            return ""
        if sum(self._guess_s(step, concurrent) for step in steps) <= left:
            for step in steps:
                self._ratios.get(step, [])[:1] = []
            self._save()
        return (
            f"preparing it takes about {needed:.0f} s, and of the budget of {self.seconds:g} s (budget_s) only "
            f"{max(left, 0.0):.0f} s is left"
        )

    @contextlib.contextmanager
    def step(self, step: str, what: str, concurrent: int = 0) -> Iterator[None]:
        """A context whose time is recorded for predictions if it does not fail."""
        self.show(what)
        began = time.monotonic()
        yield
        self.took(step, time.monotonic() - began, concurrent)

    def took(self, step: str, seconds: float, concurrent: int = 0) -> None:
        """Record how long a step took while this many other processes ran."""
        self._taken += seconds
        self._expected += self._usual_s(step, concurrent)
        ratios = self._ratios.setdefault(step, [])
        ratios.append(max(round(seconds / self._guess_s(step, concurrent), 3), 0.001))
        del ratios[:-_REMEMBERED]
        self._save()

    def _save(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError, ArtifactError):
                write_whole(self._file, json.dumps(self._ratios) + "\n")


def _read(file: Path | None) -> dict[str, list[float]]:
    """The ratios of actual to estimated time of earlier steps; empty if the file is missing or damaged."""
    try:
        read = json.loads(file.read_text(encoding="utf-8")) if file is not None else {}
        ratios = {step: [float(ratio) for ratio in read.get(step, ())] for step in _GUESSES}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    return {step: own for step, own in ratios.items() if all(0 < ratio < math.inf for ratio in own)}
