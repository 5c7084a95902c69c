"""Repeating a choice made on a busy machine during the user's own calls, once the cores are idle.

No call is made twice, and none waits: each is run by one of the candidates, all of which give equal outputs, and these
take turns. Until the cores are idle, the provisional choice runs all calls, and every ``LOOK_S`` seconds a call checks
how busy the cores have been since the last check, which takes less than a millisecond.
"""

from __future__ import annotations

import functools
import random
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from hios.machine import BUSY, OtherWork
from hios.optimizing.candidates import Candidate
from hios.optimizing.race import FEWEST_ROUNDS, Race, timed
from hios.optimizing.runtimes import Run

#: Seconds between two checks whether other processes keep the cores busy.
LOOK_S = 10.0
#: Rounds after which clearly slower candidates drop out: those whose median is this many times the shortest one.
_QUALIFYING_CALLS, _SLOWER = 4, 1.3


@dataclass
class OnlineRace:
    """Runs the user's calls and uses them to find the fastest candidate.

    The candidates give equal outputs; the model as it runs today is the first. Until the cores are idle, but for the
    workers of this process, the provisional one runs all calls. ``settled`` is called with the race once it is over,
    from the call that ends it.
    """

    candidates: Sequence[Candidate]
    runs: Mapping[str, Run]
    provisional: str
    cores: Sequence[int]
    children: Sequence[int]
    settled: Callable[[Race, float], None]
    #: Holds the rounds of this stage; None while the cores are busy.
    _race: Race | None = field(default=None, init=False)
    _qualified: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._shuffle = random.Random(0).shuffle
        self._look()

    def _look(self) -> None:
        """Start waiting for idle cores."""
        self._race, self._qualified, self._turns = None, False, list[Candidate]()
        self._work = OtherWork(self.cores)
        self._looked = time.monotonic()

    def run(self, tensors: list[Tensor]) -> list[Tensor]:
        """Run a call with the candidate that the race selects."""
        if not self._lock.acquire(blocking=False):  # another thread's call is being timed
            return self.runs[self.provisional](tensors)
        try:
            if self._race is None:
                self._wait()
            if self._race is None:
                return self.runs[self.provisional](tensors)
            return self._timed(tensors, self._race)
        finally:
            self._lock.release()

    def _wait(self) -> None:
        """Start the race if the cores have been idle since the last check."""
        if time.monotonic() - self._looked < LOOK_S:
            return
        busy = self._work.share(self.children)
        self._look()
        if busy <= BUSY:
            self._race = self._among(self.candidates)

    def _among(self, racing: Sequence[Candidate]) -> Race:
        """A race without rounds, of some of the candidates."""
        race = Race(self.candidates, lambda candidate: [], [], 0.0)
        race.latencies = {candidate.label: [] for candidate in racing}
        return race

    def _timed(self, tensors: list[Tensor], race: Race) -> list[Tensor]:
        if not self._turns:
            self._turns = [candidate for candidate in self.candidates if candidate.label in race.latencies]
            self._shuffle(self._turns)
        candidate = self._turns.pop()
        outputs, took_ms = timed(functools.partial(self.runs[candidate.label], tensors))
        race.latencies[candidate.label].append(took_ms)
        if not self._turns:
            self._end_round(race)
        return outputs

    def _end_round(self, race: Race) -> None:
        count = len(race.latencies[self.candidates[0].label])
        if not self._qualified and count >= _QUALIFYING_CALLS:
            medians = {label: statistics.median(times) for label, times in race.latencies.items()}
            self._race, self._qualified = self._among(race.near(self.candidates, medians, _SLOWER)), True
        elif self._qualified and count >= FEWEST_ROUNDS:
            busy = self._work.share(self.children)
            if busy > BUSY:
                self._look()
            else:
                self.settled(race, busy)
