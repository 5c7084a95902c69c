"""The report of ``optimize``: the choice, with a row of measured numbers per candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hios.csv_tables import aligned
from hios.machine import BUSY

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
        low: lower end of its 95 % interval (`hios.statistics.speedup_interval`); 0 with too few runs for an interval.
        high: upper end; None with too few runs for an interval.
        memory_mb: memory in addition to that of the model, in MB (10^6 bytes); None where it was not measured.
        prepare_s: seconds that preparing it took; None if it was not prepared.
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

    @property
    def candidates(self) -> tuple[WayReport, ...]:
        """The candidates that finished the race."""
        return tuple(way for way in self.ways if way.outcome == "raced")

    @property
    def provisional(self) -> bool:
        """Whether other processes kept the cores busy, so that the choice is repeated once they are idle."""
        return self.busy_share > BUSY

    def __repr__(self) -> str:
        lines = [f"{self.model} runs as {self.chosen}: {self.reason}"]
        if not self.ways:
            return lines[0]
        rows = [_HEADING, *(way.cells() for way in self.ways)]
        lines += [f"  {line}" for line in aligned(rows, "<>>>>>><")]
        runs = max((way.runs for way in self.candidates), default=0)
        taken = "kept from an earlier call, measured" if self.cached else "measured"
        busy = f"; other work kept the cores {self.busy_share:.0%} busy" if self.provisional else ""
        lines.append(
            f"  {taken} {self.measured_at} in {runs} runs each, taking turns{busy}; {self.seconds:.0f} s in all"
        )
        if self.rounding:
            lines.append(
                f"  outputs may differ by {self.rounding:.2g} of their size: 4 times what rounding to float32 changes "
                "in the model's own"
            )
        return "\n".join(lines)
