"""The three numbers of the summary, each with a sentence and the place of the page that shows where it comes from."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hios.formats.run_file import ScheduleResult
from hios.machine import BUSY
from hios.report.model_results import ModelResults
from hios.statistics import tells


@dataclass(frozen=True, slots=True)
class Headline:
    """A number.

    Attributes:
        name: what it is.
        value: the number with its unit.
        sentence: what it says, of which results.
        anchor: identity of the row that shows it.
    """

    name: str
    value: str
    sentence: str
    anchor: str


def row_anchor(table: str, model: int, position: int) -> str:
    """Identity of a row of a table of schedules: ``measured`` or ``predicted``; models are counted from 1."""
    return f"{table}-{model}-{position}"


def headlines(models: Sequence[ModelResults]) -> list[Headline]:
    """Best speedup, certified gap and prediction error; those that the results do not have are left out."""
    rows = [
        (number, position, model, result)
        for number, model in enumerate(models, start=1)
        for position, result in enumerate(model.run.results)
    ]
    return [*_speedup(rows), *_gap(models), *_error(rows)]


#: Number of the model, position in its results, the model, the result.
_Row = tuple[int, int, ModelResults, ScheduleResult]


def _speedup(rows: Sequence[_Row]) -> Iterator[Headline]:
    if not rows:
        return
    number, position, model, best = max(rows, key=lambda row: row[3].speedup)
    ends = best.speedup_interval
    interval = "" if ends is None else f", 95 % interval {ends[0]:.2f} to {ends[1]:.2f}"
    if best.algorithm == "sequential" and best.devices == 1:
        sentence = f"no schedule was faster than the sequential one on one device{interval}"
    else:
        sentence = (
            f"the largest measured speedup over the sequential schedule on one device: {best.label} on "
            f"{model.name}{interval}"
        )
    if ends is not None and not tells((ends[0], ends[1])):
        sentence += "; statistically tied, so no schedule is known to be faster"
    elif best.speedup < 1:
        sentence += "; below 1, so every schedule is slower"
    busy = model.run.platform.busy_share
    if busy is not None and busy > BUSY:
        sentence += f"; measured while other work took {busy:.0%} of the cores' time, so not to be relied on"
    if model.run.platform.virtual:
        sentence += "; on virtual devices, whose times say little"
    yield Headline("Best speedup", f"{best.speedup:.2f} times", sentence, row_anchor("measured", number, position))


def _gap(models: Sequence[ModelResults]) -> Iterator[Headline]:
    """Of the schedules with the lowest predicted latency of their models, the one farthest above its lower bound."""
    best = []
    for number, model in enumerate(models, start=1):
        bounded = [entry for entry in enumerate(model.run.results) if entry[1].lower_bound_ms > 0]
        if bounded:
            position, result = min(bounded, key=lambda entry: entry[1].predicted_ms)
            best.append((result.predicted_ms / result.lower_bound_ms - 1, number, position, model, result))
    if not best:
        return
    gap, number, position, model, result = max(best, key=lambda entry: entry[0])
    yield Headline(
        "Certified gap",
        f"{100 * max(gap, 0.0):.1f} %",
        "the fastest predicted schedule of every model is at most this far above its lower bound, and under the "
        f"measured costs no schedule is below that bound; the largest gap is that of {result.label} on {model.name}",
        row_anchor("predicted", number, position),
    )


def _error(rows: Sequence[_Row]) -> Iterator[Headline]:
    if not rows:
        return
    errors = [abs(result.prediction_error) for _, _, _, result in rows]
    number, position, model, worst = max(rows, key=lambda row: abs(row[3].prediction_error))
    yield Headline(
        "Prediction error",
        f"{100 * statistics.median(errors):.1f} %",
        f"in the median of {len(rows)} schedule{'s' * (len(rows) != 1)}, predicted against measured latency; at most "
        f"{100 * max(errors):.1f} %, {worst.label} on {model.name}",
        row_anchor("predicted", number, position),
    )
