"""What convolutions that read the same value gain from running as one operator, on one core and on two.

    python benchmarks/wide_merges.py RESULTS/MODEL [RUNS]

RESULTS/MODEL is a folder of the pipeline with graph.json. Convolutions on one value that can be merged (IOS, section 3)
run apart, one after another, and merged into one, on one core and on two cores inside operators, in turns; all of a
value together, and every pair. Of those that are the same computation one is measured. A row has the medians, and the
ratio of merged to apart on two cores with its 95 % interval, in pairs taken right after each other. "side by side" is
the least that they could take if each had one of the two cores to itself, with no transfer: their times on one core,
divided as evenly as possible. The last line adds the shortest times over the network, of all convolutions of a value
together, merged only where that is shorter; on a machine that does other things, only it means anything.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from hios import Graph
from hios.core.merging import convolutions, merged_kernel
from hios.machine.description import busy_share, usable_cores
from hios.machine.statistics import interval
from hios.platforms.cpu import timing
from hios.platforms.cpu.devices import device_cores
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool

RUNS, WARMUP = 36, 2
TIMEOUT_S = 600.0

#: Milliseconds of a merge in every run: together, and one after another.
Pairs = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Merge:
    """Convolutions that can run as one, and what was measured.

    Attributes:
        operators: their ids.
        count: how many merges of the network are the same computation.
        whole: whether it holds all that its convolutions could be merged with.
        narrow: on one core.
        wide: on two cores.
        alone: milliseconds of each convolution alone on one core, of every run.
    """

    operators: tuple[str, ...]
    count: int
    whole: bool
    narrow: Pairs
    wide: Pairs
    alone: Sequence[Sequence[float]]

    def times(self, pick: Callable[[Iterable[float]], float]) -> list[float]:
        """What is picked of all runs, such as the median: apart and merged on one core, on two, and side by side."""
        columns = [pick(own) for pairs in (self.narrow, self.wide) for own in reversed(list(zip(*pairs, strict=True)))]
        return [*columns, side_by_side_ms([pick(own) for own in self.alone])]

    def row(self) -> str:
        """The row of the table."""
        times = self.times(statistics.median)
        low, high = interval([together / apart for together, apart in self.wide])
        least = min(zip(times[2:], ("apart", "merged", "side by side"), strict=True))[1]
        name = f"{len(self.operators)} x {self.operators[0]}"
        many = f", {self.count} times" if self.count > 1 else ""
        return f"{name[:26]:<26}{_columns(times)}{times[3] / times[2]:>7.2f} ({low:.2f} to {high:.2f})  {least}{many}"


def side_by_side_ms(alone: Sequence[float]) -> float:
    """The least of the longer of two parts, over all ways to divide operators between two cores."""
    sums = {0.0}
    for time_ms in alone:
        sums |= {part + time_ms for part in sums}
    return min(max(part, sum(alone) - part) for part in sums)


def summary(merges: Sequence[Merge]) -> str:
    """Sums of the shortest times, over the network, of what is merged as a whole, but merged only where it gains."""
    sums = [0.0] * 5
    for merge in (merge for merge in merges if merge.whole):
        apart, merged, wide_apart, wide_merged, beside = merge.times(min)
        best = (apart, min(apart, merged), wide_apart, min(wide_apart, wide_merged), beside)
        sums = [total + merge.count * time_ms for total, time_ms in zip(sums, best, strict=True)]
    return f"{'sums of the shortest':<26}{_columns(sums)}{sums[3] / sums[2]:>7.2f}"


def _columns(times: Sequence[float]) -> str:
    return "".join(f"{time_ms:>{width}.2f}" for time_ms, width in zip(times, (9, 8, 9, 8, 9), strict=True))


def mergeable(graph: Graph) -> Iterator[tuple[tuple[str, ...], bool]]:
    """What could be merged: of each value's convolutions all that fit together, and all pairs of them.

    With each, whether it is the whole.
    """
    known = convolutions(graph)
    families: dict[Any, list[int]] = defaultdict(list)
    for place, member in enumerate(known):
        if member is not None:
            families[member.family].append(place)
    for family in families.values():
        whole = tuple(family)
        for places in (whole, *(pair for pair in combinations(family, 2) if pair != whole)):
            if merged_kernel([known[place] for place in places]) is not None:
                yield tuple(graph.operators[place].id for place in places), places == whole


def alike(graph: Graph) -> list[tuple[tuple[str, ...], bool, int]]:
    """One of those that are the same computation, whether it is a whole, and how many they are."""
    weights = {weight.name: weight.shape for weight in graph.weights}

    def signature(operator: str) -> Any:
        known = graph.operators[graph.index[operator]]
        call, *following = known.calls
        filters = weights[call.arguments[1].weight or ""]
        return str((sorted(call.attributes.items()), [one.function for one in following], known.shapes, filters))

    groups: dict[Any, list[tuple[tuple[str, ...], bool]]] = defaultdict(list)
    for operators, whole in mergeable(graph):
        groups[whole, tuple(sorted(map(signature, operators)))].append((operators, whole))
    return [(*own[0], len(own)) for own in groups.values()]


def measure(folder: Path, chosen: Sequence[tuple[tuple[str, ...], bool, int]], runs: int) -> list[Merge]:
    """Time what can be merged on one core and on two, in turns."""
    first, second = (own[0] for own in device_cores(2))
    graph, groups = str(folder / "graph.json"), [operators for operators, _, _ in chosen]
    members = list(dict.fromkeys(operator for operators in groups for operator in operators))
    samples: list[list[list[tuple[float, float]]]] = [[[] for _ in chosen] for _ in range(2)]
    alone: dict[str, list[float]] = defaultdict(list)
    with WorkerPool([[first], [first, second]], Arena(4, 64), TIMEOUT_S) as pool:
        for worker in (0, 1):
            pool.call(worker, timing.load_merges, graph=graph, merges=groups)
        pool.call(0, timing.load, graph=graph, operators=dict.fromkeys(members, 1))
        for _ in range(runs):
            for worker, kept in enumerate(samples):
                given = {"quantities": range(len(chosen)), "rounds": 1, "warmup": WARMUP}
                for own, new in zip(kept, pool.call(worker, timing.time_rounds, **given), strict=True):
                    own += new
            times = pool.call(0, timing.time_rounds, quantities=members, rounds=1, warmup=WARMUP)
            for operator, own in zip(members, times, strict=True):
                alone[operator] += [time_ms for (time_ms,) in own]
    return [
        Merge(operators, count, whole, narrow, wide, [alone[operator] for operator in operators])
        for (operators, whole, count), narrow, wide in zip(chosen, *samples, strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of a network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="RESULTS/MODEL")
    parser.add_argument("runs", nargs="?", type=int, default=RUNS, metavar="RUNS")
    given = parser.parse_args(arguments)
    folder, runs = given.folder, given.runs
    graph = Graph.read(folder / "graph.json")
    chosen = alike(graph)
    if not chosen:
        sys.exit(f"{folder}: no convolutions of {graph.name} can be merged")
    if len(usable_cores()) < 2:
        sys.exit(f"found {len(usable_cores())} core; required: two")
    busy = busy_share(usable_cores())
    measured = measure(folder, chosen, runs)
    print(f"{graph.name}, medians of {runs} runs in ms; cores {busy:.0%} busy with other work before")
    print(f"{'':26}{'one core':>17}{'two cores':>17}{'side by':>9}  merged over apart,")
    print(f"{'':26}{'apart':>9}{'merged':>8}{'apart':>9}{'merged':>8}{'side':>9}  on two cores         least on two")
    for merge in measured:
        print(merge.row())
    print(summary(measured))


if __name__ == "__main__":
    main()
