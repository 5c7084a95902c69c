"""Measuring one graph on the devices of a platform: operators, transfers, stages and merges, and devices at once."""

from __future__ import annotations

import hashlib
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count as counter
from typing import Any, TypeVar

from hios.graph import Graph
from hios.platforms.pool import WorkerPool
from hios.profiling import handovers, kernels, links
from hios.profiling.cache import Cache, Measured, now
from hios.profiling.progress import Meter
from hios.profiling.questions import Merge, Questions, Stage
from hios.profiling.sampling import Effort, sample
from hios.profiling.settings import cache_bytes
from hios.profiling.signature import signatures

#: Rounds before the measured ones: of the first call to a worker, and of those that follow soon.
_WARMUP, _AGAIN = 3, 1
#: Stages or merges of one batch, and the seconds that it should take at most: the deadline is looked at in between.
_BATCH, _BATCH_S = 100, 5.0
#: Hand-overs measured per size, and of one call; they take microseconds.
_TRANSFERS, _TRANSFERS_CHUNK = 100, 25
#: Rounds that tell whether operators still take as long as they did, and the share that they may be off.
_DRIFT_ROUNDS, _DRIFT = 5, 0.05
#: Inferences that devices run at once between two looks at the clock, and seconds before them; how often at least.
_INFERENCES, _LEAD_S, _CORUNS = 3, 0.005, 10

_Key = TypeVar("_Key", Stage, Merge)


