"""Choosing the fastest candidate by letting candidates run in turns, on the example inputs or in the user's calls.

`Race` does the former; where the machine is busy it chooses by rounds, which remain fair. `OnlineRace` repeats that
choice in the user's calls, once the cores are idle. No call waits, and none is made twice unless it fails: each is run
by one of the candidates, all of which give equal outputs, and these take turns. Until the cores are idle, the
provisional choice runs all calls, and every ``LOOK_S`` seconds a call checks how busy the cores have been since the
last check, which takes less than a millisecond.
"""

from __future__ import annotations

import functools
import math
import random
import statistics
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor

from hios.errors import HiosError, first_line
from hios.machine.description import BUSY, OtherWork
from hios.machine.statistics import best, is_faster, spread
from hios.optimizing.candidates import EAGER, Candidate
from hios.optimizing.other_inputs import Difference, difference
from hios.optimizing.runtimes import Run
from hios.platforms.cpu.devices import SETTLE_S
from hios.profiling.cache import now

_Result = TypeVar("_Result")
#: Runs of every candidate before any is measured.
_WARMUP = 3
#: Maximum number of final rounds, a multiple of three: a third chooses the fastest, a third tests whether it is faster
#: than the model, and a third is reported.
_MOST_ROUNDS = 42
#: Minimum number of final rounds: a third of them is enough for a 95 % interval.
FEWEST_ROUNDS = 18
#: Beside other work, rounds for which there has to be time: while warming up, and in the race, where it is enough for a
#: 95 % interval.
_MANY, _ROUNDS_BUSY = 20, 9
#: Share of the time of a race that is kept for rounds while warming up, unless less is enough for all of them.
_RACING_SHARE = 0.5
#: Pairs of calls to check whether a cached choice still holds, and seconds after which two pairs are enough.
_PAIRS, _PAIRS_S, _FEWEST_PAIRS = 7, 1.0, 2
#: Fewer pairs are also enough if all of them differ by this factor in the same direction.
_CLEARLY = 1.2
#: A candidate slower than the fastest by this factor while warming up drops out, and beside other work.
_HOPELESS, _HOPELESS_BUSY = 1.5, 2.0
#: Rounds after which a candidate is the faster if its slowest run is faster than the fastest run of the other, as one
#: of two equals is in 1.4 % of all cases.
_APART_ROUNDS = 4
#: How many times the shortest median a candidate may have after so many qualifying rounds. They are not part of the
#: final rounds, so that dropping out early does not bias the result; where those are few, these count too.
_QUALIFYING = {3: 1.3, 7: 1.15}


