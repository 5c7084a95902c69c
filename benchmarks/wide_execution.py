"""What running operators on two devices at once costs beside the operators themselves, by how long helpers spin.

    python benchmarks/wide_execution.py RESULTS/MODEL [RUNS]

RESULTS/MODEL is a folder of the pipeline with graph.json and weights.safetensors. All operators run one after another:
on one core; on two cores of one device, whose OpenMP threads spin as long as they do by default; and on two devices at
once, with helpers that spin for so many looks at a flag (GOMP_SPINCOUNT) and sleep then. "narrow between" has every
other operator on one of the two devices, so that helpers have to leave the other's core. All take turns.

Printed are the median and 20th percentile of the latency, the sum over operators of their shortest time in any run, and
that of the shortest pauses between them. On a machine that does other things only the two sums mean anything.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from hios import Graph
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.machine.description import busy_share, usable_cores
from hios.platforms.cpu import worker
from hios.platforms.cpu.devices import SETTLE_S, device_cores
from hios.platforms.program import ArenaPlan, DeviceProgram
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool

RUNS = 36
SPINS = (0, 500, 1500, 5000, 20000)
TIMEOUT_S = 120.0


def plans(graph: Graph) -> dict[str, Plan]:
    """Sequential, all operators on both devices, and every other one on both, the rest on each in turn."""
    order = tuple(graph.order)
    both = order[::2]
    alone = {operator: number % 2 for number, operator in enumerate(order[1::2])}
    rows = tuple((tuple(v for v in order if alone.get(v, device) == device),) for device in (0, 1))
    return {
        "sequential": StagedPlan((tuple(((operator,),) for operator in order),)),
        "wide": StreamPlan(((order,), (order,)), order, dict.fromkeys(order, (0, 1))),
        "narrow between": StreamPlan(rows, order, dict.fromkeys(both, (0, 1))),
    }


class Comparison:
    """Workers of all ways to run the network, and what was measured of each."""

    def __init__(self, folder: Path) -> None:
        self.graph = Graph.read(folder / "graph.json")
        layout = ArenaPlan(self.graph, 2)
        programs = {name: layout.program(plan) for name, plan in plans(self.graph).items()}
        pair = device_cores(2)
        cores = [pair[0], [core for own in pair for core in own]]
        environment: dict[int, dict[str, str]] = {}
        self._competitors: dict[str, tuple[str, dict[int, DeviceProgram]]] = {
            "one core": ("sequential", {0: programs["sequential"][0]}),
            "one device of two cores": ("sequential", {1: programs["sequential"][0]}),
        }
        for spins in SPINS:
            first = len(cores)
            cores += pair
            environment |= {key: {"GOMP_SPINCOUNT": str(spins)} for key in (first, first + 1)}
            for name in ("wide", "narrow between"):
                parts = {first + part.device: part for part in programs[name]}
                self._competitors[f"{name}, {spins} looks"] = name, parts
        self._epoch = 0
        self.pool = WorkerPool(cores, Arena(layout.flags, layout.size), TIMEOUT_S, environment=environment)
        files = {"graph": str(folder / "graph.json"), "weights": str(folder / "weights.safetensors")}
        given = {**files, "inputs": layout.inputs, "timeout_s": TIMEOUT_S}
        self.pool.call_each(worker.load, dict.fromkeys(range(len(cores)), given))
        for name, parts in self._competitors.values():
            arguments = {
                w: {"name": name, "program": part, "cores": dict(enumerate(pair))} for w, part in parts.items()
            }
            self.pool.call_each(worker.prepare, arguments)
        self.latencies: dict[str, list[float]] = defaultdict(list)
        self.operators: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.pauses: dict[tuple[str, str], list[float]] = defaultdict(list)

    def round(self) -> None:
        """Run every competitor once."""
        competitors = list(self._competitors)
        random.shuffle(competitors)
        for competitor in competitors:
            name, parts = self._competitors[competitor]
            self._epoch += 1
            answers: dict[int, Any] = self.pool.call_each(
                worker.run, {key: {"name": name, "epoch": self._epoch} for key in parts}
            )
            began = min(start for start, _, _ in answers.values())
            self.latencies[competitor].append((max(end for _, end, _ in answers.values()) - began) / 1e6)
            before = began
            for operator, _, _, start, end in sorted(
                (row for _, _, own in answers.values() for row in own), key=_start
            ):
                self.operators[competitor, operator].append((end - start) / 1e6)
                self.pauses[competitor, operator].append((start - before) / 1e6)
                before = end
            time.sleep(SETTLE_S)

    def report(self) -> None:
        """Print a row for each competitor."""
        print(f"{'':28}{'median':>9}{'p20':>9}{'operators':>11}{'pauses':>9}  ms")
        for competitor, own in self.latencies.items():
            quantile = statistics.quantiles(own, n=5)[0]
            sums = [
                sum(min(samples) for (name, _), samples in kept.items() if name == competitor)
                for kept in (self.operators, self.pauses)
            ]
            print(f"{competitor:28}{statistics.median(own):9.1f}{quantile:9.1f}{sums[0]:11.1f}{sums[1]:9.2f}")


def _start(row: tuple[Any, ...]) -> int:
    start: int = row[3]
    return start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="RESULTS/MODEL")
    parser.add_argument("runs", nargs="?", type=int, default=RUNS, metavar="RUNS")
    given = parser.parse_args()
    if len(usable_cores()) < 2:
        sys.exit("wide_execution: found one core; required: two")
    print(f"{busy_share(usable_cores()):.0%} of the cores' time goes to other work")
    comparison = Comparison(given.folder)
    with comparison.pool:
        for _ in range(given.runs):
            comparison.round()
    comparison.report()


if __name__ == "__main__":
    main()
