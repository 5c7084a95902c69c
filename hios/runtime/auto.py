"""auto: the fastest schedule of a session, by measurement; sequential unless another is significantly faster.

The runs that choose are not the runs that are reported: the fastest of many candidates is partly the luckiest, and its
own runs would flatter it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hios.core.graph import Graph
from hios.core.schedule import Placement, Schedule
from hios.formats.run import Chosen
from hios.machine.statistics import LEAST_ROUNDS, best
from hios.platforms.competitor import Competitor
from hios.runtime.competitors import BASELINE, ScheduleEntry
from hios.runtime.record import gained, measured

#: Rounds that choose, and rounds that are reported.
_CHOOSING, _REPORTED = slice(0, None, 2), slice(1, None, 2)
#: With fewer runs, the ones that choose have no interval.
LEAST_RUNS = 2 * LEAST_ROUNDS


@dataclass(frozen=True, slots=True)
class AutoChoice:
    """The chosen schedule, among a number of candidates, and the runs of the baseline.

    The label is that of the schedule file, or the name of the competitor if it has no file.
    """

    label: str
    competitor: Competitor
    entry: ScheduleEntry | None
    candidates: int
    baseline: Sequence[float]

    @property
    def cores(self) -> int:
        """The number of cores that it uses in total."""
        return self.competitor.cores * (1 if self.entry is None else self.entry.schedule.devices)

    def result(self) -> Chosen:
        """``chosen`` of run.json."""
        runs = self.competitor.latencies_ms[_REPORTED]
        speedup, interval = gained(self.baseline[_REPORTED], runs)
        return Chosen(
            label=self.label,
            algorithm="sequential" if self.entry is None else self.entry.schedule.algorithm,
            devices=1 if self.entry is None else self.entry.schedule.devices,
            cores=self.cores,
            candidates=self.candidates,
            latency_ms=measured(runs),
            speedup=speedup,
            speedup_interval=interval,
        )

    def schedule(self, graph: Graph) -> Schedule:
        """The schedule with a note on how it was chosen, and with measured times if it has no file."""
        result = self.result()
        chosen = f"the fastest of {self.candidates} in every other run: {self.label}"
        if self.label == BASELINE:
            chosen = f"in every other run none of {self.candidates} was significantly faster than {BASELINE}"
        note = (
            f"{chosen}; in the other runs {result.latency_ms.median:.4g} ms, "
            f"{result.speedup:.2f} times as fast as {BASELINE}"
        )
        if self.competitor.worker is not None:
            note += f"; it ran on one device of {self.cores} cores, with a thread on each inside every operator"
        if self.entry is not None:
            return replace(self.entry.schedule, notes={**self.entry.schedule.notes, "auto": note})
        rows, times = tuple(self.competitor.typical()), "measured; no cost model predicted them"
        if not rows:
            each = result.latency_ms.median / len(graph.order)
            times = "equal shares of the measured latency, as those of operators could not be recorded"
            rows = tuple(
                Placement(graph.operators[operator].id, 0, 0, stage, stage * each, (stage + 1) * each)
                for stage, operator in enumerate(graph.order)
            )
        notes = {"auto": note, "times": times}
        end = max(row.finish_ms for row in rows)
        return Schedule(
            "sequential", {}, 1, end, 0.0, 0.0, rows, graph.name, notes=notes, graph_fingerprint=graph.fingerprint
        )


def choose(competitors: Mapping[str, Competitor], entries: Sequence[ScheduleEntry]) -> AutoChoice:
    """Choose among all schedules, the sequential one on one device, and the sequential one with all cores.

    It is the sequential one on one device unless the interval of the speedup over it lies above 1. Among candidates
    that are statistically tied with the fastest, it is the one with the smallest 80th percentile
    (`hios.machine.statistics`).
    Every competitor needs at least ``LEAST_RUNS`` runs.
    """
    candidates = {name: competitor for name, competitor in competitors.items() if not competitor.copies}
    chosen = best({name: competitor.latencies_ms[_CHOOSING] for name, competitor in candidates.items()}, BASELINE)
    entry = next((entry for entry in entries if entry.competitor == chosen), None)
    label = chosen if entry is None else entry.label
    return AutoChoice(label, candidates[chosen], entry, len(candidates), competitors[BASELINE].latencies_ms)
