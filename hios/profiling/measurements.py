"""Measuring operators, stages and merges of one graph, on one device or several, which take turns.

Measurements are repeated until their medians are precise or the time is up.
"""

from __future__ import annotations

import hashlib
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count as counter
from typing import Any, TypeVar

from hios.core import drift
from hios.core.costs import BlockResources, CostOverheads
from hios.core.drift import ProfileProbe, Speed
from hios.core.graph import Graph
from hios.kernels.executable import signatures
from hios.machine.statistics import expected_repeats, is_precise
from hios.machine.terminal import Meter
from hios.platforms.probe_schedule import ProbeSchedule
from hios.platforms.timer import DeviceTimer, Merge, Quantity, Stage
from hios.profiling.cache import MOST_DRIFT, RECHECK_ROUNDS, Cache, Measured, now
from hios.profiling.stage_requests import StageRequests

#: Rounds of one call to a worker.
CHUNK = 5
#: A measurement whose median stays uncertain ends at this many times the minimum number of repeats.
_MOST = 5

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Effort:
    """How often to measure: at least ``repeats`` times, then until precise, the deadline or ``most``.

    ``chunk`` is the number of rounds of one call to a worker: the progress bar moves and devices take turns.
    ``deadline`` is a time of ``time.monotonic``.
    """

    repeats: int
    deadline: float
    chunk: int = CHUNK

    @property
    def most(self) -> int:
        """The number of repeats after which a measurement stops in any case."""
        return _MOST * self.repeats

    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self.deadline

    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def is_settled(self, samples: Sequence[float]) -> bool:
        """Whether no more samples are needed."""
        return len(samples) >= self.repeats and (len(samples) >= self.most or is_precise(samples))

    def left(self, samples: Sequence[float]) -> float:
        """How many more samples are expected."""
        if len(samples) < self.repeats:
            return self.repeats - len(samples)
        return 0.0 if self.is_settled(samples) else max(1.0, min(expected_repeats(samples), self.most) - len(samples))


def sample(
    keys: Sequence[Key],
    run: Callable[[list[Key], int], Mapping[Key, Sequence[float]]],
    effort: Effort,
    meter: Meter,
    *,
    whole: bool = False,
    later: int = 0,
) -> dict[Key, list[float]]:
    """Samples of all keys, taken in rounds over those that are not settled yet.

    ``run`` measures some keys for a number of rounds; ``meter`` is told of every sample. If ``whole``, rounds include
    every key until all are settled, as fewer keys would leave more of the caches to each. ``later`` is the number of
    samples that later calls will take, for the estimate of the remaining time.
    """
    samples: dict[Key, list[float]] = {key: [] for key in keys}
    waiting, taken = list(keys), 0
    while waiting:
        target = effort.repeats if taken < effort.repeats else effort.most
        rounds = min(effort.chunk, target - taken)
        for key, times in run(waiting, rounds).items():
            samples[key].extend(times)
        taken += rounds
        done = len(waiting) * rounds
        if taken >= effort.repeats:
            unsettled = [key for key in waiting if not effort.is_settled(samples[key])]
            if taken >= effort.most or effort.is_over():
                unsettled = []
            waiting = waiting if whole and unsettled else unsettled
        left = [effort.left(samples[key]) for key in waiting]
        meter.advance(done, (len(left) * max(left, default=0.0) if whole else sum(left)) + later)
    return samples


#: Warm-up rounds: of the first call to a worker, and of later calls.
_WARMUP, _AGAIN = 3, 1
#: Stages or merges in a batch, and its maximum duration in seconds: the deadline is checked between batches.
_BATCH, _BATCH_S = 100, 5.0

_Key = TypeVar("_Key", str, Stage, Merge)


