"""Measuring a graph on a platform: t(v), t(S), merged operators and t(u,v), to costs.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from hios import artifacts
from hios.costs import Costs
from hios.evaluate import evaluate
from hios.graph import Graph
from hios.kernels.executable import require_executable
from hios.platforms import cpu
from hios.platforms.arena import Arena
from hios.platforms.pool import WorkerPool
from hios.problem import Problem
from hios.profiling import kernels
from hios.profiling.progress import bar
from hios.profiling.signature import signatures
from hios.profiling.statistics import spread
from hios.schedulers import find

#: Rounds before the measured ones.
_WARMUP = 3
#: Rounds of one call to a worker, so that the progress bar moves and devices take turns.
_CHUNK = 5
#: Stages or merges of one call: IOS asks for thousands, and a call has to end within the time-out.
_BATCH = 100
#: Hand-overs measured per size; they take microseconds.
_TRANSFERS = 100
#: How often algorithms are asked again after new stages were measured; each answer may bring new questions.
_STAGE_PASSES = 3
_TIMEOUT_S = 600.0

_Stage = tuple[tuple[str, ...], ...]
#: Operators that run as one.
_Merge = tuple[str, ...]
_Item = TypeVar("_Item")


def profile(
    graph: str | Path, output: str | Path, *, devices: int, repeats: int, stages_of: Sequence[str]
) -> dict[str, Any]:
    """Measure a graph on cpu devices and write costs.json; returns its contents.

    Operators with equal signature are measured once. t(S) and the times of merged operators are measured for the stages
    and merges that the named algorithms ask for on 1 to ``devices`` devices, given the times found so far.

    Args:
        graph: graph.json, with calls and shapes.
        output: costs.json to write.
        devices: number of devices; they take turns in measuring.
        repeats: rounds per operator and stage.
        stages_of: algorithms whose stages and merges are measured; others use models.

    Raises:
        HiosError: bad graph, unknown algorithm, too many devices, or a worker failed.
    """
    known = Graph.read(graph)
    require_executable(known)
    artifacts.require_writable(output)
    algorithms = [find(name) for name in stages_of]
    platform = cpu.describe(devices)
    largest = max((edge.bytes or 0 for edge in known.edges), default=0)
    with WorkerPool(platform["cores"], Arena(8, max(largest, 64)), _TIMEOUT_S) as pool:
        session = _Session(known, pool, devices, repeats)
        session.load(str(graph))
        session.measure_operators()
        session.measure_transfers()
        for _ in range(_STAGE_PASSES):
            stages, merges = session.asked([a.name for a in algorithms])
            if not stages and not merges:
                break
            session.measure_stages(stages)
            session.measure_merges(merges)
        data = {
            "graph": known.name,
            "graph_fingerprint": known.fingerprint,
            "platform": platform,
            "versions": cpu.versions(),
            **session.costs(),
        }
    artifacts.write(output, "costs", data)
    return data


@dataclass
class _Session:
    """Measurements of one graph."""

    graph: Graph
    pool: WorkerPool
    devices: int
    repeats: int
    _operators: dict[str, list[float]] = field(default_factory=dict)
    #: Milliseconds of stages, with those of their operators one after another, by stand-ins.
    _stages: dict[_Stage, list[tuple[float, float]]] = field(default_factory=dict)
    #: Stages that algorithms asked for, with the stage of stand-ins that is measured for each.
    _asked: dict[_Stage, _Stage] = field(default_factory=dict)
    #: The same for merges. Stand-ins need not read one value, so the merge that was asked for first is measured.
    _merges: dict[_Merge, list[tuple[float, float]]] = field(default_factory=dict)
    _asked_merges: dict[_Merge, _Merge] = field(default_factory=dict)
    _transfers: dict[int, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._path = ""
        self._signature = signatures(self.graph)
        #: The operator that is measured for each signature: the first in execution order.
        self._measured_for: dict[str, str] = {}
        for number in self.graph.order:
            operator = self.graph.operators[number].id
            self._measured_for.setdefault(self._signature[operator], operator)

    def _stand_in(self, operator: str) -> str:
        return self._measured_for[self._signature[operator]]

    def load(self, graph: str) -> None:
        self._path = graph
        self._load(dict.fromkeys(self._measured_for.values(), 1))

    def _load(self, operators: dict[str, int]) -> None:
        arguments = {"graph": self._path, "operators": operators}
        self.pool.call_each(kernels.load, dict.fromkeys(range(self.devices), arguments))

    def _chunks(self) -> list[int]:
        full, rest = divmod(self.repeats, _CHUNK)
        return [_CHUNK] * full + ([rest] if rest else [])

    def measure_operators(self) -> None:
        count = len(self._measured_for)
        what = f"measuring the {count} operators that differ, of {len(self.graph.operators)}"
        with bar(count * self.repeats, what, "runs") as progress:
            for number, rounds in enumerate(self._chunks()):
                device = number % self.devices
                found = self.pool.call(device, kernels.time_operators, rounds=rounds, warmup=_WARMUP)
                for operator, samples in found.items():
                    self._operators.setdefault(operator, []).extend(samples)
                progress.update(count * rounds)

    def measure_transfers(self) -> None:
        sizes = sorted({edge.bytes or 0 for edge in self.graph.edges})
        if self.devices == 1:
            self._transfers = self.pool.call(0, kernels.time_copies, sizes=sizes, rounds=_TRANSFERS)
            return
        for sender, receiver in ((0, 1), (1, 0)):
            both = {"sizes": sizes, "rounds": _TRANSFERS // 2 + _WARMUP, "epoch": sender * 1_000_000}
            times = self.pool.call_each(
                kernels.hand_over, {sender: {"part": "send", **both}, receiver: {"part": "receive", **both}}
            )
            for size in sizes:
                pairs = list(zip(times[sender][size], times[receiver][size], strict=True))[_WARMUP:]
                self._transfers.setdefault(size, []).extend((seen - began) / 1e6 for began, seen in pairs)

    def asked(self, algorithms: Sequence[str]) -> tuple[list[_Stage], dict[_Merge, _Merge]]:
        """What the algorithms ask for and that is not measured: stages by stand-ins, and merges by those with them."""
        costs = Costs.from_json(self.costs())
        stages: dict[_Stage, None] = {}
        merges: dict[_Merge, _Merge] = {}
        for name in algorithms:
            algorithm = find(name)
            for devices in range(1, self.devices + 1 if algorithm.several_devices else 2):
                problem = Problem(self.graph, costs)
                # What an algorithm does not ask for while it searches, the evaluation of its plan does.
                evaluate(problem, algorithm.solve(problem, devices).plan)
                for stage in problem.asked:
                    groups = tuple(sorted(tuple(problem.ids[operator] for operator in group) for group in stage))
                    measured = tuple(sorted(tuple(map(self._stand_in, group)) for group in groups))
                    self._asked[groups] = measured
                    if measured not in self._stages:
                        stages[measured] = None
                for numbers in sorted(map(sorted, problem.asked_merges)):
                    merge = tuple(problem.ids[operator] for operator in numbers)
                    alike = tuple(sorted(map(self._stand_in, merge)))
                    self._asked_merges[merge] = alike
                    if alike not in self._merges:
                        merges.setdefault(alike, merge)
        return sorted(stages), merges

    def measure_stages(self, stages: list[_Stage]) -> None:
        if not stages:
            return
        needed: dict[str, int] = {}
        for stage in stages:
            for operator, count in Counter(operator for group in stage for operator in group).items():
                needed[operator] = max(needed.get(operator, 1), count)
        self._load(needed)
        with bar(len(stages) * self.repeats, f"measuring {len(stages)} stages that differ", "runs") as progress:
            for number, (batch, rounds) in enumerate(product(_batches(stages), self._chunks())):
                device = number % self.devices
                found = self.pool.call(device, kernels.time_stages, stages=batch, rounds=rounds, warmup=_WARMUP)
                for stage, samples in zip(batch, found, strict=True):
                    self._stages.setdefault(stage, []).extend(samples)
                progress.update(len(batch) * rounds)

    def measure_merges(self, merges: dict[_Merge, _Merge]) -> None:
        if not merges:
            return
        with bar(len(merges) * self.repeats, f"measuring {len(merges)} merges that differ", "runs") as progress:
            for batch in _batches(list(merges)):
                arguments = {"graph": self._path, "merges": [merges[alike] for alike in batch]}
                self.pool.call_each(kernels.load_merges, dict.fromkeys(range(self.devices), arguments))
                for number, rounds in enumerate(self._chunks()):
                    found = self.pool.call(number % self.devices, kernels.time_merges, rounds=rounds, warmup=_WARMUP)
                    for alike, samples in zip(batch, found, strict=True):
                        self._merges.setdefault(alike, []).extend(samples)
                    progress.update(len(batch) * rounds)

    def costs(self) -> dict[str, Any]:
        """What was measured so far, as costs.json states it."""
        sizes: dict[tuple[str, str], int] = {}
        for edge in self.graph.edges:
            ends = (edge.source, edge.target)
            sizes[ends] = max(sizes.get(ends, 0), edge.bytes or 0)
        return {
            "operators": {
                operator.id: _entry(self._operators[self._stand_in(operator.id)]) for operator in self.graph.operators
            },
            "transfers": [
                {"source": source, "target": target, **_entry(self._transfers[size])}
                for (source, target), size in sizes.items()
            ],
            "stages": [
                {
                    "groups": [list(group) for group in groups],
                    **self._ratio_entry(self._stages[measured], [operator for group in measured for operator in group]),
                }
                for groups, measured in sorted(self._asked.items())
                if measured in self._stages
            ],
            "merges": [
                {"operators": list(merge), **self._ratio_entry(self._merges[alike], alike)}
                for merge, alike in sorted(self._asked_merges.items())
                if alike in self._merges
            ],
            # A device is one core, which every operator keeps busy: beside each other they take their sum.
            "contention": {"kind": "blend", "alpha": 1.0},
        }

    def _ratio_entry(self, samples: Sequence[tuple[float, float]], operators: Sequence[str]) -> dict[str, float]:
        """t(S) as the operators' own times by the ratio of the stage to its operators one after another; so for merges.

        The two were taken right after each other, t(v) at another time: their plain comparison would take drift
        for a gain. A ratio that its spread does not tell from 1 counts as 1.
        """
        ratio, p20, p80 = spread([together / apart for together, apart in samples])
        alone = sum(spread(self._operators[operator])[0] for operator in operators)
        known = 1.0 if p20 <= 1.0 <= p80 else ratio
        return {"time_ms": known * alone, "p20_ms": p20 * alone, "p80_ms": p80 * alone, "repeats": len(samples)}


def _batches(items: Sequence[_Item]) -> list[Sequence[_Item]]:
    return [items[begin : begin + _BATCH] for begin in range(0, len(items), _BATCH)]


def _entry(samples: Sequence[float]) -> dict[str, float]:
    median, p20, p80 = spread(samples)
    return {"time_ms": median, "p20_ms": p20, "p80_ms": p80, "repeats": len(samples)}
