"""A session: competitors take turns in rounds, run by the workers of a pool or the ranks of a launcher."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hios.core.graph import Graph
from hios.formats.settings import Settings
from hios.machine.terminal import bar
from hios.platforms.competitor import Competitor
from hios.platforms.probe_schedule import ProbeSchedule
from hios.platforms.reference import Reference
from hios.runtime.competitors import ScheduleEntry


class TurnOutcome(NamedTuple):
    """The latency of a run, and the largest difference of its outputs from the expected ones; None if not known."""

    latency_ms: float
    difference: float | None


class CompetitorRunner(Protocol):
    """Runs the competitors of a session."""

    def run(self, name: str) -> TurnOutcome | None:
        """Run a competitor once and check its outputs; None if another process records the result.

        Raises:
            HiosError: it failed, or an output is wrong.
        """

    def run_reference(self, reference: Reference) -> TurnOutcome | None:
        """Run the model itself once and check its outputs, as `run` does."""

    def take_rows(self, name: str) -> None:
        """Keep the operators' times of the last run of a competitor, if every run records them."""


@dataclass
class Competition:
    """The competitors by name, references and schedule files of a session; measurements are recorded in them.

    The probe, where there is one, is timed throughout the session to track the speed of the machine.
    """

    graph: Graph
    competitors: dict[str, Competitor]
    references: list[Reference]
    entries: Sequence[ScheduleEntry]
    runner: CompetitorRunner
    settings: Settings
    probe: ProbeSchedule | None = None

    def measure(self, *, shown: bool) -> None:
        """Run all rounds; each runs every competitor and reference once, in an order determined by the seed."""
        turns: list[str | Reference] = [*self.competitors, *self.references]
        shuffle = random.Random(self.settings.seed).shuffle
        rounds, what = (
            self.settings.warmup + self.settings.runs,
            f"{self.graph.name}: {len(turns)} competitors take turns",
        )
        with bar(rounds, what, "rounds") if shown else nullcontext() as progress:
            if self.probe is not None:
                self.probe.take_at_end()
            for number in range(rounds):
                if self.probe is not None:
                    self.probe.take_if_due()
                shuffle(turns)
                for turn in turns:
                    self._take_turn(turn, measured=number >= self.settings.warmup)
                if progress is not None:
                    progress.update()
            if self.probe is not None:
                self.probe.take_at_end()

    def _take_turn(self, turn: str | Reference, measured: bool) -> None:
        if isinstance(turn, Reference):
            party: Reference | Competitor = turn
            outcome = self.runner.run_reference(turn)
        else:
            party = self.competitors[turn]
            outcome = self.runner.run(turn)
        if outcome is None:
            return
        if outcome.difference is not None:
            party.difference = max(party.difference, outcome.difference)
        if measured:
            party.latencies_ms.append(outcome.latency_ms)
            if not isinstance(turn, Reference):
                self.runner.take_rows(turn)
