"""The page of a large study: what it leaves out, so that browsers can open it, and the processes that draw it.

Files and commands have what is left out. Where that is charts, the browser also lays out only what is near the window
(`.large` in style.css).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, TypeVar

from hios.report.model_results import ModelResults
from hios.report.statements import row_anchor
from hios.workers.process_settings import end_with_parent, interrupts_blocked

#: Most Gantt charts of a page, rows of schedules in a table, and pictures of graphs.
_CHARTS, _ROWS, _PICTURES = 150, 2000, 50
#: Most bars of all Gantt charts together: with this many a page has about 9 MB.
_BARS = 26_000
#: Number of parts from which several processes are worth starting.
_MANY = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Whether a page shows all of a kind.

    Attributes:
        charts: Gantt charts of all schedules; else those of the fastest schedule of each network.
        rows: all schedules in the tables, and the tables' files; else a few schedules of each network.
        pictures: the graphs.
    """

    charts: bool
    rows: bool
    pictures: bool

    @classmethod
    def of(cls, models: Sequence[ModelResults]) -> Limits:
        """Those of a page about some networks."""
        schedules = sum(len(model.run.results) for model in models)
        bars = sum(len(one.predicted) + len(one.measured) for model in models for one in model.run.results)
        return cls(schedules <= _CHARTS and bars <= _BARS, schedules <= _ROWS, len(models) <= _PICTURES)

    def places(self, number: int, model: ModelResults, anchors: Set[str]) -> list[int]:
        """The schedules of a network that tables show, by place in its run; the page links to ``anchors``."""
        results = model.run.results
        best = min(results, key=lambda result: result.predicted_ms, default=None)
        return [
            place
            for place, result in enumerate(results)
            if self.rows
            or place == model.fastest
            or result is best
            or result.algorithm == "sequential"
            or not anchors.isdisjoint(row_anchor(table, number, place) for table in ("measured", "predicted"))
        ]

    def sentences(self) -> list[str]:
        """What is left out, and where it is."""
        left_out = []
        if not self.charts:
            left_out.append(
                "Gantt charts are of the fastest schedule of each network only; hios show --html draws any other."
            )
        if not self.rows:
            left_out.append(
                "Of each network the tables show the sequential schedule, the fastest, and the one that was predicted "
                "to be; latency.csv and operators.csv, in the folder for tables, have all."
            )
        if not self.pictures:
            left_out.append("Graphs are not drawn; hios draw does.")
        return [f"This study is too large for one page. {left_out[0]}", *left_out[1:]] if left_out else []


def made(parts: Sequence[Any], make: Callable[[int, Any], T], processes: int) -> list[T]:
    """What a function makes of the number of each part, from 1, and the part, in their order; all can be pickled.

    So many processes are at work at once at most; few parts are made in this process.

    Several processes import the program that asks for this once more, as those of ``multiprocessing`` do: it must not
    begin anything when it is imported.
    """
    numbers = range(1, len(parts) + 1)
    if processes < 2 or len(parts) < _MANY:
        return list(map(make, numbers, parts))
    # Not forked: what draws charts has threads of its own, whose locks a fork would take along.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), end_with_parent, (os.getpid(),))
    try:
        with interrupts_blocked():
            results: Iterable[T] = pool.map(make, numbers, parts)
        return list(results)
    finally:
        pool.shutdown(cancel_futures=True)
