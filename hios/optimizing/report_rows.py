"""The rows of a report, one per candidate: it finished the race, dropped out, or did not start."""

from __future__ import annotations

from dataclasses import replace

from hios.optimizing.preparation import Preparation, Prepared
from hios.optimizing.race import Race
from hios.optimizing.report import WayReport
from hios.statistics import speedup_interval, spread


def rows(race: Race, preparation: Preparation) -> tuple[WayReport, ...]:
    """A row per candidate, those that finished the race first.

    Args:
        race: after it was measured.
        preparation: what raced, and what is absent.
    """
    reported = race.reported()
    today = race.candidates[0].label
    made: list[WayReport] = []
    for label, entry in preparation.ready.items():
        if label in reported:
            made.append(_row(entry, "raced", "", reported[label], reported[today]))
        elif label in race.left:
            why = f"left the race as clearly slower after {len(race.left[label])} rounds"
            made.append(_row(entry, "slower", why, race.left[label], race.today_ms))
        elif label in race.wrong:
            why = f"its outputs differ by {race.wrong[label]:.3g} of their size"
            made.append(_row(entry, "different", why))
        elif label in race.failed:
            made.append(_row(entry, "refused", race.failed[label]))
        elif not reported or label in race.latencies or (warm_ms := race.warm_ms(label)) is None:
            made.append(_row(entry, "not started", "the budget (budget_s) was spent before it could be compared"))
        else:
            made.append(_row(entry, "slower", "left the race while warming up, as clearly slower", [warm_ms]))
    made.sort(key=lambda way: way.outcome != "raced")
    return (*made, *preparation.absent)


def raced_again(ways: tuple[WayReport, ...], race: Race) -> tuple[WayReport, ...]:
    """The rows of an earlier report with the numbers of a later race.

    Args:
        ways: of the report.
        race: after it was measured.
    """
    reported = race.reported()
    base = reported[race.candidates[0].label]
    again: list[WayReport] = []
    for way in ways:
        if way.label in reported:
            fresh = WayReport(way.label, way.kind, memory_mb=way.memory_mb, prepare_s=way.prepare_s)
            again.append(_measured(fresh, reported[way.label], base))
        elif way.outcome in {"raced", "slower"}:
            why = "left the race as clearly slower"
            again.append(replace(way, outcome="slower", why=why, speedup=None, low=0.0, high=None))
        else:
            again.append(way)
    return tuple(sorted(again, key=lambda way: way.outcome != "raced"))


def _row(
    entry: Prepared, outcome: str, why: str, times: list[float] | None = None, base: list[float] | None = None
) -> WayReport:
    candidate = entry.candidate
    about = WayReport(
        candidate.label, candidate.kind, outcome, why, memory_mb=entry.memory_mb, prepare_s=round(entry.prepare_s, 2)
    )
    if not times:
        return about
    return _measured(about, times, base)


def _measured(about: WayReport, times: list[float], base: list[float] | None) -> WayReport:
    median, p20, p80 = spread(times)
    row = replace(about, median_ms=median, p20_ms=p20, p80_ms=p80, runs=len(times))
    if not base:
        return row
    row = replace(row, speedup=spread(base)[0] / median)
    if (bounds := speedup_interval(base[: len(times)], times)) is not None:
        row = replace(row, low=bounds[0], high=bounds[1])
    return row
