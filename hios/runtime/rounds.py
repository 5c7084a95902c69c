"""A session: competitors take turns in rounds, run by the workers of a pool or the ranks of a launcher."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from hios.formats.run_file import Chosen, Run, RunPlatform
from hios.graph import Graph
from hios.platforms.competitor import Competitor
from hios.platforms.probe_schedule import ProbeSchedule
from hios.platforms.reference import Reference
from hios.progress import bar
from hios.runtime.competitors import Entry
from hios.runtime.run_record import results


class Outcome(NamedTuple):
    """The result of a run.

    Attributes:
        latency_ms: how long it took.
        difference: largest difference of its outputs from the expected ones; None if that is not known from this run.
    """

    latency_ms: float
    difference: float | None


class Runner(Protocol):
    """Runs the competitors of a session."""

    def run(self, name: str) -> Outcome | None:
        """Run a competitor once and check its outputs; None if another process records the result.

        Raises:
            HiosError: it failed, or an output is wrong.
        """

    def run_reference(self, reference: Reference) -> Outcome | None:
        """Run the model itself once and check its outputs, as `run` does."""

    def take_rows(self, name: str) -> None:
        """Keep the operators' times of the last run of a competitor, if every run records them."""


class Effort(Protocol):
    """How a session measures; see ``hios.runtime.session.Settings``."""

    @property
    def runs(self) -> int:
        """Measured runs of every competitor."""

    @property
    def warmup(self) -> int:
        """Warm-up runs of every competitor."""

    @property
    def tolerance(self) -> float:
        """Allowed difference from the reference."""

    @property
    def seed(self) -> int:
        """Seed of the order of the competitors."""


@dataclass
class Session:
    """The competitors and their measurements.

    Attributes:
        graph: what is run.
        competitors: by name; their measurements are recorded in them.
        references: the model itself in other runtimes.
        entries: schedule files that take part.
        runner: runs all of them.
        effort: how often.
        probe: timed throughout the session to track the speed of the machine; None if it is not.
    """

    graph: Graph
    competitors: dict[str, Competitor]
    references: list[Reference]
    entries: Sequence[Entry]
    runner: Runner
    effort: Effort
    probe: ProbeSchedule | None = None

    def measure(self, *, shown: bool) -> None:
        """Run all rounds; each runs every competitor and reference once, in an order determined by the seed.

        Args:
            shown: whether to show a progress bar.
        """
        turns: list[str | Reference] = [*self.competitors, *self.references]
        shuffle = random.Random(self.effort.seed).shuffle
        rounds, what = self.effort.warmup + self.effort.runs, f"{self.graph.name}: {len(turns)} competitors take turns"
        with bar(rounds, what, "rounds") if shown else nullcontext() as progress:
            if self.probe is not None:
                self.probe.take_at_end()
            for number in range(rounds):
                if self.probe is not None:
                    self.probe.take_if_due()
                shuffle(turns)
                for turn in turns:
                    self._take_turn(turn, measured=number >= self.effort.warmup)
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

    def file(
        self,
        platform: RunPlatform,
        versions: dict[str, str],
        began: datetime,
        checked_against: Literal["eager", "onnxruntime", "sequential"],
        chosen: Chosen | None = None,
    ) -> Run:
        """The contents of run.json.

        Args:
            platform: the devices.
            versions: of the software.
            began: when, in UTC.
            checked_against: what made the expected outputs.
            chosen: the fastest of all, if it was requested.
        """
        return Run(
            graph=self.graph.name,
            platform=platform,
            versions=versions,
            measured_at=f"{began:%Y-%m-%dT%H:%M:%SZ}",
            seed=self.effort.seed,
            runs=self.effort.runs,
            warmup=self.effort.warmup,
            tolerance=self.effort.tolerance,
            checked_against=checked_against,
            chosen=chosen,
            **results(self.competitors, self.references, self.entries, self.probe)._asdict(),
            probe=None if self.probe is None else self.probe.record(),
        )