@dataclass
class Race:
    """The measured calls of each candidate.

    Args:
        candidates: all that take part, the model as it runs today first.
        call: a function that runs the model by a candidate and returns its tensors.
        expected: the model's own tensors.
        tolerance: allowed difference from them, absolute plus relative.
        deadline: when to end, by ``time.monotonic``.
        forced: labels of which one is taken whatever is measured; empty for the fastest of all.
        busy: whether other work keeps the cores busy: `provisional` then chooses.
        shown: called with the current step.
        rounding: called for a difference beyond the tolerance: the largest one that rounding explains, in the unit of
            `hios.frontends.tolerances.beyond`.
        elsewhere: called for a candidate whose outputs match: how they differ for other inputs, None if they do not.
        brief: whether to end, if busy, as soon as the model has lost, which every round may show.
        before: an earlier race of some of the candidates, whose rounds count too where this race has few.
    """

    candidates: Sequence[Candidate]
    call: Callable[[Candidate], list[Tensor]]
    expected: Sequence[Tensor]
    tolerance: float
    deadline: float = math.inf
    forced: Collection[str] = ()
    busy: bool = False
    shown: Callable[[str], None] = lambda what: None
    rounding: Callable[[], float] = lambda: 0.0
    elsewhere: Callable[[Candidate], Difference | None] = lambda candidate: None
    brief: bool = False
    before: Race | None = None
    measured_at: str = ""
    #: Milliseconds of every final round, by label.
    latencies: dict[str, list[float]] = field(default_factory=dict)
    #: Milliseconds of every qualifying round, by label; none if busy.
    qualifying: dict[str, list[float]] = field(default_factory=dict, init=False)
    #: Milliseconds of every round of candidates that left the race, by label: qualifying rounds, unless busy.
    left: dict[str, list[float]] = field(default_factory=dict)
    #: Milliseconds of the model as it runs today in the same rounds.
    today_ms: list[float] = field(default_factory=list)
    #: How outputs differ, by label of candidates with wrong outputs.
    wrong: dict[str, Difference] = field(default_factory=dict)
    #: What rounding explains, if a candidate takes part only by that.
    explained: float = 0.0
    #: Why a candidate could not run, by label.
    failed: dict[str, str] = field(default_factory=dict)
    #: Shortest latency while warming up, milliseconds, by label; none if the budget ran out before.
    warm_ms: dict[str, float] = field(default_factory=dict, init=False)

    def measure(self) -> None:
        """Warm up, drop candidates that are wrong, failed or clearly slower, and measure the rest in random order."""
        self.measured_at = now()
        if time.monotonic() >= self.deadline and not self.forced:
            return
        racing = self._warmed()
        if self.busy:
            self._beside_other_work(racing)
            return
        racing = self._qualified(racing)
        shuffle = random.Random(0).shuffle
        self.latencies = {candidate.label: [] for candidate in racing}
        order, rounds = list(racing), self._rounds(racing)
        began = time.monotonic()
        for number in range(rounds):
            # Only rounds with all candidates are compared: a round that no longer fits is not started.
            three_s = 3 * (time.monotonic() - began) / max(number, 1)
            if number % 3 == 0 and time.monotonic() + three_s > self.deadline:
                break
            self.shown(f"{len(racing)} ways to run the model take turns")
            shuffle(order)
            for candidate in order:
                self.latencies[candidate.label].append(self._timed(candidate))

    def _beside_other_work(self, racing: list[Candidate]) -> None:
        """Measure rounds in which all that are left run once each, in random order.

        What disturbs a round disturbs all of them, so whoever is slower than the fastest with 95 % confidence leaves,
        or by far in every round, the model as it runs today like the others. It ends once one is left. If it is brief,
        every round from the third on is the last one once the model has left, unless something seems faster than what
        was taken before: that has some more rounds.
        """
        while len(fewer := self._affordable(racing, self.warm_ms, _ROUNDS_BUSY)) < len(racing):
            racing = fewer
        self.latencies = {candidate.label: [] for candidate in racing}
        shuffle, began, today = random.Random(0).shuffle, time.monotonic(), self.candidates[0].label
        held, rivals = self._taken_before and self._taken_before.label, False
        for number in range(_MOST_ROUNDS):
            order = [candidate for candidate in racing if candidate.label in self.latencies]
            round_s = (time.monotonic() - began) / max(number, 1)
            lost = self.brief and number > 2 and today not in self.latencies
            over = len(order) < 2 or (lost and not (rivals and number < _ROUNDS_BUSY))
            if (number and over) or time.monotonic() + round_s > self.deadline:
                break
            self.shown(f"{len(order)} ways to run the model take turns beside other work")
            shuffle(order)
            for candidate in order:
                self.latencies[candidate.label].append(self._timed(candidate))
            if number < 2 or (number % 3 < 2 and not self.brief):
                continue
            medians = {label: statistics.median(times) for label, times in self.latencies.items()}
            fastest = min(medians, key=lambda label: medians[label])
            slower = [label for label, times in self.latencies.items() if _loses(times, self.latencies[fastest])]
            self.left |= {label: self.latencies.pop(label) for label in slower}
            rivals = held in self.latencies and held != fastest
        self.today_ms = self.left.get(today) or self.latencies.get(today, [])

    def _rounds(self, racing: Sequence[Candidate]) -> int:
        """Final rounds within the budget, a multiple of three."""
        round_s = _round_s(racing, self.warm_ms)
        left_s = max(self.deadline - time.monotonic(), 0.0)
        affordable = _MOST_ROUNDS if left_s >= round_s * _MOST_ROUNDS else int(left_s / max(round_s, 1e-9))
        return 3 * (min(affordable, _MOST_ROUNDS) // 3)

    def _warmed(self) -> list[Candidate]:
        """Candidates whose outputs match the model's and that are not hopelessly slower than the fastest.

        Once there is only time left to compare those, no others are tried.
        """
        began, racing = time.monotonic(), list[Candidate]()
        for candidate in self.candidates:
            now_s, rounds = time.monotonic(), _ROUNDS_BUSY if self.busy else _MOST_ROUNDS
            kept_s = min(rounds * _round_s(racing, self.warm_ms), _RACING_SHARE * (self.deadline - began))
            if now_s + kept_s >= self.deadline and self.warm_ms and candidate.label not in self.forced:
                continue
            self.shown(f"trying {candidate.label}")
            self._warm(candidate)
            able = [candidate for candidate in self.candidates if candidate.label in self.warm_ms]
            racing = self.near(able, self.warm_ms, _HOPELESS_BUSY if self.busy else _HOPELESS)
        return racing

    def _warm(self, candidate: Candidate) -> None:
        """Record the shortest warm-up latency, or the error."""
        today = candidate is self.candidates[0]
        try:
            outputs, first_ms = self._first(candidate)
            differs = self._difference(outputs)
            if differs is None:
                shortest = first_ms
                if self._has_time_for(first_ms):
                    shortest = min(first_ms, self._timed(candidate))
                slow = self.warm_ms and shortest > 2 * _HOPELESS * min(self.warm_ms.values())
                leaves = slow and not self._stays(candidate)
                differs = None if leaves else self.elsewhere(candidate)
            if differs is not None:
                self.wrong[candidate.label] = differs
                return
            if not (leaves or self.brief) and time.monotonic() < self.deadline and self._has_time_for(shortest):
                shortest = min(shortest, *(self._timed(candidate) for _ in range(_WARMUP - 1)))
            self.warm_ms[candidate.label] = shortest
        except Exception as error:  # other runtimes raise many types
            if today:
                raise
            self.failed[candidate.label] = first_line(error)

    def _has_time_for(self, latency_ms: float) -> bool:
        """Whether a candidate runs again while warming up: beside other work only with time for many runs of all."""
        many_s = _MANY * len(self.candidates) * latency_ms / 1e3
        return not self.busy or time.monotonic() + many_s < self.deadline

    def _difference(self, outputs: Sequence[Tensor]) -> Difference | None:
        """How outputs differ; None if they are equal."""
        off = difference(outputs, self.expected, self.tolerance)
        if off is None:
            return None
        if off > (explained := self.rounding()):
            return Difference(off)
        self.explained = explained
        return None

    def _stays(self, candidate: Candidate) -> bool:
        """Whether a candidate is measured to the end, however slow, as are those that were asked for or taken before.

        Beside other work the model is within reason.
        """
        if candidate is not self.candidates[0]:
            return candidate.label in self.forced or candidate == self._taken_before
        shortest = self.warm_ms.get(candidate.label, 0.0)
        return not self.busy or shortest <= 2 * _HOPELESS * min(self.warm_ms.values(), default=shortest)

    def _qualified(self, racing: list[Candidate]) -> list[Candidate]:
        """The candidates that are not clearly slower than the fastest after a few rounds."""
        self.qualifying = taken = {candidate.label: list[float]() for candidate in racing}
        order, shuffle = list(racing), random.Random(1).shuffle
        for number in range(1, max(_QUALIFYING) + 1):
            if time.monotonic() >= self.deadline:
                break
            self.shown(f"{len(racing)} ways to run the model qualify")
            shuffle(order)
            for candidate in order:
                taken[candidate.label].append(self._timed(candidate))
            if factor := _QUALIFYING.get(number):
                medians = {candidate.label: statistics.median(taken[candidate.label]) for candidate in racing}
                racing = self._affordable(self.near(racing, medians, factor), medians, FEWEST_ROUNDS)
                order = list(racing)
        labels = {candidate.label for candidate in racing}
        self.left = {label: times for label, times in taken.items() if label not in labels}
        self.today_ms = taken[self.candidates[0].label]
        return racing

    def _affordable(self, racing: list[Candidate], medians: dict[str, float], rounds: int) -> list[Candidate]:
        """The faster half, if the budget does not allow the minimum number of rounds for all."""
        if rounds * _round_s(racing, medians) <= self.deadline - time.monotonic():
            return racing
        ranked = sorted(racing, key=lambda candidate: medians[candidate.label])
        faster = {candidate.label for candidate in ranked[: max(2, math.ceil(len(ranked) / 2))]}
        return [candidate for candidate in racing if self._stays(candidate) or candidate.label in faster]

    def _first(self, candidate: Candidate) -> tuple[list[Tensor], float]:
        """Outputs and milliseconds of the first call."""
        return timed(functools.partial(self.call, candidate))

    def _timed(self, candidate: Candidate) -> float:
        took_ms = timed(functools.partial(self.call, candidate))[1]
        if candidate.busy_cores:
            time.sleep(SETTLE_S)
        return took_ms

    def chosen(self) -> tuple[Candidate, str]:
        """The fastest by one third of the rounds; another third decides whether it is faster than the model.

        Among those statistically tied with the fastest, it is the one with the smallest 80th percentile
        (`hios.machine.statistics`). The model as it runs today stays unless the interval of the speedup over it lies
        above 1 in rounds that did not take part in choosing. Any other way must be faster than the model with one
        thread and with all threads; otherwise the model runs itself, with whichever number of threads is faster. The
        report (`reported`) uses rounds that took part in neither.

        If the budget ended before there were enough rounds for that, `provisional` chooses, by all rounds, those of
        earlier races too.

        Returns:
            The candidate, and why this one, in words.

        Raises:
            HiosError: all candidates that the user asked for have wrong outputs, or failed.
        """
        racing = [candidate for candidate in self.candidates if self.latencies.get(candidate.label)]
        if self.forced:
            return self._forced(racing), "as asked for"
        if not self._is_whole:
            return self._by_few_rounds()
        return self._by_thirds(racing)

    @property
    def _is_whole(self) -> bool:
        """Whether there are enough rounds for each to serve for one thing only."""
        return len(self.latencies.get(self.candidates[0].label, ())) >= FEWEST_ROUNDS

    def _by_thirds(self, racing: Sequence[Candidate]) -> tuple[Candidate, str]:
        """The choice by rounds of which each serves for one thing only."""
        today = self.candidates[0]
        label = best({candidate.label: self.latencies[candidate.label][::3] for candidate in racing})
        taken = next(candidate for candidate in racing if candidate.label == label)
        if taken.kind != EAGER:  # it must be faster than the model with every number of threads
            alike = [c for c in racing if c.kind == EAGER and not self._outruns(taken, c)]
            taken = min(alike, key=lambda c: spread(self.latencies[c.label][1::3])[0], default=taken)
        if taken is today:
            return today, "nothing was faster by more than the measurement can tell"
        if not self._outruns(taken, today):
            return today, f"{taken.label} was not faster by more than the measurement can tell"
        times = self.reported()
        speedup = spread(times[today.label])[0] / spread(times[taken.label])[0]
        return taken, f"{speedup:.2f} times as fast as {today.label}"

    def _by_few_rounds(self) -> tuple[Candidate, str]:
        """The choice where the budget has ended before there were enough rounds for `_by_thirds`."""
        today = self.candidates[0]
        taken = self.provisional()
        if taken is not today:
            return self._told(taken)
        if not any(self.together(candidate.label)[0] for candidate in self.candidates):
            return today, "the budget (budget_s) was spent before ways took turns"
        return today, "nothing was faster by more than the measurement can tell"

    def _told(self, taken: Candidate) -> tuple[Candidate, str]:
        """A candidate, and in words how fast it was in all rounds."""
        today = self.candidates[0].label
        own, theirs = self.together(taken.label)
        if not own:
            return taken, f"faster than {today} in the calls that there was time for"
        speedup = spread(theirs)[0] / spread(own)[0]
        return taken, f"{speedup:.2f} times as fast as {today}, in the {len(own)} rounds that there was time for"

    def provisional(self) -> Candidate:
        """The fastest by all rounds that is faster than the model as it runs today with 95 % confidence; else that.

        It may be chosen beside other work, which disturbs all alike, but its speedup means little: no rounds are left
        to tell how much of it is luck, or how fast it is on idle cores. A model that took so long that it left while
        warming up has lost to all, and if there was no time for rounds then warming up decides.

        What an earlier race has taken stays unless it is slower than the model, or another one is faster.
        """
        today, held = self.candidates[0], self._held()
        racing = {label: self._rounds_of(label, label)[0] for label in self.latencies}
        if self.busy and self.warm_ms and not self._stays(today):
            racing = {label: own or [self.warm_ms[label]] for label, own in racing.items()}
        else:
            racing = {label: own for label, own in racing.items() if own and self._is_shown_faster(label, today.label)}
        if held and held.label not in racing:
            racing = {label: own for label, own in racing.items() if self._is_shown_faster(label, held.label)}
        if not racing:
            return held or today
        label = best(racing)
        if held and held.label in racing and not self._is_shown_faster(label, held.label):
            return held
        return next(candidate for candidate in self.candidates if candidate.label == label)

    @functools.cached_property
    def _taken_before(self) -> Candidate | None:
        return self.before.provisional() if self.before else None

    def _held(self) -> Candidate | None:
        """What an earlier race has taken, unless it fails or is wrong by now, or slower than the model in this race."""
        held, today = self._taken_before, self.candidates[0]
        if held is None or held.label in {today.label, *self.failed, *self.wrong}:
            return None
        return None if _loses(*self._rounds_of(held.label, today.label)) else held

    def _is_shown_faster(self, label: str, other: str) -> bool:
        """Whether a candidate is faster than another in all rounds, those of earlier races too, and not slower here."""
        own, theirs = self.together(label, other)
        return _loses(theirs, own) and not _loses(*self._rounds_of(label, other))

    def together(self, label: str, other: str = "") -> tuple[list[float], list[float]]:
        """Milliseconds of a candidate and another, or the model as it runs today, in all rounds that both ran in."""
        other = other or self.candidates[0].label
        before = self.before.together(label, other) if self.before else ([], [])
        own = self._rounds_of(label, other)
        return before[0] + own[0], before[1] + own[1]

    def _rounds_of(self, label: str, other: str) -> tuple[list[float], list[float]]:
        """The same in this race alone."""
        final = {**self.left, **self.latencies} if self.busy else self.latencies
        stages = (self.qualifying, final)
        pairs = [pair for own in stages for pair in zip(own.get(label, ()), own.get(other, ()), strict=False)]
        return [own for own, _ in pairs], [theirs for _, theirs in pairs]

    def _forced(self, racing: Sequence[Candidate]) -> Candidate:
        """The fastest of the candidates among which the user wants one chosen."""
        able = [c for c in self.candidates if c.label in self.forced and c.label in self.warm_ms]
        for label in self.forced if not able else ():
            if label in self.wrong:
                raise HiosError(
                    f"{label}: outputs differ from the model's by {self.wrong[label]}; allowed: {self.tolerance:g} "
                    "(tolerance), absolute plus relative, and what rounding to 16 bits takes"
                )
            raise HiosError(f"{label}: {self.failed[label]}")
        raced = [candidate for candidate in racing if candidate.label in self.forced]
        if not raced:
            return min(able, key=lambda candidate: self.warm_ms[candidate.label])
        label = best({candidate.label: self.latencies[candidate.label][::3] for candidate in raced})
        return next(candidate for candidate in raced if candidate.label == label)

    def able(self, factor: float) -> list[Candidate]:
        """The model, and candidates with equal outputs that were within a factor of the fastest while warming up."""
        return [self.candidates[0], *self.near(self.candidates[1:], self.warm_ms, factor)]

    def near(self, candidates: Sequence[Candidate], took_ms: Mapping[str, float], factor: float) -> list[Candidate]:
        """Those that took at most a factor of the shortest time, and those that are measured to the end."""
        most = factor * min(took_ms.values(), default=0.0)
        return [c for c in candidates if self._stays(c) or took_ms.get(c.label, math.inf) <= most]

    def reported(self) -> dict[str, list[float]]:
        """Milliseconds of the rounds used for neither choice nor check, by label of the finishers; if busy, of all.

        None if there are too few rounds, which `together` has.
        """
        if not self.busy and not self._is_whole:
            return {}
        first, step = (0, 1) if self.busy else (2, 3)
        return {label: times[first::step] for label, times in self.latencies.items() if times}

    def _outruns(self, candidate: Candidate, other: Candidate) -> bool:
        """Whether one candidate is faster than another, by the rounds for checking."""
        own, theirs = (self.latencies[label][1::3] for label in (candidate.label, other.label))
        return is_faster(own, theirs)


def _round_s(racing: Sequence[Candidate], took_ms: Mapping[str, float]) -> float:
    """Seconds of a round of some candidates, with the pauses in which threads come to rest."""
    return sum(took_ms[own.label] / 1e3 + (SETTLE_S if own.busy_cores else 0.0) for own in racing)


def timed(call: Callable[[], _Result]) -> tuple[_Result, float]:
    """What a call returns, and the milliseconds it took."""
    began = time.perf_counter_ns()
    result = call()
    return result, (time.perf_counter_ns() - began) / 1e6


def outruns(own: Callable[[], object], today: Callable[[], object], settle: bool) -> bool:
    """Whether a cached choice is still faster than the model as it runs today, by the median of a few pairs.

    ``settle`` says that threads inside operators spin on for a while after a call.
    """
    ratios: list[float] = []
    began = time.monotonic()
    for number in range(1 + _PAIRS):
        took = {}
        for call in (own, today) if number % 2 else (today, own):
            took[call] = timed(call)[1]
            if settle:
                time.sleep(SETTLE_S)
        ratios.append(took[today] / took[own])
        if len(ratios) > _FEWEST_PAIRS and (time.monotonic() - began > _PAIRS_S or _is_clear(ratios[1:])):
            break
    return spread(ratios[1:])[0] > 1  # the first pair warms up


def _loses(own: Sequence[float], fastest: Sequence[float]) -> bool:
    """Whether a candidate is slower than another in the same rounds: with 95 % confidence, or by far in each of three.

    One of two equals is never twice as slow three times in a row but by a rare accident; waiting for more such rounds
    would take the time of all others. Four rounds in which the fastest call of one is slower than the slowest of the
    other tell as much.
    """
    by_far = len(own) == 3 and all(a > _HOPELESS_BUSY * b for a, b in zip(own, fastest, strict=True))
    apart = len(own) >= _APART_ROUNDS and min(own) > max(fastest)
    return by_far or apart or is_faster(fastest, own)


def _is_clear(ratios: Sequence[float]) -> bool:
    return min(ratios) > _CLEARLY or max(ratios) < 1 / _CLEARLY


#: Seconds between two checks whether other processes keep the cores busy.
LOOK_S = 5.0
#: Calls in a row that fail before a candidate drops out.
_FAILURES = 3
#: Rounds after which clearly slower candidates drop out: those whose median is this many times the shortest one.
_QUALIFYING_CALLS, _SLOWER = 4, 1.3


@dataclass
class OnlineRace:
    """Runs the user's calls and uses them to find the fastest candidate.

    The candidates give equal outputs; the model as it runs today is the first. Until the cores are idle, but for the
    workers of this process, the provisional one runs all calls. ``settled`` is called with the race once it is over,
    from the call that ends it.

    A call that fails is run by the model, which raises what it raises if the inputs are to blame; that candidate runs a
    later call of the round. One that fails three times in a row where the model computes drops out.
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
        #: Calls in a row that failed, and not in the model, by label; and why candidates dropped out.
        self._failures = dict.fromkeys(self.runs, 0)
        self._dropped: dict[str, str] = {}
        self._shuffle = random.Random(0).shuffle
        self._look()

    def _look(self) -> None:
        """Start waiting for idle cores."""
        self._race, self._qualified, self._turns = None, False, list[Candidate]()
        self._work = OtherWork(self.cores, self.children)
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
        race = Race(self.candidates, lambda candidate: [], [], 0.0, failed=self._dropped)
        race.latencies = {candidate.label: [] for candidate in racing if candidate.label not in self._dropped}
        return race

    def _timed(self, tensors: list[Tensor], race: Race) -> list[Tensor]:
        if not self._turns:
            self._turns = [candidate for candidate in self.candidates if candidate.label in race.latencies]
            self._shuffle(self._turns)
        candidate = self._turns.pop()
        try:
            outputs, took_ms = timed(functools.partial(self.runs[candidate.label], tensors))
        except Exception as error:
            self._turns.insert(0, candidate)  # a round has a call of each
            if candidate is self.candidates[0]:
                raise
            outputs = self.runs[self.candidates[0].label](tensors)
            self._failed(candidate, race, error)
            return outputs
        self._failures[candidate.label] = 0
        race.latencies[candidate.label].append(took_ms)
        if not self._turns:
            self._end_round(race)
        return outputs

    def _failed(self, candidate: Candidate, race: Race, error: Exception) -> None:
        """Count a failure; have the candidate run no calls any more after too many."""
        self._failures[candidate.label] += 1
        if self._failures[candidate.label] < _FAILURES:
            return
        self._dropped[candidate.label] = f"{_FAILURES} calls in a row failed: {first_line(error)}"
        if candidate.label == self.provisional:
            self.provisional = self.candidates[0].label
        self._turns.remove(candidate)
        del race.latencies[candidate.label]
        if not self._turns:
            self._end_round(race)

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
