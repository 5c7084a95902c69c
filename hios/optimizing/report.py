"""What was chosen for a model, and the measured numbers behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hios.errors import ArtifactError
from hios.machine import BUSY


@dataclass(frozen=True, slots=True)
class Candidate:
    """What was measured of one candidate: whole calls, with everything that they cost the caller.

    Attributes:
        label: what ran.
        median_ms: median latency.
        p20_ms: 20th percentile.
        p80_ms: 80th percentile.
        runs: how many runs these rest on.
        speedup: median of the model itself over this median.
        low: lower end of its 95 % interval (`hios.statistics.speedup_interval`).
        high: upper end.
    """

    label: str
    median_ms: float
    p20_ms: float
    p80_ms: float
    runs: int
    speedup: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What ``hios.optimize`` found.

    Attributes:
        model: class of the model.
        chosen: label of the candidate that the module runs.
        reason: why, in words.
        candidates: the measured ones; none where nothing was measured.
        measured_at: when, UTC; empty where nothing was measured.
        busy_share: share of the cores' time that other work took right before.
        cached: whether the numbers are those of an earlier call.
    """

    model: str
    chosen: str
    reason: str
    candidates: tuple[Candidate, ...] = ()
    measured_at: str = ""
    busy_share: float = 0.0
    cached: bool = False

    def __repr__(self) -> str:
        lines = [f"{self.model} runs as {self.chosen}: {self.reason}"]
        if not self.candidates:
            return lines[0]
        width = max(len(candidate.label) for candidate in self.candidates)
        lines.append(f"  {'':<{width}}  {'median ms':>9}  {'p20 to p80':>18}  speedup (95 %)")
        for entry in self.candidates:
            spread = f"{entry.p20_ms:.2f} to {entry.p80_ms:.2f}"
            lines.append(
                f"  {entry.label:<{width}}  {entry.median_ms:>9.2f}  {spread:>18}  {entry.speedup:.2f} "
                f"({entry.low:.2f} to {entry.high:.2f})"
            )
        taken = "kept from an earlier call, measured" if self.cached else "measured"
        busy = f"; other work kept the cores {self.busy_share:.0%} busy" if self.busy_share > BUSY else ""
        lines.append(f"  {taken} {self.measured_at} in {self.candidates[0].runs} runs each, taking turns{busy}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """As the cache keeps it."""
        found = asdict(self)
        del found["cached"], found["model"]
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any], model: str) -> Report:
        """What the cache kept, for a model of this class.

        Raises:
            ArtifactError: it is not what ``to_json`` gave.
        """
        try:
            candidates = tuple(Candidate(**entry) for entry in data["candidates"])
            texts = [data[name] for name in ("chosen", "reason", "measured_at")]
            numbers = [value for entry in candidates for name, value in asdict(entry).items() if name != "label"]
            if not all(isinstance(text, str) for text in [*texts, *(entry.label for entry in candidates)]):
                raise TypeError("text expected")
            busy_share = data["busy_share"]
            if not all(isinstance(number, int | float) for number in [busy_share, *numbers]):
                raise TypeError("numbers expected")
        except (TypeError, KeyError) as error:
            raise ArtifactError(f"a choice in the cache is damaged ({error})") from error
        chosen, reason, measured_at = texts
        return cls(model, chosen, reason, candidates, measured_at, busy_share, cached=True)
