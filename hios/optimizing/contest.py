"""Ways to run a model taking turns with the example inputs, and the choice among them."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from hios.errors import HiosError
from hios.optimizing.report import Candidate
from hios.optimizing.ways import Way
from hios.platforms.cpu.platform import SETTLE_S
from hios.profiling.cache import now
from hios.progress import bar
from hios.runtime.choosing import best
from hios.statistics import is_faster, speedup_interval, spread
from hios.tolerances import beyond

#: Runs of every way before any is measured.
_WARMUP = 3
#: Rounds come in threes, at most this many: a third chooses, a third says whether that is faster than the model, and
#: a third is reported.
_MOST_ROUNDS = 42
#: A third of them has an interval of 95 %.
_FEWEST_ROUNDS = 18
#: Pairs of calls that show whether a choice of earlier still holds.
_PAIRS = 7
#: A way that takes this much longer than the fastest while warming up takes no further part.
_HOPELESS = 1.5


@dataclass
class Contest:
    """Calls of a model, by way.

    Args:
        ways: all that take part, the model as it runs today first.
        call: a function that runs the model by a way and returns its tensors.
        expected: the model's own tensors.
        tolerance: allowed difference from them, absolute plus relative.
        budget_s: about how long to measure.
        forced: label of the way that is taken whatever is measured; empty for the fastest.
    """

    ways: Sequence[Way]
    call: Callable[[Way], list[Tensor]]
    expected: Sequence[Tensor]
    tolerance: float
    budget_s: float
    forced: str = ""
    measured_at: str = ""
    #: Milliseconds of every round, by label.
    latencies: dict[str, list[float]] = field(default_factory=dict)
    #: Labels of ways whose outputs differ, with by how much.
    wrong: dict[str, float] = field(default_factory=dict)

    def measure(self) -> None:
        """Warm up, leave out what is wrong or hopeless, and measure the rest in random order, round by round.

        Raises:
            HiosError: a way failed.
        """
        self.measured_at = now()
        first = [(way, self._warmed(way)) for way in self.ways]
        fastest = min(latency for way, latency in first if way.label not in self.wrong)
        racing = [
            way
            for place, (way, latency) in enumerate(first)
            if place == 0
            or way.label == self.forced
            or (latency <= _HOPELESS * fastest and way.label not in self.wrong)
        ]
        self.latencies = {way.label: [] for way in racing}
        took_s = sum(latency for way, latency in first if way.label in self.latencies) / 1e3
        rounds = 3 * (min(max(int(self.budget_s / took_s), _FEWEST_ROUNDS), _MOST_ROUNDS) // 3)
        shuffle = random.Random(0).shuffle
        with bar(rounds, f"{len(racing)} ways to run the model take turns", "rounds") as progress:
            for _ in range(rounds):
                shuffle(racing)
                for way in racing:
                    self.latencies[way.label].append(self._timed(way))
                progress.update()

    def _warmed(self, way: Way) -> float:
        """Shortest latency while warming up, milliseconds."""
        off = beyond(self.call(way), self.expected, self.tolerance)
        if off is not None:
            self.wrong[way.label] = off
        return min(self._timed(way) for _ in range(_WARMUP))

    def _timed(self, way: Way) -> float:
        began = time.perf_counter_ns()
        self.call(way)
        took = time.perf_counter_ns() - began
        if way.busy_cores:
            time.sleep(SETTLE_S)
        return took / 1e6

    def chosen(self) -> tuple[Way, tuple[Candidate, ...], str]:
        """The fastest way by one third of the rounds; the others say whether it outruns the model, and by how much.

        Of those that the rounds cannot tell from the fastest it is the steadiest (`hios.runtime.choosing`). The model
        as it runs today stays unless the interval of the speedup over it lies above 1 in rounds that had no part in
        choosing. Workers have to outrun the model so with one thread, too, and with all: else it runs itself, with the
        threads that suit it. What is reported are rounds that had no part in choosing or checking.

        Returns:
            The way, what was measured of all that took part, and why this one, in words.

        Raises:
            HiosError: the forced way computes something else than the model.
        """
        today, left_out = self.ways[0], self._left_out()
        reported = {label: times[2::3] for label, times in self.latencies.items()}
        found = {label: _candidate(label, times, reported[today.label]) for label, times in reported.items()}
        candidates = tuple(found[way.label] for way in self.ways if way.label in found)
        if self.forced in self.wrong:
            raise wrong_outputs(self.forced, self.wrong[self.forced], self.tolerance)
        if self.forced:
            return next(way for way in self.ways if way.label == self.forced), candidates, "as asked for" + left_out
        racing = [way for way in self.ways if way.label in self.latencies]
        label = best({way.label: self.latencies[way.label][::3] for way in racing})
        taken = next(way for way in racing if way.label == label)
        if taken.schedule is not None:  # workers have to outrun the model with every number of threads
            alike = [way for way in racing if way.schedule is None and not self._outruns(taken, way)]
            taken = min(alike, key=lambda way: spread(self.latencies[way.label][1::3])[0], default=taken)
        if taken is today:
            return today, candidates, "nothing was faster by more than the measurement can tell" + left_out
        if not self._outruns(taken, today):
            reason = f"{taken.label} was not faster by more than the measurement can tell"
            return today, candidates, reason + left_out
        speedup = found[taken.label].speedup
        return taken, candidates, f"{speedup:.2f} times as fast as {today.label}" + left_out

    def _outruns(self, way: Way, other: Way) -> bool:
        """Whether a way is faster than another one, by the rounds that check."""
        own, theirs = (self.latencies[label][1::3] for label in (way.label, other.label))
        return is_faster(own, theirs)

    def _left_out(self) -> str:
        slow = [way.label for way in self.ways if way.label not in self.latencies and way.label not in self.wrong]
        parts = [f"; left out, as slower by half or more: {', '.join(slow)}"] if slow else []
        parts += [
            f"; left out, as its outputs differ by {off:.3g} of their size: {label}"
            for label, off in self.wrong.items()
        ]
        return "".join(parts)


def _candidate(label: str, times: Sequence[float], base: Sequence[float]) -> Candidate:
    speedup = spread(base)[0] / spread(times)[0]
    return Candidate(label, *spread(times), len(times), speedup, *(speedup_interval(base, times) or (0.0, math.inf)))


def outruns(own: Callable[[], object], today: Callable[[], object], settle: bool) -> bool:
    """Whether a choice of earlier is still faster than the model as it runs today, by the median of a few pairs.

    Args:
        own: calls what was chosen.
        today: calls the model.
        settle: whether threads inside operators spin on for a while after a call.
    """
    ratios = []
    for number in range(_WARMUP + _PAIRS):
        took = {}
        for call in (own, today) if number % 2 else (today, own):
            began = time.perf_counter_ns()
            call()
            took[call] = time.perf_counter_ns() - began
            if settle:
                time.sleep(SETTLE_S)
        ratios.append(took[today] / took[own])
    return spread(ratios[_WARMUP:])[0] > 1


def wrong_outputs(label: str, off: float, tolerance: float) -> HiosError:
    """The error of a way that computes something else than the model."""
    return HiosError(
        f"{label}: outputs differ from the model's by {off:.3g} of their size; allowed: {tolerance:g} (tolerance), "
        "absolute plus relative, and what rounding to 16 bits takes"
    )