@dataclass
class Session:
    """Measurements of one graph. One representative is measured for all operators with the same signature.

    ``operators`` are milliseconds, ``transfers`` too, by size in bytes; ``stages`` and ``merges`` are ratios to their
    operators one after another; ``corun`` are ratios of devices that run at once to one alone, by their number.
    ``wide`` are ratios of operators on several devices at once to the same on one, by number of devices and operator;
    ``wide_merges`` are ratios of merges on several devices to their operators one after another on one.
    ``resources`` are what operators need of a GPU, ``overheads`` what running costs beyond the times of operators, if
    it was measured. ``drift`` is how many times as long as in the cache operators take
    now; None if none came from the cache. ``has_drifted`` says that this is too much for cached milliseconds; cached
    ratios hold. ``probe`` is timed between the measurements.
    """

    graph: Graph
    timer: DeviceTimer
    repeats: int
    cache: Cache
    operators: dict[str, Measured] = field(default_factory=dict)
    transfers: dict[int, Measured] = field(default_factory=dict)
    stages: dict[Stage, Measured] = field(default_factory=dict)
    merges: dict[Merge, Measured] = field(default_factory=dict)
    corun: dict[int, Measured] = field(default_factory=dict)
    wide: dict[tuple[int, str], Measured] = field(default_factory=dict)
    wide_merges: dict[tuple[int, Merge], Measured] = field(default_factory=dict)
    resources: Mapping[str, BlockResources] = field(default_factory=dict)
    overheads: CostOverheads | None = None
    drift: float | None = None
    has_drifted: bool = False

    def __post_init__(self) -> None:
        self._signature = signatures(self.graph)
        first: dict[str, str] = {}
        for number in self.graph.order:
            operator = self.graph.operators[number].id
            first.setdefault(self._signature[operator], operator)
        #: The operator that is measured for each: the first in execution order.
        self.stand_in = {operator: first[signature] for operator, signature in self._signature.items()}
        self._measured = list(first.values())
        self.digest = {
            operator: hashlib.sha256(signature.encode()).hexdigest()[:32]
            for operator, signature in self._signature.items()
        }
        self._devices = self.timer.devices
        self.turns: Iterator[int] = counter()
        self.probe = ProbeSchedule(self.timer.probe_version, self.timer.probe, self._devices)
        self._loaded: Counter[str] = Counter()

    def median_ms(self) -> dict[str, float]:
        """t(v) of the measured operators."""
        return {operator: statistics.median(measured.samples) for operator, measured in self.operators.items()}

    def load(self, needed: Mapping[str, int]) -> None:
        """Prepare the given number of copies of each operator on every device."""
        more = {operator: number for operator, number in needed.items() if number > self._loaded[operator]}
        if more:
            self.timer.load(more)
            self._loaded.update({operator: number - self._loaded[operator] for operator, number in more.items()})

    def known(self, kind: str, what: Any, effort: Effort) -> Measured | None:
        """The cached entry, if it has at least as many repeats as are requested now."""
        cached = self.cache.get(kind, what)
        return cached if cached is not None and len(cached.samples) >= effort.repeats else None

    def keep(self, kind: str, what: Any, samples: Sequence[float], speed: Speed | None = None) -> Measured:
        """What was measured just now, after adding it to the cache."""
        measured = Measured(samples, now(), speed=speed)
        self.cache.put(kind, what, measured)
        return measured

    def ratios(
        self, quantities: Mapping[_Key, Quantity], keys: list[_Key], rounds: int, width: int = 1
    ) -> dict[_Key, list[float]]:
        """Times together over times one after another; on several devices over times on one."""
        self.probe.take_if_due()
        chosen = [quantities[key] for key in keys]
        if width > 1:
            times = self.timer.time_wide(width, chosen, rounds, _AGAIN)
        else:
            times = self.timer.time(next(self.turns) % self._devices, chosen, rounds, _AGAIN)
        return {key: [together / apart for together, apart in own] for key, own in zip(keys, times, strict=True)}

    def measure_operators(self, deadline: float) -> None:
        """t(v), in rounds that follow the order of the network."""
        effort = Effort(self.repeats, deadline)
        self.load(dict.fromkeys(self._measured, 1))
        self._allow()
        self.probe.take_at_end()
        for operator in self._measured:
            cached = self.known("operator", self._signature[operator], effort)
            if cached is not None and effort.is_settled(cached.samples):
                self.operators[operator] = cached
        if self.operators and not self._is_as_before():
            self.operators.clear()
            self.has_drifted = True
        needed = [operator for operator in self._measured if operator not in self.operators]
        if not needed:
            return
        order = self._with_neighbors(needed)
        what = f"measuring the {len(needed)} operators that differ, of {len(self.graph.operators)}"

        def run(keys: list[str], rounds: int) -> dict[str, list[float]]:
            times = self._rounds(order, rounds)
            return {operator: times[operator] for operator in keys}

        with Meter(len(needed) * effort.repeats, what, "runs", effort.deadline) as meter:
            samples = sample(needed, run, effort, meter, whole=True)
        self.probe.take_at_end()
        speed = drift.speed(self.probe.samples)
        for operator, own in samples.items():
            self.operators[operator] = self.keep("operator", self._signature[operator], own, speed)

    def _allow(self) -> None:
        """Have calls take as long as they need, by a first run of every operator in a call of its own."""
        seconds: dict[str, float] = {}
        for operator in self._measured:
            began = time.monotonic()
            self.timer.time(0, [operator], 1, 0)
            seconds[operator] = time.monotonic() - began
        self.timer.allow(sum(seconds[stand_in] for stand_in in self.stand_in.values()))

    def profiled(self) -> ProfileProbe | None:
        """Speed of the machine while t(v) was measured, weighted by the share of each operator in the network.

        Operators from an earlier session count with the speed of that session. None if it is unknown.
        """
        shares: dict[Speed, float] = defaultdict(float)
        times = self.median_ms()
        for stand_in in self.stand_in.values():
            if (own := self.operators[stand_in].speed) is not None:
                shares[own] += times[stand_in]
        speed = drift.mixed([(share, own) for own, share in shares.items()])
        if speed is None:
            return None
        return ProfileProbe(self.probe.version, speed, self._copy_share(speed), tuple(self.probe.samples))

    def _copy_share(self, speed: Speed) -> float:
        """Share of the network's time spent in operators that are memory-bound on this machine.

        By the roofline model these are the operators with fewer floating-point operations per byte than a device can
        do, according to the probe, in the time that it takes to copy a byte.
        """
        least = (self.timer.probe_flops / speed.compute_ms.value) / (self.timer.probe_bytes / speed.copy_ms.value)
        times, limited = self.median_ms(), 0.0
        for operator in self.graph.operators:
            if (operator.flops or 0) < least * (operator.bytes or 0):
                limited += times[self.stand_in[operator.id]]
        total = sum(times[stand_in] for stand_in in self.stand_in.values())
        return limited / total if total > 0 else 0.0

    def find_resources(self) -> None:
        """Resources that operators need on a GPU. Not cached, as it takes only one run of each."""
        self.resources = self.timer.resources(self._measured)

    def _rounds(self, operators: Sequence[str], rounds: int) -> dict[str, list[float]]:
        self.probe.take_if_due()
        turn = next(self.turns)
        warmup = _WARMUP if turn < self._devices else _AGAIN
        times = self.timer.time(turn % self._devices, operators, rounds, warmup)
        return {operator: [time_ms for (time_ms,) in own] for operator, own in zip(operators, times, strict=True)}

    def _is_as_before(self) -> bool:
        """Whether cached operators still take as long as before; records the drift."""
        times = self._rounds(self._measured, RECHECK_ROUNDS)
        before = self.median_ms()
        today, then = sum(statistics.median(times[operator]) for operator in before), sum(before.values())
        self.drift = today / then if then > 0 else 1.0
        return 1 / (1 + MOST_DRIFT) <= self.drift <= 1 + MOST_DRIFT

    def _with_neighbors(self, needed: Sequence[str]) -> list[str]:
        """The operators, each preceded by enough others to fill the caches as a whole round would."""
        order, size = self._measured, self.timer.around_bytes
        bytes_of = {operator.id: operator.bytes or 0 for operator in self.graph.operators}
        if size is None:
            return list(order)
        chosen = set(needed)
        for place in (number for number, operator in enumerate(order) if operator in needed):
            filled = 0
            for before in (order[(place - back) % len(order)] for back in range(1, len(order))):
                if filled >= size:
                    break
                chosen.add(before)
                filled += bytes_of[before]
        return [operator for operator in order if operator in chosen]

    def measure_wide(self, widths: Sequence[int], deadline: float) -> None:
        """t(v, k) over t(v) of all operators that are measured, for every width k.

        Rounds over the whole network on k devices and on the first of them alone take turns, so that the machine's
        drift cancels in their ratio, and an operator finds the caches as the others leave them.
        """
        operators, effort = self._measured, Effort(self.repeats, deadline)
        self.load(dict.fromkeys(operators, 1))
        for width in widths:
            what = {operator: {"operator": self.digest[operator], **self.timer.ends(width)} for operator in operators}
            known = {operator: self.known("wide", what[operator], effort) for operator in operators}
            if all(entry is not None and effort.is_settled(entry.samples) for entry in known.values()):
                self.wide |= {(width, operator): entry for operator, entry in known.items() if entry is not None}
                continue
            run = partial(self.ratios, {operator: operator for operator in operators}, width=width)
            title = f"measuring the {len(operators)} operators that differ on {width} devices at once"
            with Meter(len(operators) * effort.repeats, title, "runs", effort.deadline) as meter:
                samples = sample(operators, run, effort, meter, whole=True)
            for operator, own in samples.items():
                self.wide[width, operator] = self.keep("wide", what[operator], own)

    def measure_stages(self, asked: StageRequests, deadline: float) -> None:
        """t(S) of the stages that are not cached, in random order, so that a deadline leaves a fair sample."""
        effort = Effort(self.repeats, deadline)
        stages = self._open("stage", set(asked.stages.values()), self.stages, effort)
        if not stages or effort.is_over():
            return
        members = [[operator for group in stage for operator in group] for stage in stages]
        alone = self.median_ms()
        short = sum(self._least_s(own, alone) for own in members) > effort.left_s()
        repeating = replace(effort, deadline=0.0) if short else effort  # then more stages are preferred to more repeats
        needed: Counter[str] = Counter()
        for stage in stages:
            needed |= Counter(operator for group in stage for operator in group)
        self.load(needed)
        what = f"measuring {'a sample of ' if short else ''}{len(stages)} stages that differ"
        members_of = dict(zip(stages, members, strict=True))
        measured = self._in_batches(
            what, members_of, lambda batch: {stage: stage for stage in batch}, effort, repeating
        )
        for stage, own in measured:
            self.stages[stage] = self.keep("stage", self._digests("stage", stage), own)

    def measure_merges(self, asked: StageRequests, deadline: float) -> None:
        """Times of the merges that are not cached, measured like stages."""
        effort = Effort(self.repeats, deadline)
        merges = self._open("merge", set(asked.merges.values()), self.merges, effort)
        if not merges or effort.is_over():
            return
        what = f"measuring {len(merges)} merges that differ"
        for merge, own in self._merges_in_batches(what, merges, asked, effort):
            self.merges[merge] = self.keep("merge", self._digests("merge", merge), own)

    def measure_wide_merges(self, asked: StageRequests, widths: Sequence[int], deadline: float) -> None:
        """Times of merges on k devices over those of their operators one after another on one, for every width k.

        Of the merges that are asked for, those that were measured on one device.
        """
        merges = sorted(self.merges.keys() & set(asked.merges.values()))
        effort = Effort(self.repeats, deadline)
        for width in widths:
            what = {merge: {"merge": self._digests("merge", merge), **self.timer.ends(width)} for merge in merges}
            known = {merge: self.known("wide_merge", what[merge], effort) for merge in merges}
            self.wide_merges |= {(width, merge): entry for merge, entry in known.items() if entry is not None}
            needed = [m for m, entry in known.items() if entry is None or not effort.is_settled(entry.samples)]
            if not needed or effort.is_over():
                continue
            title = f"measuring the {len(needed)} merges that differ on {width} devices at once"
            for merge, own in self._merges_in_batches(title, needed, asked, effort, width):
                self.wide_merges[width, merge] = self.keep("wide_merge", what[merge], own)

    def _merges_in_batches(
        self, what: str, merges: list[Merge], asked: StageRequests, effort: Effort, width: int = 1
    ) -> Iterator[tuple[Merge, list[float]]]:
        def load(batch: list[Merge]) -> dict[Merge, Quantity]:
            self.timer.load_merges([asked.merge_of(alike) for alike in batch])
            return {alike: number for number, alike in enumerate(batch)}

        return self._in_batches(what, {merge: merge for merge in merges}, load, effort, effort, width)

    def _in_batches(
        self,
        what: str,
        operators: Mapping[_Key, Sequence[str]],
        load: Callable[[list[_Key]], Mapping[_Key, Quantity]],
        effort: Effort,
        repeating: Effort,
        width: int = 1,
    ) -> Iterator[tuple[_Key, list[float]]]:
        """Ratios of stages or merges, measured in batches until the deadline.

        ``operators`` are those of each stage or merge; ``load`` prepares a batch and returns what the timer calls each
        of it; ``repeating`` is how often to measure within a batch.
        """
        with Meter(len(operators) * effort.repeats, what, "runs", effort.deadline) as meter:
            later = len(operators)
            for batch in self._batches(operators):
                later -= len(batch)
                run = partial(self.ratios, load(batch), width=width)
                yield from sample(batch, run, repeating, meter, later=later * effort.repeats).items()
                if effort.is_over():
                    break

    def _open(self, kind: str, asked: set[_Key], known: dict[_Key, Measured], effort: Effort) -> list[_Key]:
        """What remains to be measured, in random order: first what is unknown, then what is imprecise.

        What the cache holds is taken from there.
        """
        new = sorted(asked - known.keys())
        for key in new:
            if (cached := self.known(kind, self._digests(kind, key), effort)) is not None:
                known[key] = cached
        absent = [key for key in new if key not in known]
        uncertain = [key for key in new if key in known and not effort.is_settled(known[key].samples)]
        for keys in (absent, uncertain):
            random.Random(0).shuffle(keys)
        return absent + uncertain

    def _digests(self, kind: str, key: Any) -> list[Any]:
        """A stage or merge by the signatures of its operators, in an order that does not depend on their names."""
        if kind == "merge":
            return sorted(self.digest[operator] for operator in key)
        return sorted([self.digest[operator] for operator in group] for group in key)

    def _batches(self, operators: Mapping[_Key, Sequence[str]]) -> list[list[_Key]]:
        """Stages or merges in batches of a few seconds each, so that the deadline is kept."""
        batches: list[list[_Key]] = []
        seconds, alone = 0.0, self.median_ms()
        for item, own in operators.items():
            if not batches or len(batches[-1]) >= _BATCH or seconds >= _BATCH_S:
                batches.append([])
                seconds = 0.0
            batches[-1].append(item)
            seconds += self._least_s(own, alone)
        return batches

    def _least_s(self, operators: Iterable[str], alone: Mapping[str, float]) -> float:
        """Seconds for the smallest number of repeats, each run once concurrently and once sequentially."""
        each_ms = max(sum(map(alone.__getitem__, operators)), self.timer.least_ms)
        return 2 * self.repeats * (1 + _AGAIN / CHUNK) * each_ms / 1000
