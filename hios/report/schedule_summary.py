"""What one schedule says about itself, in words."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from hios.errors import ArtifactError
from hios.graph import Graph
from hios.report.graph_captions import counted
from hios.schedule import Placement, Schedule, merged_rows

#: Digits that times are shown with.
_DIGITS = 4
_MOST_DECIMALS = 9
#: Below this share the latency is the lower bound but for rounding.
_ROUNDING = 1e-9
#: Below this share one decimal of a percentage would be 0.0.
_SMALL = 0.0005


def summary(schedule: Schedule) -> list[tuple[str, str]]:
    """Name and text of every fact about a schedule as a whole, in the order to be read."""
    facts = [
        ("Graph", schedule.graph or "without a name"),
        ("Operators", str(len(schedule.placements))),
        ("Algorithm", schedule.algorithm),
        ("Parameters", ", ".join(f"{name} {value}" for name, value in schedule.parameters.items()) or "none"),
        ("Devices", str(schedule.devices)),
        ("Latency", f"{ms(schedule.latency_ms)}, predicted by the cost model"),
        (
            "Lower bound",
            f"{ms(schedule.lower_bound_ms)}; {gap_in_words(schedule.latency_ms, schedule.lower_bound_ms, '')}",
        ),
        *_staged_bound(schedule),
        *([("Cuts", cuts_in_words(schedule.cuts))] if schedule.cuts else []),
        *([("Several devices", text)] if (text := widths_in_words(schedule)) else []),
        ("Scheduling time", ms(1000 * schedule.scheduling_time_s)),
    ]
    facts += [(f"Note on {topic}", text) for topic, text in schedule.notes.items()]
    if schedule.merges:
        facts.append(("Merged", "; ".join(" + ".join(merge) for merge in schedule.merges)))
    return facts


def operator_types(schedule: Schedule, graph: Graph) -> dict[str, str]:
    """Type of every operator of a schedule.

    Raises:
        ArtifactError: the schedule is of another graph.
    """
    for position, row in enumerate(schedule.placements):
        if row.operator not in graph.index:
            raise ArtifactError(
                f"{schedule.source}: placements[{position}].operator: found {row.operator}, which is not an operator "
                f"of {graph.source}; give the graph that the schedule was made for"
            )
    return {row.operator: graph.operators[graph.index[row.operator]].type for row in schedule.placements}


def type_shares(schedule: Schedule, types: Mapping[str, str]) -> dict[str, float]:
    """Milliseconds that the operators of each type take together; empty where types are not known."""
    shares: dict[str, float] = defaultdict(float)
    for row, *_ in merged_rows(schedule.placements):
        if row.operator in types:
            shares[types[row.operator]] += row.finish_ms - row.start_ms
    return shares


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What a schedule makes of one device; ``stages`` is None in stream schedules."""

    device: int
    operators: int
    streams: int
    stages: int | None
    idle_share: float

    def __str__(self) -> str:
        if not self.operators:
            return "no operator"
        parts = [counted(self.operators, "operator")]
        if self.stages is not None:
            parts.append(f"in {counted(self.stages, 'stage')}")
        else:
            parts.append(f"on {counted(self.streams, 'stream')}")
        return f"{' '.join(parts)}, idle {100 * self.idle_share:.1f} % of the latency"


def device_uses(schedule: Schedule) -> list[DeviceUse]:
    """The use of every device; a device is idle while none of its streams runs an operator."""
    rows: list[list[Placement]] = [[] for _ in range(schedule.devices)]
    for row in schedule.placements:
        for device in row.held_devices:
            if device < schedule.devices:
                rows[device].append(row)
    return [
        DeviceUse(
            device=device,
            operators=len(placed),
            streams=len({row.stream for row in placed}),
            stages=None if any(row.stage is None for row in placed) else len({row.stage for row in placed}),
            idle_share=1 - _busy_ms(placed) / schedule.latency_ms if schedule.latency_ms > 0 else 0.0,
        )
        for device, placed in enumerate(rows)
    ]


def ms(time_ms: float) -> str:
    """A time in milliseconds with four digits."""
    decimals = _DIGITS - 1 - math.floor(math.log10(time_ms)) if 0 < time_ms < math.inf else 0
    return f"{time_ms:.{min(max(decimals, 0), _MOST_DECIMALS)}f} ms"


def _staged_bound(schedule: Schedule) -> list[tuple[str, str]]:
    bound = schedule.staged_lower_bound_ms
    if not bound:
        return []
    return [
        ("Staged bound", f"{ms(bound)} for staged schedules; {gap_in_words(schedule.latency_ms, bound, 'staged ')}")
    ]


def widths_in_words(schedule: Schedule) -> str:
    """How many operators take how many devices at once; empty where each takes one."""
    counts = Counter(len(row.devices) for row in schedule.placements if row.devices)
    return ", ".join(f"{counted(count, 'operator')} on {width} at once" for width, count in sorted(counts.items()))


def cuts_in_words(cuts: int) -> str:
    """What it means for a schedule that its search cut the graph; ``cuts`` is more than 0."""
    return f"{cuts}; the best schedule with no stage across a cut, a larger states may find a better one"


def gap_in_words(latency: float, bound: float, kind: str) -> str:
    """How far a latency is above a bound; ``kind`` (such as ``"staged "``) says which schedules the bound is for."""
    if bound <= 0:
        return "gap unknown"
    gap = latency / bound - 1
    if gap < -_ROUNDING:  # of a schedule of streams over the bound for staged ones
        return f"{-100 * gap:.1f} % above the latency"
    if gap <= _ROUNDING:
        return f"gap 0 % (no {kind}schedule is faster)"
    return f"gap {100 * gap:.{1 if gap >= _SMALL else 4}f} % (latency above bound)"


def _busy_ms(rows: list[Placement]) -> float:
    """Length of the union of the spans."""
    busy, end = 0.0, 0.0
    for start, finish in sorted((row.start_ms, row.finish_ms) for row in rows):
        busy += max(finish - max(start, end), 0.0)
        end = max(end, finish)
    return busy