@dataclass
class Session:
    """Measurements of one graph, by stand-ins: of the operators of one signature one is measured.

    ``operators`` are milliseconds, ``transfers`` too, by size in bytes; ``stages`` and ``merges`` are ratios to their
    operators one after another; ``corun`` are ratios of devices that run at once to one alone, by their number.
    ``drift`` is how many times as long as in the cache operators take now; None where none was taken from there.
    """

    graph: Graph
    path: str
    pool: WorkerPool
    cores: Sequence[Sequence[int]]
    repeats: int
    cache: Cache
    operators: dict[str, Measured] = field(default_factory=dict)
    transfers: dict[int, Measured] = field(default_factory=dict)
    stages: dict[Stage, Measured] = field(default_factory=dict)
    merges: dict[Merge, Measured] = field(default_factory=dict)
    corun: dict[int, Measured] = field(default_factory=dict)
    drift: float | None = None

    def __post_init__(self) -> None:
        self._signature = signatures(self.graph)
        first: dict[str, str] = {}
        for number in self.graph.order:
            operator = self.graph.operators[number].id
            first.setdefault(self._signature[operator], operator)
        #: The operator that is measured for each: the first in execution order.
        self.stand_in = {operator: first[signature] for operator, signature in self._signature.items()}
        self._measured = list(first.values())
        self._digest = {
            operator: hashlib.sha256(signature.encode()).hexdigest()[:32]
            for operator, signature in self._signature.items()
        }
        self._devices = len(self.cores)
        self._turns: Iterator[int] = counter()
        self._loaded: Counter[str] = Counter()
        self._epoch = 0

    def median_ms(self) -> dict[str, float]:
        """t(v) of the operators that are measured."""
        return {operator: statistics.median(found.samples) for operator, found in self.operators.items()}

    def _load(self, needed: Mapping[str, int]) -> None:
        more = {operator: number for operator, number in needed.items() if number > self._loaded[operator]}
        if more:
            arguments = {"graph": self.path, "operators": more}
            self.pool.call_each(kernels.load, dict.fromkeys(range(self._devices), arguments))
            self._loaded.update({operator: number - self._loaded[operator] for operator, number in more.items()})

    def _known(self, kind: str, what: Any, effort: Effort) -> Measured | None:
        """What the cache holds, if it was repeated as often as is asked for now."""
        found = self.cache.get(kind, what)
        return found if found is not None and len(found.samples) >= effort.repeats else None

    def measure_operators(self, deadline: float) -> None:
        """t(v), in rounds that follow the order of the network."""
        effort = Effort(self.repeats, deadline)
        self._load(dict.fromkeys(self._measured, 1))
        for operator in self._measured:
            found = self._known("operator", self._signature[operator], effort)
            if found is not None and effort.is_settled(found.samples):
                self.operators[operator] = found
        if self.operators and not self._is_as_before():
            self.operators.clear()
        needed = [operator for operator in self._measured if operator not in self.operators]
        if not needed:
            return
        order = self._with_neighbours(needed)
        what = f"measuring the {len(needed)} operators that differ, of {len(self.graph.operators)}"

        def run(keys: list[str], rounds: int) -> dict[str, list[float]]:
            found = self._rounds(order, rounds)
            return {operator: found[operator] for operator in keys}

        with Meter(len(needed) * effort.repeats, what, "runs", effort.deadline) as meter:
            samples = sample(needed, run, effort, meter, whole=True)
        for operator, own in samples.items():
            self.operators[operator] = Measured(own, now())
            self.cache.put("operator", self._signature[operator], self.operators[operator])

    def _rounds(self, operators: Sequence[str], rounds: int) -> dict[str, list[float]]:
        turn = next(self._turns)
        found: dict[str, list[float]] = self.pool.call(
            turn % self._devices,
            kernels.time_operators,
            operators=operators,
            rounds=rounds,
            warmup=self._warmup(turn),
        )
        return found

    def _warmup(self, turn: int) -> int:
        return _WARMUP if turn < self._devices else _AGAIN

    def _is_as_before(self) -> bool:
        """Whether the operators from the cache take as long as they did; notes the drift."""
        found = self._rounds(self._measured, _DRIFT_ROUNDS)
        before = self.median_ms()
        today, then = sum(statistics.median(found[operator]) for operator in before), sum(before.values())
        self.drift = today / then if then > 0 else 1.0
        return 1 / (1 + _DRIFT) <= self.drift <= 1 + _DRIFT

    def _with_neighbours(self, needed: Sequence[str]) -> list[str]:
        """Operators, and before each as many as fill the caches: they find there what a whole round would leave."""
        order, size = self._measured, cache_bytes(self.cores[0][0])
        bytes_of = {operator.id: operator.details.get("bytes", 0) for operator in self.graph.operators}
        if size == 0:
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

    def measure_transfers(self, deadline: float) -> None:
        """t(u,v) for the sizes of all edges, and those that a link is fitted to."""
        effort = Effort(_TRANSFERS, deadline, _TRANSFERS_CHUNK)
        edges = {edge.bytes or 0 for edge in self.graph.edges}
        sizes = sorted(edges | set(links.ladder(max(edges, default=0))))
        what = {size: {"bytes": size, "cores": [list(own) for own in self.cores[:2]]} for size in sizes}
        for size in sizes:
            found = self._known("transfer", what[size], effort)
            if found is not None and effort.is_settled(found.samples):
                self.transfers[size] = found
        needed = [size for size in sizes if size not in self.transfers]
        if not needed:
            return
        hand_over = self._copies if self._devices == 1 else self._hand_overs
        with Meter(len(needed) * effort.repeats, "measuring transfers", "runs", effort.deadline) as meter:
            samples = sample(needed, hand_over, effort, meter)
        for size, own in samples.items():
            self.transfers[size] = Measured(own, now())
            self.cache.put("transfer", what[size], self.transfers[size])

    def _copies(self, sizes: list[int], rounds: int) -> dict[int, list[float]]:
        found: dict[int, list[float]] = self.pool.call(0, handovers.time_copies, sizes=sizes, rounds=rounds)
        return found

    def _hand_overs(self, sizes: list[int], rounds: int) -> dict[int, list[float]]:
        """Both ways in turn between the first two devices."""
        sender = next(self._turns) % 2
        both = {"sizes": sizes, "rounds": rounds + _WARMUP, "epoch": self._epoch}
        self._epoch += len(sizes) * (rounds + _WARMUP)
        times = self.pool.call_each(
            handovers.hand_over, {sender: {"part": "send", **both}, 1 - sender: {"part": "receive", **both}}
        )
        return {
            size: [
                (seen - began) / 1e6 for began, seen in zip(times[sender][size], times[1 - sender][size], strict=True)
            ][_WARMUP:]
            for size in sizes
        }

    def measure_corun(self, deadline: float) -> None:
        """How much longer a network takes on a device while others run it too, for every number of devices."""
        network = [self.stand_in[self.graph.operators[number].id] for number in self.graph.order]
        self._load(Counter(network))
        alone_ms = sum(map(self.median_ms().__getitem__, network))
        for devices in range(2, self._devices + 1):
            left = self._devices + 1 - devices
            effort = Effort(min(self.repeats, _CORUNS), time.monotonic() + (deadline - time.monotonic()) / left)
            cores = [list(own) for own in self.cores[:devices]]
            what = {"operators": [self._digest[operator] for operator in network], "cores": cores}
            found = self._known("corun", what, effort)
            if found is None or not effort.is_settled(found.samples):
                found = self._at_once(network, devices, effort, alone_ms)
            self.corun[devices] = found
            self.cache.put("corun", what, found)

    def _at_once(self, network: list[str], devices: int, effort: Effort, alone_ms: float) -> Measured:
        def run(keys: list[int], rounds: int) -> dict[int, list[float]]:
            ratios = []
            for _ in range(rounds):
                device = next(self._turns) % devices
                alone = self._inferences(network, [device], alone_ms)[device]
                together = self._inferences(network, range(devices), alone_ms)[device]
                ratios.append(statistics.median(together) / statistics.median(alone))
            return dict.fromkeys(keys, ratios)

        with Meter(effort.repeats, f"measuring {devices} devices at once", "runs", effort.deadline) as meter:
            samples = sample([devices], run, effort, meter)[devices]
        return Measured(samples, now())

    def _inferences(self, network: list[str], devices: Iterable[int], alone_ms: float) -> dict[int, list[float]]:
        """Milliseconds of inferences on devices that run at once."""
        begin = time.perf_counter_ns() + round(_LEAD_S * 1e9 + alone_ms * 1e6)
        span = {"begin_ns": begin, "end_ns": begin + round(_INFERENCES * alone_ms * 1e6 + _LEAD_S * 1e9)}
        arguments = {"operators": network, **span}
        found: dict[int, list[float]] = self.pool.call_each(kernels.time_inferences, dict.fromkeys(devices, arguments))
        return found

    def measure_stages(self, asked: Questions, deadline: float) -> None:
        """t(S) of the stages that are not known, in an order without system: the deadline leaves a fair sample."""
        effort = Effort(self.repeats, deadline)
        stages = self._open("stage", set(asked.stages.values()), self.stages, effort)
        if not stages or effort.is_over():
            return
        needed: Counter[str] = Counter()
        for stage in stages:
            needed |= Counter(operator for group in stage for operator in group)
        self._load(needed)

        def run(keys: list[Stage], rounds: int) -> dict[Stage, list[float]]:
            device = next(self._turns) % self._devices
            found = self.pool.call(device, kernels.time_stages, stages=keys, rounds=rounds, warmup=_AGAIN)
            return dict(zip(keys, map(_ratios, found), strict=True))

        batches = self._batches(stages, [[operator for group in stage for operator in group] for stage in stages])
        with Meter(len(stages) * effort.repeats, _what(stages, "stages"), "runs", deadline) as meter:
            later = len(stages)
            for batch in batches:
                later -= len(batch)
                for stage, own in sample(batch, run, effort, meter, later=later * effort.repeats).items():
                    self.stages[stage] = Measured(own, now())
                    self.cache.put("stage", self._digests("stage", stage), self.stages[stage])
                if effort.is_over():
                    break

    def measure_merges(self, asked: Questions, deadline: float) -> None:
        """Times of the merges that are not known, as `measure_stages` has those of stages."""
        effort = Effort(self.repeats, deadline)
        merges = self._open("merge", set(asked.merges.values()), self.merges, effort)
        if not merges or effort.is_over():
            return

        def run(keys: list[Merge], rounds: int) -> dict[Merge, list[float]]:
            device, numbers = next(self._turns) % self._devices, [place[key] for key in keys]
            found = self.pool.call(device, kernels.time_merges, merges=numbers, rounds=rounds, warmup=_AGAIN)
            return dict(zip(keys, map(_ratios, found), strict=True))

        with Meter(len(merges) * effort.repeats, _what(merges, "merges"), "runs", deadline) as meter:
            later = len(merges)
            for batch in self._batches(merges, merges):
                later -= len(batch)
                place = {alike: number for number, alike in enumerate(batch)}
                arguments = {"graph": self.path, "merges": [asked.merge_of(alike) for alike in batch]}
                self.pool.call_each(kernels.load_merges, dict.fromkeys(range(self._devices), arguments))
                for merge, own in sample(batch, run, effort, meter, later=later * effort.repeats).items():
                    self.merges[merge] = Measured(own, now())
                    self.cache.put("merge", self._digests("merge", merge), self.merges[merge])
                if effort.is_over():
                    break

    def _open(self, kind: str, asked: set[_Key], known: dict[_Key, Measured], effort: Effort) -> list[_Key]:
        """What has to be measured, in random order; first what is not known at all, then what is uncertain.

        What the cache holds is taken from there.
        """
        new = sorted(asked - known.keys())
        for key in new:
            if (found := self._known(kind, self._digests(kind, key), effort)) is not None:
                known[key] = found
        absent = [key for key in new if key not in known]
        uncertain = [key for key in new if key in known and not effort.is_settled(known[key].samples)]
        for keys in (absent, uncertain):
            random.Random(0).shuffle(keys)
        return absent + uncertain

    def _digests(self, kind: str, key: Any) -> list[Any]:
        """A stage or merge by signatures, in an order that does not depend on names."""
        if kind == "merge":
            return sorted(self._digest[operator] for operator in key)
        return sorted([self._digest[operator] for operator in group] for group in key)

    def _batches(self, items: list[_Key], operators: Sequence[Sequence[str]]) -> list[list[_Key]]:
        """Items in batches that take seconds, so that the deadline is kept."""
        batches: list[list[_Key]] = []
        median, taken = self.median_ms(), 0.0
        most = _BATCH_S * 1000 / (2 * (self.repeats + _WARMUP))
        for item, own in zip(items, operators, strict=True):
            if not batches or len(batches[-1]) >= _BATCH or taken >= most:
                batches.append([])
                taken = 0.0
            batches[-1].append(item)
            taken += sum(map(median.__getitem__, own))
        return batches


def _ratios(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return [together / apart for together, apart in pairs]


def _what(items: Sequence[Any], name: str) -> str:
    return f"measuring {len(items)} {name} that differ"
